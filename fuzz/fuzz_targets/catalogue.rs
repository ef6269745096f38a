//! Catalogue files: no text panics; a refusal names the place.
#![no_main]

use libfuzzer_sys::fuzz_target;
use veneer_engine::catalogue::kwok;

fuzz_target!(|text: &str| {
    if let Err(error) = kwok::parse(text, "types.json") {
        assert!(error.to_string().starts_with("types.json:"), "{error}");
    }
});
