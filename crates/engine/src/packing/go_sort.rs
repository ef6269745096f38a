//! The order in which Go's `sort.Slice` leaves a slice.
//!
//! Karpenter sorts the claims it is building before every pod, by a key with many ties, with a sort that is not
//! stable. Which claim comes first decides where the pod goes, so the ties must fall as they fall in Go. This is the
//! published pattern-defeating quicksort (Orson Peters, arXiv:2106.05123) with the thresholds of Go's library:
//! insertion sort up to 12 elements, median of three from 8 and Tukey's ninther from 50, at most 5 repairs of an
//! almost sorted range of 50 or more, heap sort after log2(n) bad pivots, and a shift-register generator seeded with
//! the length to break patterns.

const INSERTION_UP_TO: usize = 12;
const NINTHER_FROM: usize = 50;
const REPAIR_FROM: usize = 50;
const MAX_REPAIRS: usize = 5;
/// Every comparison of a ninther went against the order.
const ALL_SWAPPED: usize = 12;

/// Sorts `data` as Go's `sort.Slice` does with `less`.
pub(crate) fn sort_slice<T>(data: &mut [T], less: impl FnMut(&T, &T) -> bool) {
    let length = data.len();
    let bad_pivots_allowed = (usize::BITS - length.leading_zeros()) as usize;
    Sorter { data, less }.quicksort(0, length, bad_pivots_allowed);
}

/// What the pivot's neighbourhood says about the order of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hint {
    Increasing,
    Decreasing,
    Unknown,
}

/// Whether the first look at `data` finds it in order. If it does and only one element is out of place, a range of
/// 50 or more is repaired by moving that element and nothing else.
pub(super) fn looks_increasing<T>(data: &mut [T], less: impl FnMut(&T, &T) -> bool) -> bool {
    let length = data.len();
    Sorter { data, less }.choose_pivot(0, length).1 == Hint::Increasing
}

struct Sorter<'a, T, F> {
    data: &'a mut [T],
    less: F,
}

impl<T, F: FnMut(&T, &T) -> bool> Sorter<'_, T, F> {
    fn less(&mut self, i: usize, j: usize) -> bool {
        match (self.data.get(i), self.data.get(j)) {
            (Some(a), Some(b)) => (self.less)(a, b),
            _ => false,
        }
    }

    fn swap(&mut self, i: usize, j: usize) {
        self.data.swap(i, j);
    }

    fn quicksort(&mut self, mut from: usize, mut to: usize, mut bad_pivots_allowed: usize) {
        let mut balanced = true;
        let mut partitioned = true;
        loop {
            let length = to - from;
            if length <= INSERTION_UP_TO {
                return self.insertion_sort(from, to);
            }
            if bad_pivots_allowed == 0 {
                return self.heap_sort(from, to);
            }
            if !balanced {
                self.break_patterns(from, to);
                bad_pivots_allowed -= 1;
            }
            let (mut pivot, mut hint) = self.choose_pivot(from, to);
            if hint == Hint::Decreasing {
                if let Some(range) = self.data.get_mut(from..to) {
                    range.reverse();
                }
                pivot = (to - 1) - (pivot - from);
                hint = Hint::Increasing;
            }
            if balanced && partitioned && hint == Hint::Increasing && self.repair(from, to) {
                return;
            }
            // An element before this range that is not below the pivot means that the pivot is the smallest here.
            if from > 0 && !self.less(from - 1, pivot) {
                from = self.partition_equal(from, to, pivot);
                continue;
            }
            let (middle, was_partitioned) = self.partition(from, to, pivot);
            partitioned = was_partitioned;
            let (left, right) = (middle - from, to - middle);
            // The smaller side is sorted by recursion, so the depth is at most log2(n).
            if left < right {
                balanced = left >= length / 8;
                self.quicksort(from, middle, bad_pivots_allowed);
                from = middle + 1;
            } else {
                balanced = right >= length / 8;
                self.quicksort(middle + 1, to, bad_pivots_allowed);
                to = middle;
            }
        }
    }

    fn insertion_sort(&mut self, from: usize, to: usize) {
        for end in from + 1..to {
            let mut at = end;
            while at > from && self.less(at, at - 1) {
                self.swap(at, at - 1);
                at -= 1;
            }
        }
    }

    fn sift_down(&mut self, mut root: usize, size: usize, first: usize) {
        loop {
            let mut child = 2 * root + 1;
            if child >= size {
                return;
            }
            if child + 1 < size && self.less(first + child, first + child + 1) {
                child += 1;
            }
            if !self.less(first + root, first + child) {
                return;
            }
            self.swap(first + root, first + child);
            root = child;
        }
    }

    fn heap_sort(&mut self, from: usize, to: usize) {
        let size = to - from;
        for root in (0..=(size - 1) / 2).rev() {
            self.sift_down(root, size, from);
        }
        for last in (0..size).rev() {
            self.swap(from, from + last);
            self.sift_down(0, last, from);
        }
    }

    /// Puts what is below the pivot to its left and the rest to its right; says where the pivot went and whether
    /// nothing but the pivot had to move.
    fn partition(&mut self, from: usize, to: usize, pivot: usize) -> (usize, bool) {
        self.swap(from, pivot);
        let (mut low, mut high) = (from + 1, to - 1);
        let mut moved = false;
        loop {
            while low <= high && self.less(low, from) {
                low += 1;
            }
            while low <= high && !self.less(high, from) {
                high -= 1;
            }
            if low > high {
                break;
            }
            self.swap(low, high);
            low += 1;
            high -= 1;
            moved = true;
        }
        self.swap(high, from);
        (high, !moved)
    }

    /// Puts what equals the pivot first; nothing in the range is below it. Says where the rest begins.
    fn partition_equal(&mut self, from: usize, to: usize, pivot: usize) -> usize {
        self.swap(from, pivot);
        let (mut low, mut high) = (from + 1, to - 1);
        loop {
            while low <= high && !self.less(from, low) {
                low += 1;
            }
            while low <= high && self.less(from, high) {
                high -= 1;
            }
            if low > high {
                return low;
            }
            self.swap(low, high);
            low += 1;
            high -= 1;
        }
    }

    /// Moves up to five elements that are out of place; says whether the range is sorted then.
    fn repair(&mut self, from: usize, to: usize) -> bool {
        let mut at = from + 1;
        for _ in 0..MAX_REPAIRS {
            while at < to && !self.less(at, at - 1) {
                at += 1;
            }
            if at == to {
                return true;
            }
            if to - from < REPAIR_FROM {
                return false;
            }
            self.swap(at, at - 1);
            if at - from >= 2 {
                // Go walks to the start of the whole slice here, not of the range; what lies before the range is
                // never above it, so the walk ends in time.
                let mut small = at - 1;
                while small >= 1 && self.less(small, small - 1) {
                    self.swap(small, small - 1);
                    small -= 1;
                }
            }
            if to - at >= 2 {
                let mut large = at + 1;
                while large < to && self.less(large, large - 1) {
                    self.swap(large, large - 1);
                    large += 1;
                }
            }
        }
        false
    }

    fn break_patterns(&mut self, from: usize, to: usize) {
        let length = to - from;
        if length < 8 {
            return;
        }
        let mut random = length as u64;
        let mask = (1u64 << (u64::BITS - (length as u64).leading_zeros())) - 1;
        let middle = from + (length / 4) * 2;
        for at in middle - 1..=middle + 1 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let mut other = usize::try_from(random & mask).unwrap_or(0);
            if other >= length {
                other -= length;
            }
            self.swap(at, from + other);
        }
    }

    fn choose_pivot(&mut self, from: usize, to: usize) -> (usize, Hint) {
        let length = to - from;
        let quarter = length / 4;
        let (mut low, mut middle, mut high) = (from + quarter, from + quarter * 2, from + quarter * 3);
        let mut swaps = 0;
        if length >= 8 {
            if length >= NINTHER_FROM {
                low = self.median(low - 1, low, low + 1, &mut swaps);
                middle = self.median(middle - 1, middle, middle + 1, &mut swaps);
                high = self.median(high - 1, high, high + 1, &mut swaps);
            }
            middle = self.median(low, middle, high, &mut swaps);
        }
        let hint = match swaps {
            0 => Hint::Increasing,
            ALL_SWAPPED => Hint::Decreasing,
            _ => Hint::Unknown,
        };
        (middle, hint)
    }

    fn median(&mut self, a: usize, b: usize, c: usize, swaps: &mut usize) -> usize {
        let (a, b) = self.ordered(a, b, swaps);
        let (b, _) = self.ordered(b, c, swaps);
        self.ordered(a, b, swaps).1
    }

    fn ordered(&mut self, a: usize, b: usize, swaps: &mut usize) -> (usize, usize) {
        if self.less(b, a) {
            *swaps += 1;
            (b, a)
        } else {
            (a, b)
        }
    }
}

#[cfg(test)]
mod tests;
