//! Manifests, YAML or JSON: no text panics.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = veneer::findings_of(text);
});
