//! The cofferdam program.
fn main() {}
