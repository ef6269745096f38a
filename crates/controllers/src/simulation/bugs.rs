//! Bugs that are put into the drivers on purpose, to see that the simulation notices them.
//!
//! The drivers ask [`super::seeded`], which only tests have; in the program there is nothing to ask.

use std::cell::Cell;

/// A mistake of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A list adds to what is known and takes nothing away.
    ListKeepsOld,
    /// The deletion of an object that fits no type is not heard.
    MissesUnreadableDeletes,
    /// The first error ends a watch.
    WatchEndsOnError,
    /// Events between a list and its watch are lost.
    WatchSkipsEvents,
    /// What the watch brings late undoes our own write.
    LateWatchWins,
    /// A lower version is never believed, not even in a list.
    VersionsOnlyGrow,
    /// After a conflict the object is not read again.
    ConflictNotRead,
    /// What failed is tried again at once.
    NoBackOff,
    /// A launch that failed counts as under way for good.
    LaunchNeverExpires,
    /// A lease that another holds is renewed all the same.
    StealsLease,
    /// The lease counts from the answer, not from the request.
    LeaseCountsFromAnswer,
    /// Pods that the watch has not brought are not asked for before a node goes.
    TrustsPodWatch,
    /// An instance that shares a request with one that cannot be ended stays.
    BatchBlocks,
    /// What only shapes spares is waited for, also where the role does not allow to list it.
    NeedsEveryRight,
}

impl Bug {
    pub(crate) const ALL: [Self; 14] = [
        Self::ListKeepsOld,
        Self::MissesUnreadableDeletes,
        Self::WatchEndsOnError,
        Self::WatchSkipsEvents,
        Self::LateWatchWins,
        Self::VersionsOnlyGrow,
        Self::ConflictNotRead,
        Self::NoBackOff,
        Self::LaunchNeverExpires,
        Self::StealsLease,
        Self::LeaseCountsFromAnswer,
        Self::TrustsPodWatch,
        Self::BatchBlocks,
        Self::NeedsEveryRight,
    ];
}

thread_local! {
    /// A history runs on one thread.
    static BUG: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Whether a bug is put in.
pub(crate) fn has(bug: Bug) -> bool {
    BUG.get() == Some(bug)
}

pub(super) fn put_in(bug: Option<Bug>) {
    BUG.set(bug);
}
