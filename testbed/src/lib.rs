//! Starts the real parts that the tests run against.
