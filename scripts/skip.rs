//! What a test says that cannot run here. Tests of all crates have this file as a module.

/// Says that this test is skipped, and why; with `SQUEEZY_NO_SKIP=1`, as in CI, it fails instead.
pub fn skip(why: impl std::fmt::Display) {
    let strict = std::env::var_os("SQUEEZY_NO_SKIP").is_some_and(|value| value == "1");
    assert!(!strict, "this test cannot run here, and SQUEEZY_NO_SKIP=1: {why}");
    eprintln!("skipped: {why}");
}
