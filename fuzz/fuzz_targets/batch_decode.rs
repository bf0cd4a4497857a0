//! A batch of any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pleach::fuzzing::batch(bytes));
