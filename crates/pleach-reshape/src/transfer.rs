//! Import from and export to plain tables: nobody is locked in.

use pleach::Result;

use crate::handle::Reshaped;
use crate::snapshot::Pair;
use crate::store::Durability;
use crate::write_path::last_of_each_key;

/// Pairs of a transaction: enough that its cost does not count.
const BATCH_PAIRS: usize = 1024;
/// Bytes of a transaction above which it ends.
const BATCH_BYTES: usize = 1 << 20;

impl Reshaped {
    /// Puts all pairs, in transactions of about a thousand, and makes them durable. Returns how many. An import that was
    /// interrupted can be done again.
    ///
    /// ```
    /// # use pleach_reshape::{Options, store::model::ModelStore};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Options::new().open(Box::new(ModelStore::new(false)), dir.path())?;
    /// let plain = [("a", "1"), ("b", "2")];
    /// assert_eq!(store.import(plain.into_iter().map(Ok))?, 2);
    /// # Ok::<(), pleach::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first of `pairs`, and those of [`put`](Self::put). What was put before it stays.
    pub fn import<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        pairs: impl IntoIterator<Item = Result<(K, V)>>,
    ) -> Result<u64> {
        self.import_by(BATCH_PAIRS, pairs)
    }

    /// As [`import`](Self::import), with up to `batch_pairs` pairs in a transaction.
    ///
    /// # Errors
    /// Those of [`import`](Self::import).
    pub fn import_by<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        batch_pairs: usize,
        pairs: impl IntoIterator<Item = Result<(K, V)>>,
    ) -> Result<u64> {
        let ids = usize::try_from(self.inner.layout.sequence_last()).unwrap_or(BATCH_PAIRS);
        let limit = batch_pairs.clamp(1, ids);
        let (mut batch, mut bytes, mut count) = (Vec::new(), 0, 0);
        for pair in pairs {
            let (key, value) = pair?;
            bytes += key.as_ref().len() + value.as_ref().len();
            batch.push((key, value));
            count += 1;
            if batch.len() == limit || bytes >= BATCH_BYTES {
                self.import_batch(&batch)?;
                batch.clear();
                bytes = 0;
            }
        }
        self.import_batch(&batch)?;
        self.sync()?;
        Ok(count)
    }

    fn import_batch<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, batch: &[(K, V)]) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let operations = batch.iter().map(|(key, value)| (key.as_ref(), Some(value.as_ref())));
        let operations = last_of_each_key(operations.collect());
        self.write(&operations, false, Durability::Buffered)?;
        Ok(())
    }

    /// All pairs as of now, in the order of keys: what a plain table is to hold.
    ///
    /// # Errors
    /// Those of [`range`](Self::range).
    pub fn export(&self) -> Result<impl Iterator<Item = Result<Pair>> + '_> {
        self.all()
    }
}
