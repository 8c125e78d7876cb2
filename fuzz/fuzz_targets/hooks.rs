#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| safepoint_fuzzing::hooks(bytes));
