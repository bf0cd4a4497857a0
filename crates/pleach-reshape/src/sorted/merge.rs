//! The second pass of a sort: runs are merged, and give rows by key and id to who asks in the order of keys.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Range;
use std::path::Path;

use pleach::Result;
use pleach::env::Env;
use pleach_coding::head;

use super::file::TemporaryFile;
use super::{HEADER_LEN, READ_BYTES_MIN, Run, id_of, row_len};
use crate::ids::Id;
use crate::map::Key;
use crate::row::Row;

/// Bytes of a run that are punched out of the file at a time: few calls, and little space that is of no use.
const PUNCH_BYTES: u64 = 1 << 20;
/// The file system's blocks, of which a punch frees whole ones.
const BLOCK: u64 = 4096;
/// Least runs that are merged at a time.
const FAN_IN_MIN: usize = 2;
/// Bytes that a merge writes at a time.
const WRITE_BYTES: usize = 256 << 10;

/// The rows of the generation before, to be asked for in the order of keys.
pub(crate) struct SortedRows {
    file: Option<TemporaryFile>,
    readers: Vec<Reader>,
    heads: BinaryHeap<Reverse<Head>>,
}

/// The row at which a reader stands.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    /// The first bytes of the key, to compare these first.
    first: u64,
    key: Key,
    id: Id,
    reader: usize,
}

impl SortedRows {
    /// Of records that fit into memory.
    pub(super) fn of_memory(records: Vec<u8>) -> Result<Self> {
        Self::new(None, vec![Reader::of_memory(records)])
    }

    /// Of runs in a file, read in so much memory. If they are too many, they are merged to fewer first.
    pub(super) fn of_runs(
        (env, dir): (&dyn Env, &Path),
        mut file: TemporaryFile,
        mut runs: Vec<Run>,
        memory: usize,
    ) -> Result<Self> {
        let fan_in = (memory / READ_BYTES_MIN).max(FAN_IN_MIN);
        while runs.len() > fan_in {
            let mut merged = TemporaryFile::create(env, dir)?;
            let mut longer = Vec::with_capacity(runs.len().div_ceil(fan_in));
            for group in runs.chunks(fan_in) {
                let mut rows = Self::new(Some(file), readers_of(group, memory))?;
                longer.push(rows.write(&mut merged)?);
                file = rows.file.take().expect("it was given");
            }
            (file, runs) = (merged, longer);
        }
        Self::new(Some(file), readers_of(&runs, memory))
    }

    fn new(file: Option<TemporaryFile>, readers: Vec<Reader>) -> Result<Self> {
        let mut rows = Self { file, readers, heads: BinaryHeap::new() };
        for (number, reader) in rows.readers.iter_mut().enumerate() {
            rows.heads.extend(reader.advance(rows.file.as_ref(), number)?.map(Reverse));
        }
        Ok(rows)
    }

    /// The value of a row, if it is here. Requires: the key is not below that of the call before.
    pub(crate) fn value(&mut self, key: &[u8], id: Id) -> Result<Option<&[u8]>> {
        let wanted = (head(key), key);
        while let Some(Reverse(top)) = self.heads.peek() {
            let order = (top.first, &top.key[..]).cmp(&wanted);
            match order.then(top.id.cmp(&id)) {
                Ordering::Less => self.step()?,
                Ordering::Equal => {
                    let reader = &self.readers[top.reader];
                    return Ok(Some(&reader.buffer[reader.value.clone()]));
                }
                Ordering::Greater => break,
            }
        }
        Ok(None)
    }

    /// Goes to the next row.
    fn step(&mut self) -> Result<()> {
        let Some(mut top) = self.heads.peek_mut() else { return Ok(()) };
        let number = top.0.reader;
        match self.readers[number].advance(self.file.as_ref(), number)? {
            Some(next) => *top = Reverse(next),
            None => {
                PeekMut::pop(top);
            }
        }
        Ok(())
    }

    /// Writes all rows as one run.
    fn write(&mut self, file: &mut TemporaryFile) -> Result<Run> {
        let start = file.end();
        let mut out = Vec::with_capacity(WRITE_BYTES);
        while let Some(Reverse(top)) = self.heads.peek() {
            let reader = &self.readers[top.reader];
            out.extend_from_slice(&reader.buffer[reader.record.clone()]);
            if out.len() >= WRITE_BYTES {
                file.append(&out)?;
                out.clear();
            }
            self.step()?;
        }
        file.append(&out)?;
        Ok(Run { start, end: file.end() })
    }
}

fn readers_of(runs: &[Run], memory: usize) -> Vec<Reader> {
    runs.iter().map(|run| Reader::of_run(*run, memory / runs.len())).collect()
}

/// A run, or what is in memory of it.
struct Reader {
    buffer: Vec<u8>,
    /// Bytes that are read at a time.
    read_bytes: usize,
    /// Where the present record is in the buffer, with the value that it ends with.
    record: Range<usize>,
    value: Range<usize>,
    /// What of the file is not in the buffer yet.
    rest: Range<u64>,
    /// Up to here the file was punched, or belongs to another run.
    punched: u64,
}

impl Reader {
    fn of_memory(records: Vec<u8>) -> Self {
        Self { buffer: records, read_bytes: 0, record: 0..0, value: 0..0, rest: 0..0, punched: 0 }
    }

    fn of_run(run: Run, read_bytes: usize) -> Self {
        let (rest, punched) = (run.start..run.end, run.start.next_multiple_of(BLOCK));
        Self { buffer: Vec::new(), read_bytes, record: 0..0, value: 0..0, rest, punched }
    }

    /// Goes to the next record.
    fn advance(&mut self, file: Option<&TemporaryFile>, number: usize) -> Result<Option<Head>> {
        self.record = self.record.end..self.record.end;
        if !self.has(HEADER_LEN, file)? {
            self.buffer = Vec::new();
            self.record = 0..0;
            return Ok(None);
        }
        let (id, len) = (id_of(self.ahead()), HEADER_LEN + row_len(self.ahead()));
        if !self.has(len, file)? {
            return Err(self.damaged(file, "a row does not end"));
        }
        let row = &self.ahead()[HEADER_LEN..len];
        let Ok(Row { key, value: Some(value), .. }) = Row::parse(row) else {
            return Err(self.damaged(file, "a row is not as it was written"));
        };
        let found = Head { first: head(key), key: Key::from_slice(key), id, reader: number };
        let value_len = value.len();
        self.record.end = self.record.start + len;
        self.value = self.record.end - value_len..self.record.end;
        Ok(Some(found))
    }

    /// The bytes in memory from the present record on.
    fn ahead(&self) -> &[u8] {
        &self.buffer[self.record.start..]
    }

    /// Whether so many bytes are ahead, of which the file gives the missing ones.
    fn has(&mut self, len: usize, file: Option<&TemporaryFile>) -> Result<bool> {
        if self.ahead().len() >= len {
            return Ok(true);
        }
        let Some(file) = file else { return Ok(false) };
        self.buffer.drain(..self.record.start);
        self.record = 0..0;
        let ahead = self.buffer.len();
        self.punch(file, self.rest.start - ahead as u64);
        let wanted = self.read_bytes.max(len) - ahead;
        let count = wanted.min(usize::try_from(self.rest.end - self.rest.start).unwrap_or(wanted));
        self.buffer.resize(ahead + count, 0);
        file.read(&mut self.buffer[ahead..], self.rest.start)?;
        self.rest.start += count as u64;
        file.prefetch(self.rest.start, (self.read_bytes as u64).min(self.rest.end - self.rest.start));
        Ok(self.buffer.len() >= len)
    }

    /// Gives back the space of what was read, up to an offset, if that is enough.
    fn punch(&mut self, file: &TemporaryFile, end: u64) {
        let end = end / BLOCK * BLOCK;
        if end >= self.punched + PUNCH_BYTES {
            file.punch(self.punched, end - self.punched);
            self.punched = end;
        }
    }

    #[cold]
    fn damaged(&self, file: Option<&TemporaryFile>, what: &str) -> pleach::Error {
        let offset = self.rest.start - self.ahead().len() as u64;
        match file {
            Some(file) => file.damaged(offset, what),
            None => pleach::Error::new(pleach::ErrorKind::Corruption, what),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use pleach::env::SimEnv;

    use super::super::collect::Collected;
    use super::*;

    type Rows = BTreeMap<(Vec<u8>, u64), Vec<u8>>;

    fn write_run(rows: &Rows, file: &mut TemporaryFile) -> Run {
        let mut collected = Collected::default();
        // In the order of ids.
        let mut rows: Vec<_> = rows.iter().collect();
        rows.sort_by_key(|((_, id), _)| *id);
        for ((key, id), value) in rows {
            let mut bytes = Vec::new();
            Row { version: 7, key, value: Some(value) }.encode(&mut bytes);
            collected.add(Id(*id), &bytes, key);
        }
        collected.write(file).unwrap()
    }

    /// Runs of random rows, several of them of one key, some of them large.
    fn runs(env: &Arc<SimEnv>, rng: &mut fastrand::Rng) -> (TemporaryFile, Vec<Run>, Rows) {
        let mut file = TemporaryFile::create(&**env, Path::new("/")).unwrap();
        let (mut runs, mut all, mut ids) = (Vec::new(), Rows::new(), 0);
        for _ in 0..rng.usize(1..40) {
            let mut rows = Rows::new();
            for _ in 0..rng.usize(1..60) {
                ids += 1;
                let key = vec![b'k'; rng.usize(..30)].into_iter().chain([rng.u8(..)]).collect();
                let len = if rng.u8(..50) == 0 { rng.usize(..40_000) } else { rng.usize(..20) };
                rows.insert((key, ids), vec![rng.u8(..); len]);
            }
            runs.push(write_run(&rows, &mut file));
            all.append(&mut rows);
        }
        (file, runs, all)
    }

    #[test]
    fn merged_rows_are_found_by_key_and_id() {
        for seed in 0..30 {
            let (env, mut rng) = (SimEnv::new(seed), fastrand::Rng::with_seed(seed));
            let (file, runs, all) = runs(&env, &mut rng);
            // As many runs at a time as it has room for, or two.
            let memory = [0, READ_BYTES_MIN * 5, 1 << 20][rng.usize(..3)];
            let mut sorted = SortedRows::of_runs((&*env, Path::new("/")), file, runs, memory).unwrap();
            let mut last = None;
            for ((key, id), value) in &all {
                // The map names one row of a key.
                if last == Some(key) || rng.u8(..8) == 0 {
                    continue;
                }
                last = Some(key);
                if rng.u8(..8) == 0 {
                    assert_eq!(sorted.value(key, Id(u64::MAX)).unwrap(), None);
                } else {
                    assert_eq!(sorted.value(key, Id(*id)).unwrap(), Some(&value[..]), "seed {seed}");
                }
            }
            drop(sorted);
            assert_eq!((env.used_space(), env.file_names(Path::new("/"))), (0, vec![]));
        }
    }

    #[test]
    fn a_damaged_file_is_an_error_and_no_wrong_value() {
        let env = SimEnv::new(1);
        let mut file = TemporaryFile::create(&*env, Path::new("/")).unwrap();
        let rows = Rows::from([((b"a".to_vec(), 1), b"one".to_vec()), ((b"b".to_vec(), 2), b"two".to_vec())]);
        let run = write_run(&rows, &mut file);
        let mut bytes = vec![0; usize::try_from(run.end).unwrap()];
        file.read(&mut bytes, 0).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            let mut file = TemporaryFile::create(&*env, Path::new("/")).unwrap();
            file.append(&damaged).unwrap();
            let read = SortedRows::of_runs((&*env, Path::new("/")), file, vec![run], 1 << 20).and_then(
                |mut sorted| {
                    for ((key, id), value) in &rows {
                        // Of a changed id it is not found.
                        let found = sorted.value(key, Id(*id))?;
                        assert!(found.is_none_or(|found| found == &value[..]), "byte {at}");
                    }
                    Ok(())
                },
            );
            let is_id = at % (bytes.len() / 2) < 8;
            assert_eq!(read.is_ok(), is_id, "byte {at}: {read:?}");
        }
    }
}
