//! An engine that does nothing: its operations measure the benchmark's own cost.

use super::{Engine, EngineStats, Result, Scan, Session, Write};

/// An engine that finds nothing.
pub(crate) struct NullEngine;

impl Engine for NullEngine {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Self))
    }

    fn drop_partition(&self, _partition: usize) -> Result<()> {
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn stats(&self) -> Result<EngineStats> {
        Ok(EngineStats::default())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Session for NullEngine {
    fn put(&mut self, _partition: usize, _key: &[u8], _value: &[u8]) -> Result<()> {
        Ok(())
    }

    fn delete(&mut self, _partition: usize, _key: &[u8]) -> Result<()> {
        Ok(())
    }

    fn get(&mut self, _partition: usize, _key: &[u8], _read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(false)
    }

    fn scan(&mut self, _scan: &Scan<'_>, _visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, _writes: &[Write<'_>]) -> Result<()> {
        Ok(())
    }
}
