//! Label selectors: no text panics; a refusal quotes a part of the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use veneer_engine::catalogue::selector::Selector;

fuzz_target!(|text: &str| {
    if let Err(error) = Selector::parse(text) {
        assert!(!error.to_string().is_empty());
    }
});
