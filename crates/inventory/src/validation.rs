//! Whether an account can be reached, and how long it took to find out.

/// The upper bounds of the histogram of how long it took, in seconds.
pub const VALIDATION_BUCKETS: [f64; 7] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// What came of trying to reach an account.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Validation {
    /// The last error; none if it was reached last time.
    pub error: Option<String>,
    /// When it was last reached.
    pub last_success: Option<i64>,
    /// How many attempts took at most as long as each of [`VALIDATION_BUCKETS`].
    pub buckets: [u64; VALIDATION_BUCKETS.len()],
    /// How many attempts there were.
    pub count: u64,
    /// How long all of them took, in seconds.
    pub sum: f64,
}

impl Validation {
    pub(crate) fn observe(&mut self, result: Result<(), String>, at: i64, seconds: f64) {
        match result {
            Ok(()) => {
                self.error = None;
                self.last_success = Some(at);
            }
            Err(error) => self.error = Some(error),
        }
        for (count, bound) in self.buckets.iter_mut().zip(VALIDATION_BUCKETS) {
            *count += u64::from(seconds <= bound);
        }
        self.count += 1;
        self.sum += seconds;
    }
}
