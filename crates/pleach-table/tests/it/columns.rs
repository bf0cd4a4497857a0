//! SSTs with columnar blocks: format version, index, sizes.

use std::path::Path;

use pleach_env::{ErrorKind, failpoint};
use pleach_table::{Codec, FrameCache, IndexChoice, SstOptions, ValueKind};

use crate::support::{
    Entries, PATH, apart, build, eight_bytes, get, hash, machine, numbered, open, options, pages, version_of,
};

const INDEXES: [IndexChoice; 3] = [IndexChoice::Separators, IndexChoice::Smallest, IndexChoice::Learned];

#[test]
fn only_ssts_with_a_columnar_block_have_version_5_or_6() {
    let with_version = |entries: &Entries, options| {
        let (sim, env) = machine();
        build(&env, entries, options);
        version_of(&sim.read_file(Path::new(PATH)).unwrap())
    };
    let tombstones: Entries =
        eight_bytes(3000).map(|key| (key, (ValueKind::Tombstone, Vec::new()))).collect();
    for codec in [Codec::None, Codec::Lz4] {
        let with = options(codec);
        assert_eq!(with_version(&apart(eight_bytes(3000)), with), 5);
        assert_eq!(with_version(&apart(numbered(3000, 0).into_keys()), with), 6, "packed keys");
        assert_eq!(with_version(&numbered(3000, 20), with), 6, "short values");
        for (entries, options) in [
            (apart(eight_bytes(3000)), SstOptions { columns: false, ..with }),
            (numbered(3000, 20), SstOptions { columns: false, ..with }),
            (numbered(3000, 65), with),
            (tombstones.clone(), with),
        ] {
            assert!(with_version(&entries, options) < 5);
        }
    }
}

/// A build that does not know the version never comes to such a block; a footer that hides it is damage.
#[test]
fn a_columnar_block_under_an_older_version_is_refused() {
    for (entries, version) in
        [(apart(eight_bytes(3000)), 2), (numbered(3000, 20), 2), (numbered(3000, 20), 5)]
    {
        let (sim, env) = machine();
        build(&env, &entries, options(Codec::None));
        let mut bytes = sim.read_file(Path::new(PATH)).unwrap();
        let at = bytes.len() - 60;
        bytes[at] = version;
        sim.write_file(Path::new(PATH), &bytes);
        let open = || open(&env, None, &FrameCache::new(0));
        let sst = failpoint::with_skipped("sst.footer.crc", open).unwrap();
        let error = get(&sst, entries.keys().next().unwrap()).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(Path::new(PATH))));
        assert_eq!(error.offset(), Some(5), "the type in the header of the first block");
    }
}

#[test]
fn indexes_find_every_key_of_columnar_blocks() {
    let hex = || (0..20_000u64).map(|i| format!("{:012x}", i * i * 77).into_bytes());
    let short = |keys: &mut dyn Iterator<Item = Vec<u8>>| -> Entries {
        keys.map(|key| (key, (ValueKind::Put, vec![7; 5]))).collect()
    };
    for entries in [
        apart(eight_bytes(20_000)),
        apart(pages(20_000)),
        apart(hex()),
        short(&mut hex()),
        short(&mut pages(20_000)),
        short(&mut eight_bytes(20_000)),
    ] {
        for (codec, index) in
            [Codec::None, Codec::Lz4].into_iter().flat_map(|codec| INDEXES.map(|i| (codec, i)))
        {
            let (_, env) = machine();
            let options = SstOptions { index, ..options(codec) };
            let summary = build(&env, &entries, options);
            let sst = open(&env, Some(&summary), &FrameCache::new(1 << 20)).unwrap();
            sst.verify(hash).unwrap();
        }
    }
}

#[test]
fn columns_take_a_third_less_than_rows() {
    let len = |columns| {
        let (_, env) = machine();
        let entries = apart((0..20_000u64).map(|i| format!("{i:09}").into_bytes()));
        let summary = build(&env, &entries, SstOptions { columns, ..options(Codec::None) });
        summary.file_len - u64::from(summary.tail_len)
    };
    assert!(3 * len(true) < 2 * len(false));
}
