//! Quantities: no text panics, and what is read can be written and read again with the same value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use veneer_engine::quantity::Quantity;

fuzz_target!(|text: &str| {
    let Ok(quantity) = text.parse::<Quantity>() else { return };
    let sum = &quantity + &quantity;
    let _ = (&sum - &quantity, quantity.value(), quantity.milli_value(), sum.to_string());
    assert_eq!(&sum - &quantity, quantity, "{text:?}");
});
