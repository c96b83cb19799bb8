//! What backs guest memory on the host, and how that is chosen.

use crate::{host_memory::SharedHugePages, names::names};

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
    /// [`MemoryBackend::Memfd`] where the host has huge pages for shared memory, otherwise [`MemoryBackend::Ram`].
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
    /// The choice on this host, as it is configured at the moment.
    pub fn resolve(self) -> MemoryBackend {
        match self {
            Self::Auto if SharedHugePages::of_host().are_available => MemoryBackend::Memfd,
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
    fn only_auto_depends_on_the_host() {
        for backend in [MemoryBackend::Ram, MemoryBackend::Memfd] {
            assert_eq!(MemoryBackendChoice::from(backend).resolve(), backend);
            assert_eq!(backend.to_string().parse(), Ok(MemoryBackendChoice::from(backend)));
        }
        let is_file = MemoryBackendChoice::Auto.resolve() == MemoryBackend::Memfd;
        assert_eq!(is_file, SharedHugePages::of_host().are_available);
    }
}
