//! SPECIFICATION.md, as bench/targets.toml and the recorded lines have it.

use crate::{
    error::{BenchError, Result},
    experiments,
    report::specification::update,
};
use std::{fs, path::Path};

/// Writes the table of a checkout's SPECIFICATION.md anew.
pub(crate) fn write(checkout: &Path) -> Result {
    let path = checkout.join("SPECIFICATION.md");
    let text = made(checkout)?;
    fs::write(&path, text).map_err(|e| BenchError::file(&path, e))
}

/// SPECIFICATION.md as it has to be.
pub(crate) fn made(checkout: &Path) -> Result<String> {
    let path = checkout.join("SPECIFICATION.md");
    let text = fs::read_to_string(&path).map_err(|e| BenchError::file(&path, e))?;
    let assessed = experiments::recorded(&checkout.join("bench/results"))?;
    update(&text, &assessed).ok_or_else(|| BenchError::file(&path, "it has no place for the table"))
}
