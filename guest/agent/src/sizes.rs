//! Sizes as files of `/proc` have them: lines of the form `Name:   123 kB`.

/// All that there are, with their names, in bytes; skips other lines.
pub fn all(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(':')?;
        let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some((name, kib << 10))
    })
}

/// The one with this name, in bytes.
pub fn of(text: &str, name: &str) -> Option<u64> {
    all(text).find_map(|(other, bytes)| (other == name).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_bytes_and_plain_counts_are_none() {
        let text = "MemTotal:      1024 kB\nHugePages_Total:    7\nActive(anon):  4 kB\n";
        let sizes: Vec<_> = all(text).collect();
        assert_eq!(sizes, [("MemTotal", 1 << 20), ("Active(anon)", 4096)]);
    }

    #[test]
    fn a_size_has_a_whole_name() {
        let text = "VmRSS:\t 99 kB\nRssAnon:\t      48 kB\nRssShmem:\t       0 kB\nThreads:\t1\n";
        assert_eq!(of(text, "RssAnon"), Some(48 << 10));
        assert_eq!(of(text, "RssShmem"), Some(0));
        assert_eq!(of(text, "Rss"), None);
        assert_eq!(of(text, "RssFile"), None);
        assert_eq!(of(text, "Threads"), None);
    }
}
