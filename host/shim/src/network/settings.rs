//! Settings of a network namespace.

use std::{fs, io};

/// Settings that were changed, and what they were before.
#[derive(Debug, Default)]
pub(super) struct Settings(Vec<(String, String)>);

impl Settings {
    /// Changes a setting, a file in `/proc/sys/net`, of this thread's namespace.
    pub(super) fn change(&mut self, name: String, value: &str) -> io::Result<()> {
        let path = format!("/proc/sys/net/{name}");
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
