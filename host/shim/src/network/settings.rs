//! Settings of a network namespace.

use std::{fs, io};

/// Where they are.
const DIRECTORY: &str = "/proc/sys/net";

/// Settings that were changed, and what they were before.
#[derive(Debug, Default)]
pub(super) struct Settings(Vec<(String, String)>);

impl Settings {
    /// Changes a setting, a file in `/proc/sys/net`, of this thread's namespace.
    pub(super) fn change(&mut self, name: String, value: &str) -> io::Result<()> {
        let path = format!("{DIRECTORY}/{name}");
        let before = fs::read_to_string(&path)?;
        fs::write(&path, value)?;
        self.0.push((path, before));
        Ok(())
    }

    /// Makes all as it was, of what is still there.
    pub(super) fn restore(self) {
        for (path, before) in self.0.into_iter().rev() {
            let _ = fs::write(path, before.trim_end());
        }
    }
}

/// A setting of this thread's namespace that is a number.
pub(super) fn number(name: &str) -> io::Result<i32> {
    let text = fs::read_to_string(format!("{DIRECTORY}/{name}"))?;
    text.trim().parse().map_err(io::Error::other)
}

/// Whose settings of IPv4 there are in this thread's namespace: each interface's, `all` and `default`. The latter is last:
/// what is written there goes to each interface, too, whose own setting nobody has written yet.
pub(super) fn interfaces() -> io::Result<Vec<String>> {
    let name = |entry: io::Result<fs::DirEntry>| {
        entry?.file_name().into_string().map_err(|name| {
            io::Error::other(format!("the name of the interface {name:?} is no text"))
        })
    };
    let found = fs::read_dir(format!("{DIRECTORY}/ipv4/conf"))?.map(name);
    let mut interfaces = found.collect::<io::Result<Vec<String>>>()?;
    interfaces.sort_by_key(|name| name == "default");
    Ok(interfaces)
}
