//! Diagnostics on standard error, filtered by `--log`; for `squeezy` and for `squeezy-bench`, which
//! includes this file.

use std::{ffi::OsString, io, os::fd::AsFd};
use tracing_subscriber::EnvFilter;

/// The filter when neither the command line nor the environment has one.
const DEFAULT: &str = "warn";

/// The option that sets the filter.
#[derive(Debug, clap::Args)]
pub struct Diagnostics {
    /// Diagnostics to write to standard error: error, warn, info, debug or trace, also per module,
    /// as in `warn,squeezy_vmm=debug`. The default is $RUST_LOG, or else `warn`.
    #[arg(long, global = true, value_name = "LEVEL", env = "SQUEEZY_LOG", value_parser = filter)]
    log: Option<String>,
}

/// Validates the filter while the command line is parsed.
fn filter(text: &str) -> Result<String, String> {
    let wanted = "a level, or PART=LEVEL, or several with commas between them";
    EnvFilter::try_new(text).map(|_| text.to_owned()).map_err(|error| format!("{error}: {wanted}"))
}

impl Diagnostics {
    /// The filter to use. `rust_log` is $RUST_LOG; it may be meant for another program, so an
    /// invalid one is ignored.
    fn wanted(self, rust_log: Option<String>) -> String {
        let usable = |text: &String| !text.is_empty() && filter(text).is_ok();
        self.log.or_else(|| rust_log.filter(usable)).unwrap_or_else(|| DEFAULT.to_owned())
    }

    /// Starts writing diagnostics to standard error, without colours, and with the time of day
    /// unless that is the journal. Returns the filter.
    pub fn start(self) -> String {
        let wanted = self.wanted(std::env::var("RUST_LOG").ok());
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(&wanted))
            .with_writer(io::stderr)
            .with_ansi(false);
        if is_journal(io::stderr(), std::env::var_os("JOURNAL_STREAM")) {
            subscriber.without_time().init();
        } else {
            subscriber.init();
        }
        wanted
    }
}

/// Whether a stream of this program is systemd's journal, which records the time of each line
/// itself. `journal` is $JOURNAL_STREAM, device and inode of the journal's stream
/// (systemd.exec(5)), which programs whose output goes elsewhere inherit too.
pub fn is_journal(stream: impl AsFd, journal: Option<OsString>) -> bool {
    let Some(journal) = journal else { return false };
    let status = rustix::fs::fstat(stream);
    status.is_ok_and(|status| journal == *format!("{}:{}", status.st_dev, status.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, os::unix::fs::MetadataExt};

    #[test]
    fn the_option_counts_before_the_environment() {
        let wanted = |log: Option<&str>, rust_log: Option<&str>| {
            Diagnostics { log: log.map(str::to_owned) }.wanted(rust_log.map(str::to_owned))
        };
        assert_eq!(wanted(None, None), "warn");
        assert_eq!(wanted(None, Some("info,squeezy_vmm=trace")), "info,squeezy_vmm=trace");
        assert_eq!(wanted(Some("error"), Some("trace")), "error");
        for nothing in ["", "squeezy_vmm=loud"] {
            assert_eq!(wanted(None, Some(nothing)), "warn");
        }
    }

    #[test]
    fn the_journal_is_told_by_its_file() {
        let file = File::open("/proc/self/exe").unwrap();
        let status = file.metadata().unwrap();
        let same = format!("{}:{}", status.dev(), status.ino());
        let other = format!("{}:{}", status.dev(), status.ino() + 1);
        assert!(is_journal(&file, Some(same.into())));
        assert!(!is_journal(&file, Some(other.into())));
        assert!(!is_journal(&file, None));
    }
}
