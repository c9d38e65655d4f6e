//! The ascot command.
fn main() {}
