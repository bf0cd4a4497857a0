//! Shapes: the cost of a load in key order, and stores that change their shape.

use std::sync::Arc;

use fastrand::Rng;
use pleach::Shape;
use pleach::env::SimEnv;

use super::{Model, SETUP, check, put_random};
use crate::rig::setup::Setup;

const SHAPES: [Shape; 3] = [Shape::Forest, Shape::ForestOverBottom, Shape::Leveled];

/// Inputs that nothing overlaps become part of the output by metadata alone.
#[test]
fn a_load_in_order_is_written_once() {
    for shape in SHAPES {
        let env = SimEnv::new(1);
        let db = Setup { shape: Some(shape), ..SETUP }.open(&env).unwrap();
        let partition = db.default_partition();
        for i in 0..20_000 {
            partition.put(format!("{i:08}"), [1; 100]).unwrap();
        }
        db.settle().unwrap();
        let stats = db.stats();
        println!("{shape:?}: {stats:#?}");
        let (flushed, copied) = (stats.flush_bytes, stats.compaction_written_bytes);
        assert!(stats.moved_bytes > flushed / 2, "{shape:?}: {stats:#?}");
        assert!(copied * 50 <= flushed, "{shape:?}: {stats:#?}");
        assert!(stats.runs_max <= 16, "{shape:?}: {stats:#?}");
    }
}

/// The shape is a matter of the picker: another one takes over what it finds, and transforms it as work comes up.
#[test]
fn an_existing_store_takes_another_shape() {
    for (from, to) in SHAPES.iter().flat_map(|from| SHAPES.iter().map(move |to| (*from, *to))) {
        let env = SimEnv::new(1);
        let (mut model, mut rng) = (Model::new(), Rng::with_seed(2));
        for shape in [from, to, from] {
            let story = format!("{from:?} to {to:?}, now {shape:?}");
            let db = Setup { shape: Some(shape), ..SETUP }.open(&Arc::clone(&env)).unwrap();
            check(&db, &model, &story);
            put_random(&db, &mut model, &mut rng, (4000, 20_000));
            db.settle().unwrap();
            check(&db, &model, &story);
            let stats = db.stats();
            assert!(stats.runs_max <= 16, "{story}: {stats:#?}");
            db.compact().unwrap();
            assert_eq!(db.stats().runs, 1, "{story}");
            put_random(&db, &mut model, &mut rng, (4000, 20_000));
        }
    }
}

/// Runs that no write merges any more are merged once reads have paid for it.
#[test]
fn runs_that_are_read_again_and_again_become_one() {
    let env = SimEnv::new(1);
    let db = SETUP.open(&env).unwrap();
    let (mut model, mut rng) = (Model::new(), Rng::with_seed(3));
    put_random(&db, &mut model, &mut rng, (4000, 1_000_000_000));
    db.settle().unwrap();
    let runs = db.stats().runs;
    assert!(runs > 1, "{runs} runs after a load");
    let partition = db.default_partition();
    for _ in 0..100 {
        assert!(partition.range(b"5".as_slice()..).next().is_some());
    }
    db.settle().unwrap();
    assert_eq!(db.stats().runs, runs, "a few reads are not worth it");
    for _ in 0..20_000 {
        assert!(partition.range(b"5".as_slice()..).next().is_some());
    }
    db.settle().unwrap();
    assert_eq!(db.stats().runs, 1);
    check(&db, &model, "merged for the reads");
}
