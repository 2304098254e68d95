#![no_main]

libfuzzer_sys::fuzz_target!(|input: pkhash_fuzz::Companion| pkhash_fuzz::ordered(&input));
