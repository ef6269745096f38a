//! Pods that were read before, so that a pass over a cluster in which little changed reads little.

use std::sync::{Arc, Weak};

use veneer_api::Pod;

use super::hash::FastMap;
use super::{PodRecord, Pods};

/// The pods of the last run, as objects and as records. All of it may be forgotten.
#[derive(Debug, Default)]
pub struct Readings {
    /// No other object gets the address of one in here, while what an old one held is given back.
    objects: Vec<Weak<Pod>>,
    records: Vec<PodRecord>,
    /// What the records share.
    shared: Pods,
    /// How many pods were read since what nobody shares any more was forgotten.
    read: usize,
}

/// So many pods are read, beside as many as there are, until what nobody shares any more is forgotten: each run of a Job has
/// labels and an owner of its own, for ever.
const READ_BEFORE_FORGETTING: usize = 1_000;

impl Readings {
    /// The records of `pods`. They are taken out, so they are read anew if [`Readings::keep`] does not follow.
    pub fn take<'a>(&mut self, pods: impl Iterator<Item = &'a Arc<Pod>>) -> Pods {
        let known = std::mem::take(&mut self.objects);
        let mut records: Vec<Option<PodRecord>> =
            std::mem::take(&mut self.records).into_iter().map(Some).collect();
        if records.len() != known.len() {
            records.clear();
        }
        let mut positions: Option<FastMap<usize, usize>> = None;
        let mut taken = Pods::default();
        let mut next = 0;
        for pod in pods {
            let is_same = |known: &Weak<Pod>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(pod));
            let is_next = known.get(next).is_some_and(is_same);
            if !is_next {
                let positions = positions.get_or_insert_with(|| {
                    let addresses = known.iter().enumerate();
                    addresses.map(|(at, pod)| (pod.as_ptr().addr(), at)).collect()
                });
                // One that is new took the place of another, most likely.
                next = positions.get(&Arc::as_ptr(pod).addr()).copied().unwrap_or(next);
            }
            let is_known = known.get(next).is_some_and(is_same);
            let record = records.get_mut(next).filter(|_| is_known).and_then(Option::take);
            next += 1;
            taken.push_record(record.unwrap_or_else(|| {
                self.read += 1;
                self.shared.read(pod)
            }));
            self.objects.push(Arc::downgrade(pod));
        }
        if self.read > self.objects.len() + READ_BEFORE_FORGETTING {
            self.read = 0;
            // Those of pods that are gone.
            drop(records);
            self.shared.forget_unused();
        }
        taken
    }

    /// Gives the records back, in the order in which they were taken.
    pub fn keep(&mut self, pods: Pods) {
        self.records = pods.into_records();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.to_owned());
        Arc::new(pod)
    }

    fn names(pods: &Pods) -> Vec<&str> {
        pods.iter()
            .filter_map(|pod| pod.metadata.name.as_deref())
            .collect()
    }

    #[test]
    fn what_gone_pods_had_is_forgotten() {
        let mut readings = Readings::default();
        for run in 0..5 * READ_BEFORE_FORGETTING {
            let mut job = Pod::clone(&pod("job"));
            let labels = [("job-name".to_owned(), run.to_string())];
            job.metadata.labels = Some(labels.into());
            let pods = readings.take([Arc::new(job)].iter());
            readings.keep(pods);
        }
        let kept = readings.shared.shared_labels();
        assert!(kept <= READ_BEFORE_FORGETTING + 2, "{kept} are kept");
    }

    #[test]
    fn pods_that_come_go_and_change_are_found_in_their_new_order() {
        let first: Vec<Arc<Pod>> = ["a", "b", "c", "d"].map(pod).into();
        let mut readings = Readings::default();
        let pods = readings.take(first.iter());
        readings.keep(pods);
        let second = [&first[3], &pod("new"), &first[0], &pod("b"), &first[2]].map(Arc::clone);
        let pods = readings.take(second.iter());
        assert_eq!(names(&pods), ["d", "new", "a", "b", "c"]);
        // Whoever does not give them back has them read again.
        let pods = readings.take(second.iter());
        assert_eq!(names(&pods), ["d", "new", "a", "b", "c"]);
        readings.keep(pods);
        assert_eq!(names(&readings.take(std::iter::empty())), Vec::<&str>::new());
    }
}
