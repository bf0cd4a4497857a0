//! The order of a store's keys: which partition has them, and in which form. A store keeps the order of its first open.

use pleach::{Db, Partition};

use crate::comparator::BYTEWISE;
use crate::key_form::{KeyForm, check_reverse};
use crate::options::OptionsHandle;
use crate::status::{Kind, Result, Status};

/// The partition of the options' comparator, and the form of the keys in it.
pub(crate) fn find_partition(db: &Db, options: &OptionsHandle) -> Result<(Partition, KeyForm)> {
    let comparator = options.custom_comparator();
    let wanted = comparator.map_or_else(|| BYTEWISE.to_owned(), |comparator| comparator.name());
    let form = KeyForm::of_comparator(&wanted);
    if let Some(comparator) = comparator.filter(|_| form == KeyForm::Reversed) {
        check_reverse(comparator)?;
    }
    let names = db.partitions();
    let stored = names.iter().find_map(|name| {
        KeyForm::ALL.iter().find_map(|form| Some((name.strip_prefix(form.partition_prefix())?, *form)))
    });
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
