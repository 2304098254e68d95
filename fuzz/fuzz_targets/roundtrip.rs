#![no_main]

libfuzzer_sys::fuzz_target!(|input: pkhash_fuzz::Contents| pkhash_fuzz::roundtrip(&input));
