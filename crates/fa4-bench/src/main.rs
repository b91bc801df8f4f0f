//! `fa4-bench`: timing, results, publishing.

fn main() {}
