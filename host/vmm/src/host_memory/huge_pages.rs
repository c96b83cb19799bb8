//! Whether shared memory is in huge pages.

use std::{fs, path::Path};

const DIRECTORY: &str = "/sys/kernel/mm/transparent_hugepage";

/// Whether the memory of memfds is in huge pages where a program asks for it, as VMMs do; and the setting that says so.
pub(crate) fn shared_huge_pages() -> (bool, String) {
    read(Path::new(DIRECTORY))
}

fn read(directory: &Path) -> (bool, String) {
    let selected = |path: &Path| {
        let text = fs::read_to_string(path).ok()?;
        Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
    };
    // Since Linux 6.11 there is a setting for each size, too.
    let own = selected(&directory.join("hugepages-2048kB/shmem_enabled"));
    let setting = own
        .filter(|setting| setting != "inherit")
        .or_else(|| selected(&directory.join("shmem_enabled")))
        .unwrap_or_else(|| "never".to_owned());
    let are_huge = matches!(&*setting, "always" | "within_size" | "advise" | "force");
    (are_huge, setting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_of_the_size_comes_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
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
