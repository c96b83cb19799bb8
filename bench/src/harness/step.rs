//! What an experiment does one after the other.

use squeezy_vmm::mechanism::MechanismName;
use std::fmt;

/// One of the things that an experiment does one after the other, shown as what it is.
pub(crate) trait Step: fmt::Display {
    /// About how long it takes, against the others.
    fn weight(&self) -> f64 {
        1.0
    }
}

impl Step for MechanismName {}
