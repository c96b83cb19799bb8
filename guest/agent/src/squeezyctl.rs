//! squeezyctl
fn main() {}
