//! The veneer command.
fn main() {}
