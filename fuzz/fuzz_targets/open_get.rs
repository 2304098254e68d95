#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pkhash_fuzz::open_get(data));
