//! Whether shared memory is in huge pages.

use crate::measure::selected;
use std::path::Path;

const DIRECTORY: &str = "/sys/kernel/mm/transparent_hugepage";

/// What makes Linux use them where a program asks for it.
pub const SHARED_HUGE_PAGES_ON: &str =
    "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// Whether the memory of memfds is in huge pages where a program asks for it, as VMMs do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedHugePages {
    /// Whether it is.
    pub are_available: bool,
    /// The host's setting of `shmem_enabled` that says so.
    pub setting: String,
}

impl SharedHugePages {
    /// As this host is configured at the moment.
    pub fn of_host() -> Self {
        Self::read(Path::new(DIRECTORY))
    }

    fn read(directory: &Path) -> Self {
        // Since Linux 6.11 there is a setting for each size, too.
        let own = selected(&directory.join("hugepages-2048kB/shmem_enabled"));
        let setting = own
            .filter(|setting| setting != "inherit")
            .or_else(|| selected(&directory.join("shmem_enabled")))
            .unwrap_or_else(|| "never".to_owned());
        let are_available = matches!(&*setting, "always" | "within_size" | "advise" | "force");
        Self { are_available, setting }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_setting_of_the_size_comes_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let read = |path| {
            let SharedHugePages { are_available, setting } = SharedHugePages::read(path);
            (are_available, setting)
        };
        assert_eq!(read(path), (false, "never".to_owned()), "without huge pages in the kernel");
        fs::write(path.join("shmem_enabled"), "always within_size [advise] never deny force\n")
            .unwrap();
        assert_eq!(read(path), (true, "advise".to_owned()));
        fs::create_dir(path.join("hugepages-2048kB")).unwrap();
        let own = path.join("hugepages-2048kB/shmem_enabled");
        fs::write(&own, "always inherit within_size advise [never]\n").unwrap();
        assert_eq!(read(path), (false, "never".to_owned()));
        fs::write(&own, "always [inherit] within_size advise never\n").unwrap();
        assert_eq!(read(path), (true, "advise".to_owned()));
    }
}
