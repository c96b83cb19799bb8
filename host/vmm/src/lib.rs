//! Starts, resizes, measures and stops one VM.
