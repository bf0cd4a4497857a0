//! Point lookups of many keys, whose blocks are read together.
//!
//! Lookups go on until each has its answer or wants a block that is not in the cache; [`Reads`] reads these blocks and
//! takes the lookups further.
//!
//! # Cost
//! Lookups of what is cached wait for memory together, in groups.
//!
//! # Origin
//! `TridentKV`, section 3.4: many reads in flight on one thread; here within one call.

use pleach_env::Result;
use pleach_log::SeqNo;
use pleach_table::SearchStage;
use smallvec::SmallVec;

use super::reads::Reads;
use super::{Lookup, Step, Supplied, prefetch_memtables};
use crate::context::Context;
use crate::keys::PartitionId;
use crate::operations::check_key;
use crate::read_options::ReadOptions;
use crate::state::State;
use crate::value::Value;
use crate::value_reads::{ReadBuffers, cached_value, read_values};
use crate::version::SubTree;

/// Lookups that take their steps together: enough to hide the latency of memory, and few enough to stay in the first level
/// of the processor's cache.
const GROUP_LEN: usize = 16;

type Group<T> = SmallVec<[T; GROUP_LEN]>;

/// The place of a key among the answers, and its lookup.
type Open<'s> = (usize, Lookup<'s>);

/// Looks all keys up in one view; the answers in the order of the keys.
///
/// Requires: as [`get_blocking`](super::get_blocking).
pub(crate) fn get_many<K: AsRef<[u8]>>(
    ctx: &Context,
    state: &State,
    (partition, tree): (PartitionId, &SubTree),
    keys: impl IntoIterator<Item = K>,
    visible: SeqNo,
    options: &ReadOptions,
) -> Result<Vec<Option<Value>>> {
    // First all of them: iterator and keys are the caller's code, which must not run while others wait for our reads.
    let keys: Vec<K> = keys.into_iter().collect();
    let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
    keys.iter().try_for_each(|key| check_key(key))?;
    let mut reads = Reads::new(ctx, options, keys.len());
    for group in keys.chunks(GROUP_LEN) {
        prefetch_memtables(state, partition, group.iter().copied());
        let mut lookups = Group::new();
        for key in group {
            let mut lookup = Lookup::new(partition, key, visible);
            ctx.value_cache.prefetch(lookup.hash);
            let answer = lookup.start(ctx, state, tree, visible).err();
            if answer.is_none() {
                lookups.push((reads.answers.len(), lookup));
            }
            reads.answers.push(answer.flatten());
        }
        search_cached(ctx, options, &mut lookups, &mut reads.answers);
        for (place, lookup) in &lookups {
            reads.add(*place, lookup);
        }
    }
    let mut answers = reads.finish()?;
    if answers.iter().flatten().any(Value::is_pointer) {
        let found = keys.iter().copied().zip(&mut answers);
        let found = found.filter_map(|(key, answer)| Some((key, answer.as_mut()?)));
        let buffers = &mut ReadBuffers::default();
        read_values(ctx, buffers, &state.version.values, partition, found, options.fill_cache)?;
    }
    Ok(answers)
}

/// Takes the lookups of a group as far as they come without waiting. Each step is made for all of them before the next one, so
/// that the memory they touch arrives together. Keeps the lookups whose next block is not in the cache.
fn search_cached(
    ctx: &Context,
    options: &ReadOptions,
    lookups: &mut Group<Open<'_>>,
    answers: &mut [Option<Value>],
) {
    for stage in [SearchStage::Table, SearchStage::Keys] {
        lookups.iter_mut().for_each(|(_, lookup)| lookup.prefetch_index(stage));
    }
    let steps: Group<_> = lookups.iter_mut().map(|(_, lookup)| lookup.step()).collect();
    for step in &steps {
        if let Step::NeedBlock(sst, block) = step {
            sst.prefetch_cached(*block);
        }
    }
    for (step, (_, lookup)) in steps.iter().zip(&*lookups) {
        if ctx.value_cache.prefetch_value(lookup.hash)
            && let Step::NeedBlock(sst, block) = step
        {
            sst.prefetch_pointers(*block);
        }
    }
    let mut blocks: Group<_> = SmallVec::new();
    for (step, (_, lookup)) in steps.iter().zip(&*lookups) {
        blocks.push(match step {
            Step::Done(_) => None,
            Step::NeedBlock(sst, block) => {
                sst.cached_block(*block).inspect(|block| lookup.prefetch_in(block))
            }
        });
    }
    let mut found = steps.into_iter().zip(blocks);
    lookups.retain(|(place, lookup)| {
        let answer = match found.next().expect("one for each lookup") {
            (Step::Done(answer), _) => Supplied::Found(answer),
            (_, None) => Supplied::NotFound,
            (_, Some(block)) => match lookup.supply(block) {
                Supplied::NotFound => {
                    ctx.note_wasted_probe();
                    lookup.cached_steps(ctx)
                }
                answer @ Supplied::Found(_) => answer,
            },
        };
        match answer {
            Supplied::Found(Some(value)) if value.is_pointer() => {
                let found = cached_value(ctx, lookup.hash, &value, options.fill_cache);
                answers[*place] = found.or(Some(value));
            }
            Supplied::Found(answer) => answers[*place] = answer,
            Supplied::NotFound => return true,
        }
        false
    });
}
