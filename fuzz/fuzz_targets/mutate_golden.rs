#![no_main]

libfuzzer_sys::fuzz_target!(|input: pkhash_fuzz::Damage| pkhash_fuzz::mutate_golden(&input));
