//! A checkpoint of a reshaped store knows all that is below its marks, and a reader sees batches whole, with a cache of rows too.

use std::sync::Arc;

use loom::thread;
use pleach_models::explore;
use pleach_models::reshape::{Cached, Marks, Publication};

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

/// Runs a reader beside the writer of a batch. `warm` says which of the two keys are cached before.
fn beside_a_writer(warm: [bool; 2], read: impl Fn(&Cached) + Clone + Send + Sync + 'static) {
    explore(3, move || {
        let cached = Arc::new(Cached::new());
        assert!(!(warm[0] && cached.is_written() || warm[1] && cached.is_deleted()));
        let writer = {
            let cached = Arc::clone(&cached);
            thread::spawn(move || cached.write())
        };
        read(&cached);
        writer.join().unwrap();
        assert!(cached.is_written() && cached.is_deleted());
    });
}

#[test]
fn who_sees_a_cached_key_of_a_batch_sees_the_other() {
    for warm in [[false, false], [true, false], [false, true], [true, true]] {
        beside_a_writer(warm, |cached| {
            let is_written = cached.is_written();
            assert!(cached.is_deleted() || !is_written);
        });
        beside_a_writer(warm, |cached| {
            let is_deleted = cached.is_deleted();
            assert!(cached.is_written() || !is_deleted);
        });
    }
}

#[test]
fn an_old_row_does_not_come_back_by_a_late_fill() {
    explore(3, || {
        let cached = Arc::new(Cached::new());
        let others: Vec<_> = [Cached::write as fn(&Cached), |cached| {
            let _ = (cached.is_deleted(), cached.is_written());
        }]
        .into_iter()
        .map(|run| {
            let cached = Arc::clone(&cached);
            thread::spawn(move || run(&cached))
        })
        .collect();
        let (deleted, written) = (cached.is_deleted(), cached.is_written());
        assert!(cached.is_deleted() || !deleted);
        assert!(cached.is_written() || !written);
        for other in others {
            other.join().unwrap();
        }
        assert!(cached.is_written() && cached.is_deleted());
    });
}
