//! Who owns what: sets of tasks, and things grouped by the tasks that own them.

use std::collections::{BTreeMap, BTreeSet};

/// The tasks that own a unit, a source or a weight, as positions in [`Joint::members`](super::Joint::members).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerSet(BTreeSet<usize>);

impl OwnerSet {
    /// Adds a task.
    pub fn insert(&mut self, task: usize) {
        self.0.insert(task);
    }

    /// How many tasks these are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nobody owns it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether more than one task owns it.
    pub fn is_shared(&self) -> bool {
        self.len() > 1
    }

    /// Whether a task is among them.
    pub fn contains(&self, task: usize) -> bool {
        self.0.contains(&task)
    }

    /// The tasks, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().copied()
    }

    /// How many tasks two sets have in common.
    pub fn in_common(&self, other: &Self) -> usize {
        self.0.intersection(&other.0).count()
    }
}

impl FromIterator<usize> for OwnerSet {
    fn from_iter<I: IntoIterator<Item = usize>>(tasks: I) -> Self {
        Self(tasks.into_iter().collect())
    }
}

/// Groups things by their owners: sets in ascending order, the things of a set in the order they came.
pub fn by_owner_set<T>(items: impl IntoIterator<Item = (OwnerSet, T)>) -> BTreeMap<OwnerSet, Vec<T>> {
    let mut sets: BTreeMap<OwnerSet, Vec<T>> = BTreeMap::new();
    for (owners, item) in items {
        sets.entry(owners).or_default().push(item);
    }
    sets
}
