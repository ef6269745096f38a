//! One hour: Reserved Instances, then EC2 Instance plans, then Compute plans (rule 2).
//!
//! The order of all pairs of a commitment and usage is fixed before anything is covered. So a further commitment never takes
//! anything away: by induction over the pairs, no usage has more left and no commitment less than without it.

use crate::allocator::{Allocator, Bucket, Moment, Pool, counted_size};
use crate::bill::{Bill, Held, Line};
use crate::exact::Exact;
use crate::organization::{HOUR, Interval, PlanKind};
use crate::sharing::Reach;

/// Why a commitment covers something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Basis {
    /// A zonal Reserved Instance: same zone, type, platform and tenancy.
    ZonalReservedInstance,
    /// A regional Reserved Instance for this size only: same type, platform and tenancy.
    RegionalReservedInstance,
    /// A regional Reserved Instance for every size of the family, smallest first.
    SizeFlexibleReservedInstance,
    /// An EC2 Instance Savings Plan: same family and region.
    Ec2InstancePlan,
    /// A Compute Savings Plan.
    ComputePlan,
}

/// One commitment, by its place in the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Payer {
    Reserved(usize),
    Plan(usize),
}

/// What a commitment pays of one usage.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// The usage, by its place among those of the hour.
    pub(crate) line: usize,
    pub(crate) payer: Payer,
    /// Seconds.
    pub(crate) amount: Exact,
    pub(crate) reach: Reach,
    pub(crate) basis: Basis,
}

struct Pass<'b> {
    allocator: &'b Allocator<'b>,
    /// By usage of this hour, which has the order of ids: whose it is, and what is not covered yet.
    accounts: Vec<usize>,
    left: Vec<Exact>,
    reserved: Vec<Held>,
    plans: Vec<Held>,
    shares: Vec<Share>,
}

/// Usage of the hour by something: what runs, and unused capacity reservations, which come after it (rule 12).
type Lists = Vec<[Vec<usize>; 2]>;

impl Allocator<'_> {
    /// Bills an hour, with one usage changed to so many seconds if asked to.
    pub(crate) fn bill(&self, moment: Moment, changed: Option<(usize, i64)>) -> Bill<'_> {
        let amounts = self.amounts(moment, changed);
        let active = |term: &Interval| i128::from(moment.seconds(term));
        let reserved = self.reserved.iter().map(|one| {
            // Rule 8: instance-seconds, counted in sizes where these are flexible.
            let instances = i128::from(one.count) * i128::from(counted_size(one));
            Held::new(Exact::whole(active(&one.term) * instances), active(&one.term))
        });
        let per_second = self.scale / i128::from(HOUR);
        let plans = self.plans.iter().map(|plan| {
            let seconds = active(&plan.term);
            Held::new(plan.commitment.times_whole(seconds * per_second), seconds)
        });
        let mut pass = Pass {
            allocator: self,
            accounts: Vec::with_capacity(amounts.len()),
            left: Vec::with_capacity(amounts.len()),
            reserved: reserved.collect(),
            plans: plans.collect(),
            shares: Vec::new(),
        };
        let mut lines = Vec::with_capacity(amounts.len());
        let mut of_pool: Lists = vec![Default::default(); self.pools.len()];
        let mut of_class: Lists = vec![Default::default(); self.classes.len()];
        for (number, (usage, amount)) in amounts.into_iter().enumerate() {
            let Some(of) = self.usages.get(usage) else {
                continue;
            };
            pass.accounts.push(of.account);
            pass.left.push(amount.clone());
            lines.push(Line { usage, amount });
            if !of.is_eligible {
                continue;
            }
            let part = usize::from(of.is_unused());
            let regional = self.classes.get(of.class).and_then(|class| class.regional_pool);
            for pool in of.zonal_pool.into_iter().chain(regional) {
                push(&mut of_pool, pool, part, number);
            }
            push(&mut of_class, of.class, part, number);
        }
        // Another account's zonal Reserved Instances go before one's own regional ones (rule 7).
        for is_zonal in [true, false] {
            for (pool, lists) in self.pools.iter().zip(&of_pool) {
                if pool.is_zonal == is_zonal {
                    pass.reserve(pool, lists, &lines);
                }
            }
        }
        for buckets in &self.buckets {
            pass.plan(buckets, &of_class);
        }
        let Pass {
            left,
            reserved,
            plans,
            mut shares,
            ..
        } = pass;
        shares.sort_by_key(|share| share.line);
        Bill::new(self, moment, lines, left, shares, reserved, plans)
    }
}

fn push(lists: &mut Lists, of: usize, part: usize, number: usize) {
    if let Some(list) = lists.get_mut(of).and_then(|parts| parts.get_mut(part)) {
        list.push(number);
    }
}

impl Pass<'_> {
    /// Applies the Reserved Instances of a pool: owners first, running before unused, small before large.
    fn reserve(&mut self, pool: &Pool, lists: &[Vec<usize>; 2], lines: &[Line]) {
        let basis = match pool {
            Pool { is_zonal: true, .. } => Basis::ZonalReservedInstance,
            Pool {
                is_flexible: true, ..
            } => Basis::SizeFlexibleReservedInstance,
            _ => Basis::RegionalReservedInstance,
        };
        let allocator = self.allocator;
        let size = |number: usize| {
            let usage = lines
                .get(number)
                .and_then(|line| allocator.usages.get(line.usage));
            let class = usage.and_then(|usage| allocator.classes.get(usage.class));
            class
                .filter(|_| pool.is_flexible)
                .and_then(|class| class.quarters)
                .unwrap_or(1)
        };
        let sized = lists.each_ref().map(|list| {
            let mut sized: Vec<(u64, usize)> = list.iter().map(|number| (size(*number), *number)).collect();
            sized.sort_unstable();
            sized
        });
        for reach in &allocator.reaches {
            for list in &sized {
                for group in list.chunk_by(|a, b| a.0 == b.0) {
                    let mut open: Vec<(u64, usize)> = group.to_vec();
                    for number in &pool.reserved {
                        if open.is_empty() {
                            break;
                        }
                        self.reserve_group(*number, &open, *reach, basis);
                        open.retain(|(_, line)| self.left.get(*line).is_some_and(Exact::is_positive));
                    }
                }
            }
        }
    }

    fn reserve_group(&mut self, number: usize, group: &[(u64, usize)], reach: Reach, basis: Basis) {
        let Some(held) = self.reserved.get_mut(number) else {
            return;
        };
        let Some(owner) = self.allocator.reserved_accounts.get(number) else {
            return;
        };
        for (size, line) in group {
            if !held.left.is_positive() {
                return;
            }
            let (Some(account), Some(left)) = (self.accounts.get(*line), self.left.get_mut(*line)) else {
                continue;
            };
            if !left.is_positive() || self.allocator.reach(*owner, *account) != Some(reach) {
                continue;
            }
            let needed = left.times_whole(i128::from(*size));
            let amount = take(left, &mut held.left, needed, &Exact::whole(i128::from(*size)));
            self.shares.push(Share {
                line: *line,
                payer: Payer::Reserved(number),
                amount,
                reach,
                basis,
            });
        }
    }

    /// Applies the plans of one kind together (rule 9), owners first (rule 11), running before unused (rule 12).
    fn plan(&mut self, buckets: &[Bucket], of_class: &Lists) {
        let allocator = self.allocator;
        // The usage of several prices that go together, in the order of ids.
        let mut merged: Vec<[Option<Vec<usize>>; 2]> = vec![Default::default(); allocator.class_sets.len()];
        for reach in &allocator.reaches {
            for part in [0, 1] {
                for bucket in buckets {
                    let place = merged
                        .get_mut(bucket.classes)
                        .and_then(|parts| parts.get_mut(part));
                    let classes = allocator.class_sets.get(bucket.classes);
                    let (Some(place), Some(classes)) = (place, classes) else {
                        continue;
                    };
                    let list = place.get_or_insert_with(|| merge(classes, part, of_class));
                    self.plan_bucket(bucket, list, *reach);
                }
            }
        }
    }

    /// Covers usage of one price by one plan.
    fn plan_bucket(&mut self, bucket: &Bucket, list: &[usize], reach: Reach) {
        let (Some(held), Some(owner)) = (
            self.plans.get_mut(bucket.plan),
            self.allocator.plan_accounts.get(bucket.plan),
        ) else {
            return;
        };
        let Some(plan) = self.allocator.plans.get(bucket.plan) else {
            return;
        };
        let basis = match plan.kind {
            PlanKind::Compute => Basis::ComputePlan,
            PlanKind::Ec2Instance { .. } => Basis::Ec2InstancePlan,
        };
        // What costs nothing under a plan is covered as long as there is a plan.
        let is_free = bucket.rate.is_zero() && held.seconds > 0;
        for line in list {
            if !held.left.is_positive() && !is_free {
                break;
            }
            let (Some(account), Some(left)) = (self.accounts.get(*line), self.left.get_mut(*line)) else {
                continue;
            };
            if !left.is_positive() || self.allocator.reach(*owner, *account) != Some(reach) {
                continue;
            }
            let needed = left.times(&bucket.rate);
            let amount = take(left, &mut held.left, needed, &bucket.rate);
            self.shares.push(Share {
                line: *line,
                payer: Payer::Plan(bucket.plan),
                amount,
                reach,
                basis,
            });
        }
    }
}

/// The usage of some prices, in the order of ids.
fn merge(classes: &[usize], part: usize, of_class: &Lists) -> Vec<usize> {
    let lists = classes.iter().filter_map(|class| of_class.get(*class)?.get(part));
    let mut all: Vec<usize> = lists.flatten().copied().collect();
    all.sort_unstable();
    all
}

/// Takes what is needed for all that is left of a usage, or all that there is; says how much is covered.
fn take(left: &mut Exact, held: &mut Exact, needed: Exact, rate: &Exact) -> Exact {
    if needed <= *held {
        *held = held.minus(&needed);
        return std::mem::take(left);
    }
    let covered = held.over(rate).unwrap_or_default();
    *left = left.minus(&covered);
    *held = Exact::ZERO;
    covered
}
