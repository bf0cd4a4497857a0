//! Damaged files: one test for each kind of file and codec.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use pleach::env::failpoint;

use crate::campaign::{Campaign, is_full, rng};
use crate::damage::{Damage, of_bytes, of_ranges};
use crate::examine::Trust;
use crate::fixture::{DIR, FileKind, Fixture};

/// Offsets tried in all files of a kind together, beyond those at the files' ends, in a run that does not try every byte.
const SAMPLES: usize = 300;

/// Files of a kind that are damaged in such a run: a store has a hundred SSTs.
const FILES_MAX: usize = 5;

static PLAIN: LazyLock<Fixture> = LazyLock::new(|| Fixture::build(7, false));
static COMPRESSED: LazyLock<Fixture> = LazyLock::new(|| Fixture::build(8, true));

/// Damages all files of `kind`, and then again with each of `checks` forged.
fn damage_all(fixture: &Fixture, kind: FileKind, name: &str, checks: &[&'static str]) {
    let mut rng = rng();
    let mut campaign = Campaign::new(fixture, name);
    let mut files: Vec<_> = fixture.files.iter().filter(|file| file.kind() == kind).collect();
    if !is_full() {
        rng.shuffle(&mut files);
        files.truncate(FILES_MAX);
    }
    let samples = if is_full() { usize::MAX / 4 } else { SAMPLES / files.len() };
    for file in &files {
        let by_byte = of_bytes(file, samples, &mut rng);
        for damage in by_byte.iter().chain(&of_ranges(file, fixture, &mut rng)) {
            campaign.run(file, damage, Trust::Full);
        }
        for check in checks {
            let forged = of_bytes(file, samples / 4, &mut rng);
            for damage in forged.iter().filter(|damage| matches!(damage, Damage::Flip { .. })) {
                campaign.run(file, damage, Trust::Forged(check));
            }
        }
    }
    campaign.finish();
}

#[test]
fn a_damaged_current_is_noticed() {
    damage_all(&PLAIN, FileKind::Current, "CURRENT", &["current.crc"]);
}

#[test]
fn a_damaged_manifest_is_noticed() {
    damage_all(&PLAIN, FileKind::Manifest, "manifest", &["log.record.crc", "log.header.crc"]);
}

#[test]
fn a_damaged_log_segment_is_noticed() {
    damage_all(&PLAIN, FileKind::Log, "log", &["log.record.crc", "log.header.crc", "value.crc"]);
}

#[test]
fn a_damaged_file_of_values_is_noticed() {
    damage_all(&PLAIN, FileKind::Values, "values", &["value.crc"]);
}

#[test]
fn a_damaged_sst_is_noticed() {
    damage_all(&PLAIN, FileKind::Sst, "SST", &["sst.block.crc", "sst.tail.crc", "sst.footer.crc"]);
}

#[test]
fn a_damaged_compressed_sst_is_noticed() {
    damage_all(&COMPRESSED, FileKind::Sst, "SST", &["sst.block.crc", "sst.tail.crc", "sst.footer.crc"]);
}

/// The values that repeat are packed.
#[test]
fn a_damaged_file_of_packed_values_is_noticed() {
    damage_all(&COMPRESSED, FileKind::Values, "values", &["value.crc"]);
}

#[test]
fn a_damaged_log_segment_of_packed_values_is_noticed() {
    damage_all(&COMPRESSED, FileKind::Log, "log", &["log.record.crc", "log.header.crc", "value.crc"]);
}

/// With a check switched off some damage must pass, otherwise the tests above prove nothing. The checksum of `CURRENT` is an
/// exception: a changed name leads to no file, and a changed number does not fit the files.
#[test]
fn a_missing_check_is_noticed() {
    let mut rng = rng();
    for (check, kind) in [
        ("log.record.crc", FileKind::Manifest),
        ("log.record.crc", FileKind::Log),
        ("sst.block.crc", FileKind::Sst),
        ("sst.tail.crc", FileKind::Sst),
        ("value.crc", FileKind::Log),
        ("value.crc", FileKind::Values),
    ] {
        let mut campaign = Campaign::new(&PLAIN, check);
        campaign.expects_violations = true;
        let files = PLAIN.files.iter().filter(|file| file.kind() == kind);
        // In random order over all files: some files have no byte that passes, and of a manifest few do, because edits are
        // checked against the version.
        let mut cases: Vec<_> = files
            .flat_map(|file| of_bytes(file, 4_000, &mut rng).into_iter().map(move |damage| (file, damage)))
            .collect();
        rng.shuffle(&mut cases);
        for (file, damage) in cases {
            campaign.run(file, &damage, Trust::FullWithout(check));
            if campaign.violations() > 0 {
                break;
            }
        }
        assert!(campaign.violations() > 0, "no damage passes without {check} of {kind:?}");
    }
}

#[test]
fn the_stores_hold_everything_that_can_be_damaged() {
    for fixture in [&*PLAIN, &*COMPRESSED] {
        let count = |kind| fixture.files.iter().filter(|file| file.kind() == kind).count();
        for file in &fixture.files {
            println!("{}: {} bytes, {} older versions", file.name, file.bytes.len(), file.older.len());
        }
        assert_eq!((count(FileKind::Current), count(FileKind::Manifest)), (1, 1));
        assert!(count(FileKind::Log) >= 3 && count(FileKind::Sst) >= 8);
        let kinds =
            fixture.files.iter().filter(|file| file.kind() == FileKind::Values).map(|file| file.bytes[12]);
        let kinds: BTreeSet<_> = kinds.collect();
        assert!(fixture.compressed || kinds == BTreeSet::from([1, 2]), "copied and moved values");
        let db = fixture.options(&fixture.machine()).read_only(true).open(DIR).expect("it opens");
        let stats = db.stats();
        assert!(stats.value_files > count(FileKind::Values) as u64, "some are value segments: {stats:?}");
        db.verify().expect("it is intact");
        assert_eq!(failpoint::take_report("value.unpacked").is_some(), fixture.compressed, "packed values");
    }
}
