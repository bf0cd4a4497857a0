//! Random actions, and threads, over the real stores.

use pleach_reshape::store::RowStore;
use pleach_reshape::store::lmdb::{LmdbOptions, LmdbStore};
use pleach_reshape::store::redb::{RedbOptions, RedbStore};
use pleach_reshape::{MapPlace, Options, Update};

use crate::concurrency;
use crate::rig::{Contents, assert_contents, seed, variable, write};

fn rows(kind: &str, folder: &std::path::Path) -> Box<dyn RowStore> {
    let folder = folder.join("rows");
    match kind {
        "redb" => Box::new(RedbStore::open(&folder, &RedbOptions::default()).unwrap()),
        _ => Box::new(LmdbStore::open(&folder, &LmdbOptions::default()).unwrap()),
    }
}

#[test]
fn real_stores_answer_as_a_map_does() {
    for kind in ["redb", "lmdb"] {
        for case in 0..variable("PLEACH_CASES", 6) {
            let mut rng = fastrand::Rng::with_seed(seed() + case);
            let folder = tempfile::tempdir().unwrap();
            let update = [Update::InPlace, Update::Replace, Update::Defer][rng.usize(..3)];
            let options = Options::new().update(update).sequence_bits(11).delta_bytes(8 << 10).moves(2000, 8);
            let mut contents = Contents::new();
            for _ in 0..5 {
                let place = if rng.bool() { MapPlace::Memory } else { MapPlace::Disk };
                let options = options.clone().map(place);
                let store = options.open(rows(kind, folder.path()), folder.path().join("map")).unwrap();
                assert_contents(&store, &contents, kind);
                for number in 0..rng.usize(..300) {
                    write(&store, &mut contents, 150, &mut rng);
                    match number % 70 {
                        30 => store.checkpoint().unwrap(),
                        40 => drop(store.recluster::<&[u8]>(..).unwrap()),
                        50 => drop(store.clean().unwrap()),
                        60 => store.drain().unwrap(),
                        _ => {}
                    }
                }
                assert_contents(&store, &contents, kind);
                if rng.bool() {
                    store.close().unwrap();
                } else {
                    store.sync().unwrap();
                }
            }
        }
    }
}

#[test]
fn histories_over_real_stores_are_linearizable() {
    for (kind, place) in [("redb", MapPlace::Disk), ("lmdb", MapPlace::Memory)] {
        for update in [Update::InPlace, Update::Replace, Update::Defer] {
            let folder = tempfile::tempdir().unwrap();
            concurrency::run(seed(), update, rows(kind, folder.path()), place, 10, 60);
        }
    }
}
