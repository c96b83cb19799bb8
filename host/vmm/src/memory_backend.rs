//! What backs guest memory on the host, and how that is chosen.

use crate::{host_memory::SharedHugePages, mechanism::MechanismName, names::names};

/// What backs the guest's memory on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryBackend {
    /// Private anonymous memory of the VMM with `MADV_HUGEPAGE`.
    #[default]
    Ram,
    /// A sealed memfd of this process, which can work on it as well. Without huge pages for shared memory, giving it
    /// back takes the host many times longer.
    Memfd,
}

names!(MemoryBackend { MemoryBackend::Ram = "ram", MemoryBackend::Memfd = "memfd" });

/// Which memory backend to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryBackendChoice {
    /// [`MemoryBackend::Memfd`] where the mechanism needs it or the host has huge pages for shared memory, otherwise
    /// [`MemoryBackend::Ram`].
    #[default]
    Auto,
    /// [`MemoryBackend::Ram`].
    Ram,
    /// [`MemoryBackend::Memfd`], whatever pages the host has for it.
    Memfd,
}

names!(MemoryBackendChoice {
    MemoryBackendChoice::Auto = "auto",
    MemoryBackendChoice::Ram = "ram",
    MemoryBackendChoice::Memfd = "memfd",
});

impl MemoryBackendChoice {
    /// The choice for VMs with this mechanism on this host, as it is configured at the moment.
    pub fn resolve(self, mechanism: MechanismName) -> MemoryBackend {
        self.resolve_with(mechanism, &SharedHugePages::of_host())
    }

    /// The same on a host with these pages. What was named is not replaced, whether the mechanism works with it or not.
    pub fn resolve_with(
        self,
        mechanism: MechanismName,
        SharedHugePages { are_available, .. }: &SharedHugePages,
    ) -> MemoryBackend {
        match self {
            Self::Auto if *are_available || mechanism.needs_memfd() => MemoryBackend::Memfd,
            Self::Auto | Self::Ram => MemoryBackend::Ram,
            Self::Memfd => MemoryBackend::Memfd,
        }
    }
}

impl From<MemoryBackend> for MemoryBackendChoice {
    fn from(backend: MemoryBackend) -> Self {
        match backend {
            MemoryBackend::Ram => Self::Ram,
            MemoryBackend::Memfd => Self::Memfd,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_auto_depends_on_the_host_and_on_the_mechanism() {
        for backend in [MemoryBackend::Ram, MemoryBackend::Memfd] {
            assert_eq!(backend.to_string().parse(), Ok(MemoryBackendChoice::from(backend)));
        }
        for are_available in [false, true] {
            let pages = SharedHugePages { are_available, setting: String::new() };
            for &mechanism in MechanismName::ALL {
                let resolved = |choice: MemoryBackendChoice| choice.resolve_with(mechanism, &pages);
                for backend in [MemoryBackend::Ram, MemoryBackend::Memfd] {
                    assert_eq!(resolved(backend.into()), backend);
                }
                let is_file = are_available || mechanism == MechanismName::HyperAlloc;
                let expected = if is_file { MemoryBackend::Memfd } else { MemoryBackend::Ram };
                assert_eq!(resolved(MemoryBackendChoice::Auto), expected, "{mechanism}");
            }
        }
    }
}
