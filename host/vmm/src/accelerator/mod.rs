//! Chooses what runs the guest's code. The choice is made by trying, because a /dev/kvm that opens
//! and answers every query may still be unable to run a kernel.

mod probe;

use crate::names::names;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

pub use probe::probe_kvm;

/// Which accelerator to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcceleratorChoice {
    /// KVM if the probe shows that it works, otherwise the VMM's emulator. An error if the VMM has
    /// none.
    #[default]
    Auto,
    /// KVM; an error if the probe fails.
    Kvm,
    /// QEMU's emulator, a binary translator.
    Tcg,
}

names!(AcceleratorChoice {
    AcceleratorChoice::Auto = "auto",
    AcceleratorChoice::Kvm = "kvm",
    AcceleratorChoice::Tcg = "tcg",
});

/// The accelerator in use, and why it was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accelerator {
    /// KVM or TCG.
    pub kind: AcceleratorKind,
    /// The reason, in words.
    pub reason: String,
}

/// What runs the guest's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AcceleratorKind {
    /// The processor itself, through Linux's KVM.
    Kvm,
    /// QEMU's emulator: works everywhere, but is ten to several hundred times slower.
    Tcg,
}

impl AcceleratorKind {
    /// Whether the guest's processors are emulated. If so, measured CPU times say little.
    pub fn emulates(self) -> bool {
        self == Self::Tcg
    }
}

impl std::fmt::Display for AcceleratorKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        })
    }
}

/// Nanoseconds per loop iteration of a guest under KVM, or why KVM cannot be used. KVM is probed
/// once per process, which takes up to a second.
pub(crate) fn kvm_loop_ns() -> &'static Result<f64, String> {
    static PROBE: OnceLock<Result<f64, String>> = OnceLock::new();
    PROBE.get_or_init(probe_kvm)
}
