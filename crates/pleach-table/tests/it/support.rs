//! Making SSTs in a simulated machine.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use pleach_coding::put_varint;
use pleach_env::{Env, FileId, Result, SimEnv};
use pleach_table::{
    Codec, FrameCache, IndexChoice, Sst, SstBuilder, SstOptions, SstSummary, ValueKind, key_hash,
};

pub(crate) const FILE: FileId = FileId(42);
pub(crate) const SEED: u32 = 7;
pub(crate) const PATH: &str = "/db/000042.sst";

pub(crate) type Entries = BTreeMap<Vec<u8>, (ValueKind, Vec<u8>)>;

pub(crate) fn hash(key: &[u8]) -> u64 {
    key_hash(SEED, key)
}

/// A machine with the directory the SSTs live in.
pub(crate) fn machine() -> (Arc<SimEnv>, Arc<dyn Env>) {
    let sim = SimEnv::new(1);
    let env: Arc<dyn Env> = sim.clone();
    env.create_dir_all(Path::new("/db")).unwrap();
    (sim, env)
}

pub(crate) fn options(codec: Codec) -> SstOptions {
    SstOptions { codec, ..SstOptions::default() }
}

/// Options for a learned index, whatever its size.
pub(crate) fn learned() -> SstOptions {
    SstOptions { index: IndexChoice::Learned, ..SstOptions::default() }
}

pub(crate) fn build(env: &Arc<dyn Env>, entries: &Entries, options: SstOptions) -> SstSummary {
    let mut builder = SstBuilder::create(env, Path::new(PATH), FILE, options).unwrap();
    for (key, (kind, value)) in entries {
        builder.add(key, *kind, value, hash(key)).unwrap();
    }
    assert_eq!(builder.entries(), entries.len() as u64);
    let estimate = builder.estimated_len();
    let summary = builder.finish().unwrap();
    assert!(summary.file_len <= estimate + 16_384, "{} estimated, {} long", estimate, summary.file_len);
    summary
}

pub(crate) fn open(
    env: &Arc<dyn Env>,
    summary: Option<&SstSummary>,
    cache: &Arc<FrameCache>,
) -> Result<Arc<Sst>> {
    Sst::open(env, Path::new(PATH), FILE, summary, cache.clone(), false).map(Arc::new)
}

/// `count` numbered keys with values of `value_len` bytes that tell the key.
pub(crate) fn numbered(count: usize, value_len: usize) -> Entries {
    (0..count)
        .map(|i| {
            let value: Vec<u8> = i.to_string().bytes().cycle().take(value_len).collect();
            (format!("key{:08}", i * 3).into_bytes(), (ValueKind::Put, value))
        })
        .collect()
}

/// Entries without a value of their own: pointers to values of different sizes that lie in no order, and some tombstones.
pub(crate) fn apart(keys: impl IntoIterator<Item = Vec<u8>>) -> Entries {
    let mut rng = fastrand::Rng::with_seed(3);
    let mut entry = || {
        if rng.u8(..20) == 0 {
            return (ValueKind::Tombstone, Vec::new());
        }
        let mut bytes = Vec::new();
        for number in [rng.u64(300..303), rng.u64(..1 << 26), rng.u64(500..2000)] {
            put_varint(&mut bytes, number);
        }
        (ValueKind::ValuePointer, bytes)
    };
    keys.into_iter().map(|key| (key, entry())).collect()
}

/// Keys that a columnar block has as numbers.
#[expect(clippy::big_endian_bytes, reason = "byte order is key order")]
pub(crate) fn eight_bytes(count: u64) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|i| (i * i * 1000).to_be_bytes().to_vec())
}

/// Keys of different lengths.
pub(crate) fn pages(count: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|i| format!("https://example.org/{}/{i}", "page/".repeat(i * 7 % 5)).into_bytes())
}

/// Format version in the footer of an SST.
pub(crate) fn version_of(bytes: &[u8]) -> u8 {
    bytes[bytes.len() - 60]
}

pub(crate) fn get(sst: &Sst, key: &[u8]) -> Result<Option<(ValueKind, Vec<u8>)>> {
    Ok(sst.get(key, hash(key))?.map(|(kind, block, value)| (kind, block[value].to_vec())))
}
