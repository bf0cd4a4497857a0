//! Salvage: what is outside of damaged bytes is found again, whatever the damage is.

use std::path::Path;
use std::sync::Arc;

use pleach_env::Env;
use pleach_table::{Codec, SalvageSst, Salvaged, SstBuilder, SstDamage, SstOptions, ValueKind};

use crate::support::{
    Entries, FILE, PATH, apart, eight_bytes, hash, learned, machine, numbered, options, pages, version_of,
};

const NOTE: &[u8] = b"a note";

fn build(env: &Arc<dyn Env>, entries: &Entries, options: SstOptions) {
    let mut builder = SstBuilder::create(env, Path::new(PATH), FILE, options).unwrap();
    builder.set_note(NOTE);
    for (key, (kind, value)) in entries {
        builder.add(key, *kind, value, hash(key)).unwrap();
    }
    builder.finish().unwrap();
}

/// Entries, damage, and the note of what is at the usual place.
fn salvage(env: &Arc<dyn Env>) -> (Entries, Vec<SstDamage>, Option<Vec<u8>>) {
    let sst = SalvageSst::open(env, Path::new(PATH), FILE).unwrap();
    let (mut entries, mut damage) = (Entries::new(), Vec::new());
    sst.read(&mut |found| {
        match found {
            Salvaged::Entry { key, kind, value } => {
                assert!(entries.insert(key.to_vec(), (kind, value.to_vec())).is_none(), "a key twice");
            }
            Salvaged::Damage(found) => damage.push(found),
            Salvaged::Progress(_) => {}
        }
        Ok(true)
    })
    .unwrap();
    (entries, damage, sst.note().unwrap())
}

fn samples() -> Vec<(Entries, SstOptions)> {
    let mut odd = numbered(700, 30);
    odd.insert(b"key00000500x".to_vec(), (ValueKind::Put, vec![7; 1_500_000]));
    odd.insert(b"key00000900x".to_vec(), (ValueKind::Tombstone, Vec::new()));
    // Values that look like headers of blocks.
    let header = [0, 0, 0, 0, 0, 1, 2, 0, 40, 0, 0, 0, 40, 0, 0, 0];
    odd.insert(b"key00001200x".to_vec(), (ValueKind::Put, header.repeat(900)));
    let all = [options(Codec::None), options(Codec::Lz4), learned()];
    let columns =
        [(apart(eight_bytes(12_000)), all[0]), (apart(pages(4000)), all[1]), (numbered(5000, 8), all[0])];
    all.into_iter().map(|options| (odd.clone(), options)).chain(columns).collect()
}

#[test]
fn a_whole_file_is_read_whole() {
    for (entries, options) in samples() {
        let (_, env) = machine();
        build(&env, &entries, options);
        let (found, damage, note) = salvage(&env);
        assert!(found == entries && damage.is_empty() && note.as_deref() == Some(NOTE));
    }
}

/// A damaged page costs the entries of the blocks that it touches, with or without the index.
#[test]
fn only_entries_of_damaged_blocks_are_lost() {
    for (entries, options) in samples() {
        let (sim, env) = machine();
        build(&env, &entries, options);
        let bytes = sim.read_file(Path::new(PATH)).unwrap();
        for tail_is_whole in [true, false] {
            for at in (0..bytes.len()).step_by(4096 * 7 + 512) {
                let mut damaged = bytes.clone();
                let end = (at + 512).min(bytes.len());
                damaged[at..end].fill(0xa5);
                if !tail_is_whole {
                    let len = damaged.len();
                    damaged[len - 8] ^= 1;
                }
                sim.write_file(Path::new(PATH), &damaged);
                let (found, damage, note) = salvage(&env);
                assert!(found.iter().all(|(key, entry)| entries.get(key) == Some(entry)), "invented at {at}");
                let lost: Vec<_> = entries.keys().filter(|key| !found.contains_key(*key)).collect();
                // Two blocks can be touched: in rows of 16 KiB with about 400 entries each at most, or columnar.
                let lost_max = if version_of(&bytes) == 5 { 2500 } else { 800 };
                assert!(lost.len() <= lost_max, "{} lost at {at}, {tail_is_whole}", lost.len());
                if let Some(first) = lost.first() {
                    let inside = |d: &SstDamage| {
                        d.after.as_ref().is_none_or(|key| key < *first)
                            && d.before.as_ref().is_none_or(|key| key > *first)
                    };
                    assert!(damage.iter().any(inside), "{damage:?} does not name {first:?}");
                }
                if at < bytes.len() / 2 {
                    assert_eq!(note.as_deref(), Some(NOTE), "at {at}, {tail_is_whole}");
                }
            }
        }
    }
}

#[test]
fn a_cut_file_gives_what_it_has() {
    for (entries, options) in samples() {
        let (sim, env) = machine();
        build(&env, &entries, options);
        let bytes = sim.read_file(Path::new(PATH)).unwrap();
        for len in [0, 1, 15, 16, 4096, 40_000, bytes.len() / 2, bytes.len() - 1] {
            let len = len.min(bytes.len() - 1);
            sim.write_file(Path::new(PATH), &bytes[..len]);
            let (found, damage, _) = salvage(&env);
            assert!(found.iter().all(|(key, entry)| entries.get(key) == Some(entry)));
            assert!(len < 20_000 || !found.is_empty(), "{len}");
            assert!(len < 100 || len + 1 == bytes.len() || !damage.is_empty() || found.len() < entries.len());
        }
    }
}

/// Headers that claim long payloads all over the file take neither memory nor hours.
#[test]
fn bytes_made_up_to_look_like_blocks_are_given_up() {
    let (sim, env) = machine();
    build(&env, &numbered(10, 10), options(Codec::None));
    let head = [9, 9, 9, 9, 0, 1, 1, 0, 0, 0, 0x20, 0, 0, 0, 0x20, 0];
    sim.write_file(Path::new(PATH), &head.repeat(1 << 16));
    let (found, damage, note) = salvage(&env);
    assert!(found.is_empty() && note.is_none());
    assert_eq!(damage.len(), 1, "{damage:?}");
}
