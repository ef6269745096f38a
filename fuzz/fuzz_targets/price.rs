//! Prices and adjustments: no text panics, and no price falls below zero.
#![no_main]

use libfuzzer_sys::fuzz_target;
use veneer_engine::overlay::PriceChange;

fuzz_target!(|text: &str| {
    for change in [PriceChange::price(text), PriceChange::adjustment(text)].into_iter().flatten() {
        assert!(change.apply(0.096) >= 0.0, "{text:?}");
        assert_eq!(change.to_string(), text);
    }
});
