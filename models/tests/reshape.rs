//! A checkpoint of a reshaped store knows all that is below its marks, and a reader sees batches whole.

use std::sync::Arc;

use loom::thread;
use pleach_models::explore;
use pleach_models::reshape::{Marks, Publication};

#[test]
fn what_is_below_the_marks_is_published() {
    explore(3, || {
        let marks = Arc::new(Marks::new(2));
        let writers: Vec<_> = (0..2)
            .map(|thread| {
                let marks = Arc::clone(&marks);
                thread::spawn(move || marks.write(thread))
            })
            .collect();
        marks.checkpoint();
        for writer in writers {
            writer.join().unwrap();
        }
        marks.checkpoint();
    });
}

#[test]
fn who_sees_one_key_of_a_batch_sees_the_other() {
    explore(4, || {
        let publication = Arc::new(Publication::new());
        let writer = {
            let publication = Arc::clone(&publication);
            thread::spawn(move || (1..3).for_each(|version| publication.write(version)))
        };
        let (first, second) = publication.read();
        assert!(second >= first, "{first} {second}");
        writer.join().unwrap();
    });
}
