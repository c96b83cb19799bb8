//! Reads `/sys/kernel/mm/squeezy` and `/sys/kernel/mm/llfree` (`docs/abi.md`).

use squeezy_protocol::{LlfreeState, Partition, PartitionNumber, PartitionState, Squeezy};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    str::FromStr,
};

/// The kernel's sysfs directory for partitions.
pub const DIRECTORY: &str = "/sys/kernel/mm/squeezy";

/// Where the state of the page allocator LLFree is.
const LLFREE_STATE: &str = "/sys/kernel/mm/llfree/state";

/// The largest number of partitions the interface allows.
const MAX_PARTITIONS: u16 = 255;

/// Whether this kernel has partitions.
pub fn present() -> bool {
    Path::new(DIRECTORY).is_dir()
}

/// Everything the kernel reports about its partitions; `None` if it has none.
pub fn read() -> io::Result<Option<Squeezy>> {
    if present() { read_from(Path::new(DIRECTORY)).map(Some) } else { Ok(None) }
}

/// The size of a partition in bytes; an error if this kernel has none.
pub fn partition_size_bytes() -> io::Result<u64> {
    partition_size_in(Path::new(DIRECTORY))
}

/// The state of every partition, by number; empty if this kernel has none.
pub fn states() -> io::Result<Vec<PartitionState>> {
    if present() { states_in(Path::new(DIRECTORY)) } else { Ok(Vec::new()) }
}

/// Gives the free memory of a partition back to the host, in blocks of at least `1 << order` pages, and
/// returns the number of bytes. Blocks the thread.
pub fn report(number: PartitionNumber, order: u8) -> io::Result<u64> {
    let directory = partition_directory(Path::new(DIRECTORY), number);
    let count = || value::<u64>(&directory.join("reported_bytes"));
    let before = count()?;
    let path = directory.join("report");
    fs::write(&path, format!("{order}\n"))
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
    Ok(count()?.saturating_sub(before))
}

/// Dooms the frozen instance in a partition, or undoes that. Blocks the thread.
pub fn set_doomed(number: PartitionNumber, doomed: bool) -> io::Result<()> {
    let path = partition_directory(Path::new(DIRECTORY), number).join("doom");
    fs::write(&path, if doomed { "1" } else { "0" })
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}

/// Where the state of the page allocator is, if there is one that the host can work on.
pub fn llfree_state() -> io::Result<Option<LlfreeState>> {
    let path = Path::new(LLFREE_STATE);
    match text(path) {
        Ok(text) => parse_llfree_state(&text)
            .map(Some)
            .ok_or_else(|| malformed(path, &format!("'{text}' is not where a state is"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn parse_llfree_state(text: &str) -> Option<LlfreeState> {
    let (address, bytes) = text.split_once(' ')?;
    let address = u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()?;
    Some(LlfreeState { address, bytes: bytes.parse().ok()? })
}

fn partition_directory(directory: &Path, number: PartitionNumber) -> PathBuf {
    directory.join(format!("partition{number}"))
}

fn states_in(directory: &Path) -> io::Result<Vec<PartitionState>> {
    let of = |number| partition_directory(directory, PartitionNumber(number)).join("state");
    (0..count(directory)?).map(|number| state(&of(number))).collect()
}

fn partition_size_in(directory: &Path) -> io::Result<u64> {
    value(&directory.join("partition_size"))
}

/// The number of partitions.
fn count(directory: &Path) -> io::Result<u16> {
    let path = directory.join("partitions");
    let partitions = value(&path)?;
    if partitions > MAX_PARTITIONS {
        return Err(malformed(&path, "more than 255 partitions"));
    }
    Ok(partitions)
}

fn read_from(directory: &Path) -> io::Result<Squeezy> {
    let partitions = count(directory)?;
    Ok(Squeezy {
        partition_size_bytes: partition_size_in(directory)?,
        shared_size_bytes: value(&directory.join("shared_size"))?,
        shrink_blocked: text(&directory.join("shrink_blocked"))?,
        counters: counters(&directory.join("counters"))?,
        partitions: (0..partitions)
            .map(|number| partition(directory, PartitionNumber(number)))
            .collect::<io::Result<_>>()?,
    })
}

fn counters(directory: &Path) -> io::Result<BTreeMap<String, u64>> {
    fs::read_dir(directory)?
        .map(|entry| {
            let entry = entry?;
            Ok((entry.file_name().to_string_lossy().into_owned(), value(&entry.path())?))
        })
        .collect()
}

fn partition(directory: &Path, number: PartitionNumber) -> io::Result<Partition> {
    let directory = partition_directory(directory, number);
    let state = state(&directory.join("state"))?;
    let kills = directory.join("oom_kills");
    let oom_kills = if kills.exists() { value(&kills)? } else { 0 };
    // Most partitions of a large VM are not plugged; this saves reading three files for each of them.
    if matches!(state, PartitionState::Absent | PartitionState::Unplugged) {
        return Ok(Partition {
            number,
            state,
            users: 0,
            managed_bytes: 0,
            free_bytes: 0,
            oom_kills,
        });
    }
    Ok(Partition {
        number,
        state,
        users: value(&directory.join("users"))?,
        managed_bytes: value(&directory.join("managed_bytes"))?,
        free_bytes: value(&directory.join("free_bytes"))?,
        oom_kills,
    })
}

fn state(path: &Path) -> io::Result<PartitionState> {
    let word = text(path)?;
    serde_json::from_value(serde_json::Value::String(word.clone()))
        .map_err(|_| malformed(path, &format!("unknown state '{word}'")))
}

fn text(path: &Path) -> io::Result<String> {
    fs::read_to_string(path)
        .map(|text| text.trim().to_owned())
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}

fn value<T: FromStr>(path: &Path) -> io::Result<T> {
    let text = text(path)?;
    text.parse().map_err(|_| malformed(path, &format!("'{text}' is not a number")))
}

fn malformed(path: &Path, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(states: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, content: &str| {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        put("partition_size", "805306368\n");
        put("shared_size", "268435456\n");
        put("partitions", &format!("{}\n", states.len()));
        put("shrink_blocked", "\n");
        put("counters/plugs", "3\n");
        put("counters/oom_kills", "1\n");
        for (number, state) in states.iter().enumerate() {
            put(&format!("partition{number}/state"), &format!("{state}\n"));
            put(&format!("partition{number}/users"), "2\n");
            put(&format!("partition{number}/managed_bytes"), "4096\n");
            put(&format!("partition{number}/free_bytes"), "1024\n");
        }
        directory
    }

    #[test]
    fn reads_what_the_kernel_shows() {
        let directory = tree(&["assigned", "unplugged"]);
        fs::write(directory.path().join("partition0/oom_kills"), "7\n").unwrap();
        let squeezy = read_from(directory.path()).unwrap();
        assert_eq!(squeezy.partition_size_bytes, 768 << 20);
        assert_eq!(squeezy.counters["plugs"], 3);
        assert_eq!(squeezy.shrink_blocked, "");
        assert_eq!(squeezy.partitions[0].state, PartitionState::Assigned);
        assert_eq!(squeezy.partitions[0].free_bytes, 1024);
        assert_eq!(squeezy.partitions[0].oom_kills, 7);
        assert_eq!(squeezy.partitions[1].users, 0);
        let states = [PartitionState::Assigned, PartitionState::Unplugged];
        assert_eq!(states_in(directory.path()).unwrap(), states);
    }

    #[test]
    fn the_state_of_the_allocator_is_found() {
        let found = LlfreeState { address: 0x1_2340_0000, bytes: 40960 };
        assert_eq!(parse_llfree_state("0x123400000 40960"), Some(found));
        for text in ["", "0x1000", "1000 4096", "0x1000 -1"] {
            assert_eq!(parse_llfree_state(text), None, "{text}");
        }
    }

    #[test]
    fn every_state_of_the_kernel_has_its_name() {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernel/src/mm/squeezy/core.c");
        let source = fs::read_to_string(source).unwrap();
        let names = source.split("squeezy_state_names[SQUEEZY_NR_STATES] = {").nth(1).unwrap();
        let names = names.split('}').next().unwrap();
        let names: Vec<_> = names.split('"').skip(1).step_by(2).collect();
        assert_eq!(names.len(), 10);
        assert_eq!(states_in(tree(&names).path()).unwrap().len(), 10);
    }

    #[test]
    fn names_the_file_it_cannot_understand() {
        let directory = tree(&["asigned"]);
        let error = read_from(directory.path()).unwrap_err().to_string();
        assert!(error.contains("partition0/state: unknown state 'asigned'"), "{error}");
    }
}
