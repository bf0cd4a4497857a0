//! A value pointer of any bytes, and a file of moved values that is damaged: right values or errors.
#![no_main]

use pleach::fuzzing;
use pleach_fuzz::Input;

/// Values in a file at most: groups, segments and the table all come up.
const VALUES_MAX: u8 = 40;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fuzzing::value_pointer(bytes);
    let mut input = Input(bytes);
    let count = input.byte() % VALUES_MAX;
    let lens: Vec<_> = (0..count).map(|_| (input.byte(), input.byte())).collect();
    fuzzing::moved_values(&lens, |file| input.damage(file));
});
