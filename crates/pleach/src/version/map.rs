//! Partitions by number: a tree of shared nodes over the digits of the number, so that an edit copies one path of it.
//!
//! # Invariants
//! 1. *No empty nodes*: a node without partitions below it is removed, so that memory is proportional to the live
//!    partitions, however many were created.
//!
//! # Cost
//! One load for each digit: two while numbers are below 1024, four below a million. A path has 256 bytes a digit.

use std::sync::Arc;

use super::PartitionState;
use crate::keys::PartitionId;

/// Bits of a digit.
const DIGIT_BITS: u32 = 5;

/// Children of a node.
const FANOUT: usize = 1 << DIGIT_BITS;

#[derive(Clone)]
enum Node {
    Inner([Option<Arc<Node>>; FANOUT]),
    Leaf([Option<Arc<PartitionState>>; FANOUT]),
}

/// The map. Cloning it shares the nodes.
#[derive(Clone, Default)]
pub(super) struct PartitionMap {
    root: Option<Arc<Node>>,
    /// Levels above the leaves: the tree holds numbers of up to `depth + 1` digits.
    depth: u32,
}

impl PartitionMap {
    #[inline]
    pub(super) fn get(&self, id: PartitionId) -> Option<&PartitionState> {
        if !self.has_place(id) {
            return None;
        }
        let (mut node, mut depth) = (self.root.as_deref()?, self.depth);
        loop {
            match node {
                Node::Inner(children) => node = children[digit(id, depth)].as_deref()?,
                Node::Leaf(partitions) => return partitions[digit(id, 0)].as_deref(),
            }
            depth -= 1;
        }
    }

    pub(super) fn set(&mut self, id: PartitionId, state: Option<PartitionState>) {
        let state = state.map(Arc::new);
        if state.is_none() && self.get(id).is_none() {
            return;
        }
        while !self.has_place(id) {
            self.grow();
        }
        let root = self.root.get_or_insert_with(|| Arc::new(Node::empty(self.depth)));
        if !Arc::make_mut(root).set(id, self.depth, state) {
            *self = Self::default();
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PartitionId, &PartitionState)> {
        let mut path: Vec<_> = self.root.as_deref().map(|root| (root, 0_u32, 0_usize)).into_iter().collect();
        std::iter::from_fn(move || {
            loop {
                let (node, number, next) = path.last_mut()?;
                let (at, node) = (*next, *node);
                *next += 1;
                let number = (*number << DIGIT_BITS) | u32::try_from(at).ok()?;
                match node {
                    _ if at == FANOUT => drop(path.pop()),
                    Node::Inner(children) => {
                        path.extend(children[at].as_deref().map(|child| (child, number, 0)));
                    }
                    Node::Leaf(partitions) => {
                        if let Some(state) = &partitions[at] {
                            return Some((PartitionId(number), &**state));
                        }
                    }
                }
            }
        })
    }

    fn has_place(&self, id: PartitionId) -> bool {
        u64::from(id.0) >> ((self.depth + 1) * DIGIT_BITS) == 0
    }

    /// Adds a level above the root, for one digit more.
    fn grow(&mut self) {
        self.depth += 1;
        if let Some(old) = self.root.take() {
            let mut root = Node::empty(self.depth);
            if let Node::Inner(children) = &mut root {
                children[0] = Some(old);
            }
            self.root = Some(Arc::new(root));
        }
    }

    /// Nodes in it.
    #[cfg(test)]
    fn nodes(&self) -> usize {
        fn count(node: &Node) -> usize {
            match node {
                Node::Inner(children) => {
                    1 + children.iter().flatten().map(|child| count(child)).sum::<usize>()
                }
                Node::Leaf(_) => 1,
            }
        }
        self.root.as_deref().map_or(0, count)
    }
}

impl Node {
    fn empty(depth: u32) -> Self {
        if depth == 0 { Self::Leaf([const { None }; FANOUT]) } else { Self::Inner([const { None }; FANOUT]) }
    }

    /// Sets or removes a partition; returns whether the node is not empty.
    fn set(&mut self, id: PartitionId, depth: u32, state: Option<Arc<PartitionState>>) -> bool {
        match self {
            Self::Leaf(partitions) => {
                partitions[digit(id, 0)] = state;
                partitions.iter().any(Option::is_some)
            }
            Self::Inner(children) => {
                let child = &mut children[digit(id, depth)];
                let node = child.get_or_insert_with(|| Arc::new(Self::empty(depth - 1)));
                if !Arc::make_mut(node).set(id, depth - 1, state) {
                    *child = None;
                }
                children.iter().any(Option::is_some)
            }
        }
    }
}

/// Digit `place` of the number, counted from the last.
#[inline]
fn digit(id: PartitionId, place: u32) -> usize {
    (id.0 >> (place * DIGIT_BITS)) as usize % FANOUT
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::limits::PARTITIONS_MAX;

    fn state(name: u32) -> PartitionState {
        PartitionState { name: name.to_string().into(), tree: Arc::default() }
    }

    #[test]
    fn memory_is_that_of_the_live_ones() {
        let mut map = PartitionMap::default();
        for id in 0..100_000 {
            map.set(PartitionId(id), Some(state(id)));
            if id >= 10 {
                map.set(PartitionId(id - 10), None);
            }
        }
        assert_eq!(map.iter().count(), 10);
        assert!(map.nodes() <= 10, "{} nodes", map.nodes());
        (99_990..100_000).for_each(|id| map.set(PartitionId(id), None));
        assert_eq!((map.iter().count(), map.nodes()), (0, 0));
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in vec((0..6_u32, 0..64_u32, any::<bool>()), 0..200)) {
            let (mut map, mut model) = (PartitionMap::default(), BTreeSet::new());
            for (place, digit, is_put) in steps {
                let id = (digit << (place * 5)).min(PARTITIONS_MAX - 1);
                let before = map.clone();
                let had = model.contains(&id);
                map.set(PartitionId(id), is_put.then(|| state(id)));
                if is_put { model.insert(id); } else { model.remove(&id); }
                prop_assert_eq!(before.get(PartitionId(id)).is_some(), had, "a clone does not change");
                prop_assert_eq!(map.get(PartitionId(id)).is_some(), is_put);
                let found: Vec<_> = map.iter().map(|(id, state)| (id.0, state.name.to_string())).collect();
                let expected: Vec<_> = model.iter().map(|id| (*id, id.to_string())).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
