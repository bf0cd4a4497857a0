//! `CURRENT`, an edit, and a manifest of several.
#![no_main]

use pleach_fuzz::Input;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    match input.byte() % 3 {
        0 => pleach::fuzzing::current(input.0),
        1 => pleach::fuzzing::edit(input.0),
        _ => {
            let mut edits = Vec::new();
            for _ in 0..input.byte() % 8 {
                let len = usize::from(input.byte());
                edits.push(input.bytes(len));
            }
            pleach::fuzzing::manifest(&edits, input.0);
        }
    }
});
