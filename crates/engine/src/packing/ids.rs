//! Typed positions, so that a claim is never looked up with a pool's number.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// A position in one kind of table.
pub(super) trait Id: Copy {
    fn new(position: usize) -> Self;
    fn index(self) -> usize;
}

macro_rules! ids {
    ($($(#[$meta:meta])* $name:ident),+ $(,)?) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub(super) struct $name(u32);

            impl Id for $name {
                fn new(position: usize) -> Self {
                    // More than 2^32 of anything here cannot be held in memory; saturating keeps this total.
                    Self(u32::try_from(position).unwrap_or(u32::MAX))
                }

                fn index(self) -> usize {
                    self.0 as usize
                }
            }
        )+
    };
}

ids! {
    /// A set of requirements.
    StateId,
    /// What a pod demands apart from its size.
    ShapeId,
    /// A namespace and labels that rules look at.
    SubjectId,
    /// What a pod requests.
    SizeId,
    /// A NodePool that can launch.
    PoolId,
    /// A claim being built.
    ClaimId,
    /// An existing node or claim in flight.
    NodeId,
    /// A list of taints.
    TaintsId,
    /// A label by which pods are spread or kept together.
    KeyId,
    /// A rule that spreads pods or keeps them together or apart.
    GroupId,
}

/// A vector whose positions have a type of their own.
#[derive(Clone, Debug)]
pub(super) struct Table<I, T> {
    items: Vec<T>,
    id: PhantomData<I>,
}

impl<I, T> Default for Table<I, T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            id: PhantomData,
        }
    }
}

impl<I: Id, T> Table<I, T> {
    pub(super) fn push(&mut self, item: T) -> I {
        self.items.push(item);
        I::new(self.items.len() - 1)
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.items.len()).map(I::new)
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.items.iter()
    }
}

impl<I, T> FromIterator<T> for Table<I, T> {
    fn from_iter<A: IntoIterator<Item = T>>(items: A) -> Self {
        Self {
            items: items.into_iter().collect(),
            id: PhantomData,
        }
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "an id is only made by pushing to the table it indexes"
)]
impl<I: Id, T> Index<I> for Table<I, T> {
    type Output = T;

    fn index(&self, id: I) -> &T {
        &self.items[id.index()]
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "an id is only made by pushing to the table it indexes"
)]
impl<I: Id, T> IndexMut<I> for Table<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.items[id.index()]
    }
}
