//! Generates SPECIFICATION.md from bench/targets.toml and the recorded lines.

use crate::{
    error::{BenchError, Result},
    experiments,
    report::specification::update,
};
use std::{fs, path::Path};

/// Rewrites the table in a checkout's SPECIFICATION.md.
pub(crate) fn write(checkout: &Path) -> Result {
    let path = checkout.join("SPECIFICATION.md");
    let text = made(checkout)?;
    fs::write(&path, text).map_err(|e| BenchError::file(&path, e))
}

/// The generated contents of SPECIFICATION.md.
pub(crate) fn made(checkout: &Path) -> Result<String> {
    let path = checkout.join("SPECIFICATION.md");
    let text = fs::read_to_string(&path).map_err(|e| BenchError::file(&path, e))?;
    let assessed = experiments::recorded(&checkout.join("bench/results"))?;
    update(&text, &assessed)
        .ok_or_else(|| BenchError::file(&path, "it has no markers for the table"))
}
