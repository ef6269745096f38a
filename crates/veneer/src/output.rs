//! How results are written: to a locked standard output, so that a closed pipe is an error value and not a panic.

use std::io::{self, BufWriter, StdoutLock};

/// Standard output, buffered. Flush it before returning, so that a failure is noticed.
pub(crate) fn stdout() -> BufWriter<StdoutLock<'static>> {
    BufWriter::new(io::stdout().lock())
}
