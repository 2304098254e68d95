#![no_main]

libfuzzer_sys::fuzz_target!(|input: pkhash_fuzz::Sets| pkhash_fuzz::set(&input));
