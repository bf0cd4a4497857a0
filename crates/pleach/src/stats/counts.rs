//! The statistics that are numbers, by name: for the command line and for other languages.

use super::Stats;

impl Stats {
    /// The name and the value of each field that is a count or a number of bytes, but for those of the log's torn tail
    /// ([`Stats::log_was_torn`]). The names of numbers of bytes end with `_bytes`. The order is that of reports.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = pleach::Db::open(dir.path())?;
    /// let stats = db.stats();
    /// let partitions = stats.counts().find(|(name, _)| *name == "partitions");
    /// assert_eq!(partitions, Some(("partitions", 1)));
    /// # Ok::<(), pleach::Error>(())
    /// ```
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("partitions", self.partitions),
            ("ssts", self.ssts),
            ("ssts_learned", self.ssts_learned),
            ("sst_bytes", self.sst_bytes),
            ("sst_entries", self.sst_entries),
            ("data_blocks", self.data_blocks),
            ("value_files", self.value_files),
            ("value_file_bytes", self.value_file_bytes),
            ("value_files_damaged", self.value_files_damaged),
            ("values", self.values),
            ("value_bytes", self.value_bytes),
            ("value_table_bytes", self.value_table_bytes),
            ("value_copied_bytes", self.value_copied_bytes),
            ("value_moved_bytes", self.value_moved_bytes),
            ("value_moves", self.value_moves),
            ("value_converted_bytes", self.value_converted_bytes),
            ("values_converted", self.values_converted),
            ("sst_garbage", self.sst_garbage),
            ("pinned_bytes", self.pinned_bytes),
            ("runs", self.runs),
            ("runs_max", self.runs_max),
            ("last_sequence_number", self.last_sequence_number),
            ("memtables", self.memtables),
            ("memtable_bytes", self.memtable_bytes),
            ("pinned_memtable_bytes", self.pinned_memtable_bytes),
            ("open_files", self.open_files),
            ("open_files_max", self.open_files_max),
            ("memory_bytes", self.memory_bytes),
            ("cache_bytes", self.cache_bytes),
            ("cache_capacity_bytes", self.cache_capacity_bytes),
            ("cache_locked_bytes", self.cache_locked_bytes),
            ("value_cache_bytes", self.value_cache_bytes),
            ("index_filter_bytes", self.index_filter_bytes),
            ("index_bytes", self.index_bytes),
            ("residual_bytes", self.residual_bytes),
            ("index_error_max", self.index_error_max),
            ("filter_bytes", self.filter_bytes),
            ("filters_missing", self.filters_missing),
            ("wasted_probes", self.wasted_probes),
            ("lookup_reads", self.lookup_reads),
            ("wasted_reads", self.wasted_reads),
            ("value_reads", self.value_reads),
            ("operations", self.operations),
            ("log_bytes", self.log_bytes),
            ("flushes", self.flushes),
            ("flush_bytes", self.flush_bytes),
            ("compactions", self.compactions),
            ("partial_compactions", self.partial_compactions),
            ("range_compactions", self.range_compactions),
            ("compactions_running", self.compactions_running),
            ("compaction_read_bytes", self.compaction_read_bytes),
            ("compaction_written_bytes", self.compaction_written_bytes),
            ("moved_bytes", self.moved_bytes),
            ("tombstones_passed", self.tombstones_passed),
            ("index_ties", self.index_ties),
            ("index_larger", self.index_larger),
            ("index_one_block", self.index_one_block),
            ("index_many_writers", self.index_many_writers),
            ("index_timed_out", self.index_timed_out),
            ("index_inexact", self.index_inexact),
            ("trained_while_writing", self.trained_while_writing),
            ("trained_while_reading", self.trained_while_reading),
            ("training_waits", self.training_waits),
            ("removed_files", self.removed_files),
        ]
        .into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_name() {
        // By the fields that `Debug` prints.
        let text = format!("{:#?}", Stats::default());
        let fields = text.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(": "));
        let others = ["log_dropped_records", "log_dropped_bytes"];
        let mut numbers: Vec<_> = fields
            .filter(|(name, value)| {
                value.trim_end_matches(',').parse::<u64>().is_ok() && !others.contains(name)
            })
            .map(|(name, _)| name)
            .collect();
        let mut names: Vec<_> = Stats::default().counts().map(|(name, _)| name).collect();
        numbers.sort_unstable();
        names.sort_unstable();
        assert_eq!(names, numbers);
    }
}
