//! The order of a store's keys: which partition has them, and in which form. A store keeps the order of its first open.

use std::path::Path;

use pleach::{Db, Durability, Partition, RepairReport};

use crate::comparator::BYTEWISE;
use crate::key_form::{KeyForm, check_reverse};
use crate::options::OptionsHandle;
use crate::status::{Kind, Result, Status};

/// The partition of the options' comparator, and the form of the keys in it.
pub(crate) fn find_partition(db: &Db, options: &OptionsHandle) -> Result<(Partition, KeyForm)> {
    let comparator = options.custom_comparator()?;
    let wanted = comparator.as_ref().map_or_else(|| BYTEWISE.to_owned(), |comparator| comparator.name());
    let form = KeyForm::of_comparator(&wanted);
    if let Some(comparator) = comparator.filter(|_| form == KeyForm::Reversed) {
        check_reverse(&comparator)?;
    }
    let names = db.partitions();
    let stored = stored_order(&names);
    // A store that is new, or whose creation was interrupted, has no order yet: no partition of a comparator, and no write.
    let is_unused = stored.is_none() && db.last_sequence_number() == 0;
    let (stored, stored_form) = stored.unwrap_or((BYTEWISE, KeyForm::Plain));
    let invalid = |message| Err(Status::new(Kind::InvalidArgument, message));
    if stored != wanted && !is_unused {
        return invalid(format!("{wanted} does not match existing comparator: {stored}"));
    }
    if stored_form != form && !is_unused {
        return invalid(format!(
            "the store of the comparator {wanted} has its keys in another form; copy it entry by entry"
        ));
    }
    if wanted == BYTEWISE {
        let partition = db.default_partition();
        if is_unused {
            // A write records that this is the order of the store. A delete of a missing key changes no answer.
            partition.delete(b"")?;
        }
        return Ok((partition, form));
    }
    Ok((db.partition(&format!("{}{wanted}", form.partition_prefix()))?, form))
}

/// The comparator's name and the form of the keys, if the store is not in the order of bytes.
fn stored_order(partitions: &[String]) -> Option<(&str, KeyForm)> {
    partitions.iter().find_map(|name| {
        KeyForm::ALL.iter().find_map(|form| Some((name.strip_prefix(form.partition_prefix())?, *form)))
    })
}

/// Gives the entries of a repaired store their order back. The manifest has the comparator's name; if it was lost, they are in a
/// partition with a made-up name, where the program would not find them. Requires: the store is closed.
///
/// # Errors
/// `InvalidArgument` if the options have no comparator, or the entries are in several such partitions.
pub(crate) fn restore_order(options: &OptionsHandle, path: &Path, report: &RepairReport) -> Result<()> {
    if report.recovered_names.is_empty() {
        return Ok(());
    }
    let db = options.translate().create_if_missing(false).error_if_exists(false).open(path)?;
    let names = db.partitions();
    let is_known = stored_order(&names).is_some() || db.default_partition().iter().next().is_some();
    if is_known {
        return Ok(db.close()?);
    }
    let [recovered] = &report.recovered_names[..] else {
        let message = "the manifest is lost, and the entries are of several partitions; use `pleach repair`";
        return Err(Status::new(Kind::InvalidArgument, message));
    };
    let Some(comparator) = options.custom_comparator()? else {
        let message =
            "the manifest is lost, and with it the comparator's name; repair with the store's comparator";
        return Err(Status::new(Kind::InvalidArgument, message));
    };
    let name = comparator.name();
    let to = db.partition(&format!("{}{name}", KeyForm::of_comparator(&name).partition_prefix()))?;
    let from = db.partition(recovered)?;
    let mut batch = db.batch();
    for entry in &from {
        let (key, value) = entry?;
        batch.put(&to, key, value);
        if batch.bytes() >= BATCH_BYTES {
            batch.commit(Durability::Buffered)?;
            batch = db.batch();
        }
    }
    batch.commit(Durability::Buffered)?;
    db.drop_partition(from)?;
    db.flush()?;
    Ok(db.close()?)
}

/// Bytes of a batch of [`restore_order`] (arbitrary).
const BATCH_BYTES: usize = 1 << 20;
