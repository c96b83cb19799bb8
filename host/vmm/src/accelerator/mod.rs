//! What runs the guest's code: chosen by trying it, because a /dev/kvm that opens and answers
//! every query may still be unable to run a kernel.

mod probe;

use crate::names::names;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

pub use probe::probe_kvm;

/// A choice of what runs the guest's code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcceleratorChoice {
    /// KVM where a probe shows that it works, else what the VMM emulates processors with; an error where
    /// it does not.
    #[default]
    Auto,
    /// KVM, or an error when the probe fails.
    Kvm,
    /// The emulator of QEMU, a translator.
    Tcg,
}

names!(AcceleratorChoice {
    AcceleratorChoice::Auto = "auto",
    AcceleratorChoice::Kvm = "kvm",
    AcceleratorChoice::Tcg = "tcg",
});

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
    /// QEMU's emulator, a translator: it works everywhere, ten to several hundred times slower.
    Tcg,
}

impl AcceleratorKind {
    /// Whether it emulates the guest's processors: a processor's share says little then.
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

/// What a loop trip of a guest takes under KVM, in nanoseconds, or why KVM cannot be used. It is tried
/// once a process, which takes up to a second.
pub(crate) fn kvm_loop_ns() -> &'static Result<f64, String> {
    static PROBE: OnceLock<Result<f64, String>> = OnceLock::new();
    PROBE.get_or_init(probe_kvm)
}
