//! The form of `/proc/PID/smaps` and `smaps_rollup`.

use std::io::{self, BufRead, Read};

/// Longest line that is read, in bytes: a path is at most 4096, and each may take four to write.
const MOST_LINE_BYTES: u64 = 32 << 10;

/// Most lines that are read: those of all mappings that a process may have with stock limits.
const MOST_LINES: u32 = 4 << 20;

/// A mapping of a process; in `smaps_rollup`, the sum of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Its first address.
    pub(crate) start: u64,
    /// The address after its last one.
    pub(crate) end: u64,
    /// Whether writes stay within the process (`MAP_PRIVATE`).
    pub(crate) private: bool,
    /// Whether it is of a file.
    pub(crate) file: bool,
    pub(crate) resident_bytes: u64,
    pub(crate) proportional_bytes: u64,
    /// Pages that another process maps too.
    pub(crate) shared_bytes: u64,
    pub(crate) private_clean_bytes: u64,
    pub(crate) private_dirty_bytes: u64,
}

/// Calls `each` for every mapping.
pub(crate) fn read(mut file: impl BufRead, mut each: impl FnMut(Mapping)) -> io::Result<()> {
    let mut current: Option<Mapping> = None;
    let mut line = Vec::new();
    for _ in 0..MOST_LINES {
        line.clear();
        if file.by_ref().take(MOST_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            current.map(each);
            return Ok(());
        }
        if line.pop() != Some(b'\n') {
            break;
        }
        // A newline in a path is escaped, so no path can look like a line of its own.
        let text = String::from_utf8_lossy(&line);
        if let Some(mapping) = header(&text) {
            current.replace(mapping).map(&mut each);
        } else if let Some(mapping) = &mut current {
            count(mapping, &text);
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "not of the form that is known, or too long"))
}

/// `7f..-7f.. r-xp 00000000 fe:00 1234   /lib/...`
fn header(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let private = words.next()?.ends_with('p');
    let inode: u64 = words.nth(2)?.parse().ok()?;
    (start <= end).then(|| Mapping { start, end, private, file: inode != 0, ..Mapping::default() })
}

/// `Private_Clean:       12 kB`
fn count(mapping: &mut Mapping, line: &str) {
    let Some((name, value)) = line.split_once(':') else { return };
    let number = value.strip_suffix("kB").and_then(|number| number.trim().parse::<u64>().ok());
    let Some(bytes) = number.and_then(|number| number.checked_mul(1024)) else { return };
    match name {
        "Rss" => mapping.resident_bytes = bytes,
        "Pss" => mapping.proportional_bytes = bytes,
        "Shared_Clean" | "Shared_Dirty" => mapping.shared_bytes += bytes,
        "Private_Clean" => mapping.private_clean_bytes = bytes,
        "Private_Dirty" => mapping.private_dirty_bytes = bytes,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, io::BufReader};

    const TWO: &str = "\
55d0-55d4 r-xp 00000000 fe:00 131 /usr/lib/a\\012 Rss: 9 kB
Size:                 16 kB
Rss:                  12 kB
Pss:                   6 kB
Pss_Dirty:             1 kB
Shared_Clean:          3 kB
Shared_Dirty:          1 kB
Private_Clean:         5 kB
Private_Dirty:         2 kB
VmFlags: rd ex mr mw me
7ffc-7ffd rw-s 00000000 00:00 0 [stack]
Rss:                   4 kB
";

    fn all(text: &str) -> io::Result<Vec<Mapping>> {
        let mut mappings = Vec::new();
        read(text.as_bytes(), |mapping| mappings.push(mapping))?;
        Ok(mappings)
    }

    #[test]
    fn every_mapping_with_its_numbers() {
        let code = Mapping {
            start: 0x55d0,
            end: 0x55d4,
            private: true,
            file: true,
            resident_bytes: 12 << 10,
            proportional_bytes: 6 << 10,
            shared_bytes: 4 << 10,
            private_clean_bytes: 5 << 10,
            private_dirty_bytes: 2 << 10,
        };
        let stack =
            Mapping { start: 0x7ffc, end: 0x7ffd, resident_bytes: 4 << 10, ..Mapping::default() };
        assert_eq!(all(TWO).unwrap(), [code, stack]);
        assert_eq!(all("").unwrap(), []);
    }

    #[test]
    fn what_is_cut_short_or_too_long_is_an_error() {
        assert!(all(&TWO[..TWO.len() - 1]).is_err());
        assert!(all(&"x".repeat(1 << 20)).is_err());
    }

    #[test]
    fn the_mappings_of_this_process() {
        let here = all as *const () as usize as u64;
        let mut found = 0;
        let file = BufReader::new(File::open("/proc/self/smaps").unwrap());
        read(file, |mapping| {
            if (mapping.start..mapping.end).contains(&here) {
                assert!(mapping.private && mapping.file && mapping.resident_bytes > 0);
                found += 1;
            }
        })
        .unwrap();
        assert_eq!(found, 1);
    }
}
