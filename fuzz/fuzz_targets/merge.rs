#![no_main]

libfuzzer_sys::fuzz_target!(|input: pkhash_fuzz::Merge| pkhash_fuzz::merge(&input));
