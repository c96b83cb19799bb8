//! What runs the guest's code: chosen by trying it, because a /dev/kvm that opens and answers
//! every query may still be unable to run a kernel.

mod probe;

use crate::{Result, VmError, config::AcceleratorChoice};
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

pub use probe::probe_kvm;

/// The accelerator in use, and why it is that one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accelerator {
    /// KVM or TCG.
    pub kind: AcceleratorKind,
    /// Why, for people.
    pub reason: String,
}

/// What runs the guest's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AcceleratorKind {
    /// The processor, by way of Linux's KVM.
    Kvm,
    /// QEMU's translator: it works everywhere, ten to several hundred times slower.
    Tcg,
}

impl std::fmt::Display for AcceleratorKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        })
    }
}

impl Accelerator {
    /// Decides. The probe takes up to a second and is made once a process; it blocks.
    pub fn choose(choice: AcceleratorChoice) -> Result<Self> {
        static PROBE: OnceLock<std::result::Result<f64, String>> = OnceLock::new();
        let kvm = |ns: f64| Self {
            kind: AcceleratorKind::Kvm,
            reason: format!("KVM runs guest code at {ns:.2} ns a loop trip"),
        };
        let tcg = |reason| Self { kind: AcceleratorKind::Tcg, reason };
        if choice == AcceleratorChoice::Tcg {
            return Ok(tcg("it was asked for".to_owned()));
        }
        match (PROBE.get_or_init(probe_kvm), choice) {
            (Ok(ns), _) => Ok(kvm(*ns)),
            (Err(reason), AcceleratorChoice::Kvm) => Err(VmError::Kvm(reason.clone())),
            (Err(reason), _) => Ok(tcg(format!("KVM is not usable: {reason}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_follows_the_probe() {
        let forced = Accelerator::choose(AcceleratorChoice::Kvm);
        let auto = Accelerator::choose(AcceleratorChoice::Auto).unwrap();
        match forced {
            Ok(accelerator) => assert_eq!(accelerator, auto),
            Err(error) => {
                assert!(error.to_string().contains("tcg"), "{error}");
                assert_eq!(auto.kind, AcceleratorKind::Tcg);
                assert!(!auto.reason.is_empty());
            }
        }
        assert_eq!(Accelerator::choose(AcceleratorChoice::Tcg).unwrap().kind, AcceleratorKind::Tcg);
    }
}
