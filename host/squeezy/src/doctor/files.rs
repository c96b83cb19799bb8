//! Programs and files: QEMU, kernel, images, the state directory and its disk, the log file.

use super::finding::Finding;
use crate::serve::{Config, FunctionEntry, OTHER_STATE, holder};
use bytesize::ByteSize;
use rustix::{
    fs::{Access, access, statvfs},
    io::Errno,
};
use squeezy_node::FunctionImage;
use squeezy_vmm::{Artifacts, Kernel, QemuOptions, VmError, probe_qemu};
use std::{io, net::TcpListener, path::Path};

/// Free space for the state that runs out soon: an image of a function is some hundred MiB.
const LITTLE_SPACE_BYTES: u64 = 1 << 30;

/// Looks at everything.
pub fn examine(config: &Config, files: Result<Artifacts, VmError>) -> Vec<Finding> {
    let mut findings = vec![Finding::of("QEMU", probe_qemu(&QemuOptions::default().program))];
    match files {
        Err(error) => findings.push(Finding::of("kernel", Err(error))),
        Ok(files) => {
            for (subject, path, target) in [
                ("kernel", files.kernel(Kernel::Release), "kernel-release"),
                ("initramfs", files.initramfs(), "image"),
            ] {
                let remedy = format!("install squeezy-guest, or `make {target}` in a checkout");
                findings.push(exists(subject, &path, remedy));
            }
            findings.extend(config.functions.iter().map(|entry| function(entry, &files)));
        }
    }
    findings.push(state(&config.state_directory));
    findings.extend(config.log_file.as_deref().map(log));
    findings.push(match holder(&config.state_directory) {
        Some(process) => Finding::good("address", format!("the daemon is running{process}")),
        None => address(&config.listen.name, config.listen.port),
    });
    findings
}

fn exists(subject: &str, path: &Path, remedy: String) -> Finding {
    match path.metadata() {
        Ok(_) => Finding::good(subject, path.display().to_string()),
        Err(error) => Finding::wrong(subject, format!("{}: {error}", path.display()), remedy),
    }
}

fn function(entry: &FunctionEntry, files: &Artifacts) -> Finding {
    let path = entry.path.display();
    match FunctionImage::find(&entry.path, files) {
        Ok(FunctionImage { function, image, .. }) => {
            let subject = format!("function {}", function.name);
            exists(&subject, &image, format!("`guest/image/build.sh {path}` in a checkout"))
        }
        Err(error) => Finding::of("function", Err(error)),
    }
}

/// The nearest directory that exists is the one that has to be writable.
fn state(directory: &Path) -> Finding {
    let subject = "state directory";
    let wrong = |path: &Path, error: io::Error| {
        let found = format!("{}: {error}", path.display());
        Finding::wrong(subject, found, OTHER_STATE)
    };
    let existing = directory.ancestors().find(|path| path.as_os_str().is_empty() || path.exists());
    let existing = match existing {
        Some(path) if !path.as_os_str().is_empty() => path,
        _ => Path::new("."),
    };
    if let Err(error) = access(existing, Access::WRITE_OK | Access::EXEC_OK) {
        return wrong(existing, error.into());
    }
    match statvfs(existing) {
        Err(error) => wrong(existing, error.into()),
        Ok(disk) => {
            let free_bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
            let found = format!("{}, {} free", directory.display(), ByteSize(free_bytes));
            if free_bytes < LITTLE_SPACE_BYTES {
                let remedy = "free some space: an action's image takes some hundred MiB";
                return Finding::slow(subject, found, remedy);
            }
            Finding::good(subject, found)
        }
    }
}

/// The daemon does not start without it, and needs its directory to put it aside.
fn log(path: &Path) -> Finding {
    let (subject, shown) = ("log file", path.display());
    let remedy =
        "choose a directory that the daemon's user may write: as a service /var/log/squeezy";
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let renames = access(directory.unwrap_or(Path::new(".")), Access::WRITE_OK | Access::EXEC_OK);
    let writes = match path.metadata() {
        Ok(file) if file.is_dir() => Err(Errno::ISDIR),
        Ok(_) => access(path, Access::WRITE_OK),
        Err(_) => renames,
    };
    match (writes, renames) {
        (Err(error), _) => {
            Finding::wrong(subject, format!("{shown}: {}", io::Error::from(error)), remedy)
        }
        (Ok(()), Err(_)) => Finding::slow(
            subject,
            format!("{shown} can be written, but not renamed: it is cut when it is large"),
            remedy,
        ),
        (Ok(()), Ok(())) => Finding::good(subject, shown.to_string()),
    }
}

fn address(name: &str, port: u16) -> Finding {
    let subject = "address";
    match TcpListener::bind((name, port)) {
        Ok(_) => Finding::good(subject, format!("{name}:{port} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Finding::wrong(
            subject,
            format!("{name}:{port} is in use"),
            "end what uses it, or choose another `listen`",
        ),
        Err(error) => {
            Finding::wrong(subject, format!("{name}:{port}: {error}"), "choose another `listen`")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict::{Good, Wrong};
    use super::*;
    use rustix::fs::{FlockOperation, flock};
    use std::fs::File;

    #[test]
    fn what_was_not_built_is_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let config = Config::parse("functions = [\"f\"]", directory.path()).unwrap();
        let files = Artifacts::find(Some(directory.path())).unwrap();
        let findings = examine(&config, Ok(files));
        for subject in ["kernel", "initramfs", "function"] {
            let finding = findings.iter().find(|finding| finding.subject == subject).unwrap();
            assert_eq!(finding.verdict, Wrong, "{finding:?}");
            // Whoever has packages has no checkout.
            let is_packaged = format!("{finding:?}").contains("install squeezy-guest");
            assert_eq!(is_packaged, subject != "function", "{finding:?}");
        }
        let missing = Artifacts::find(Some(&directory.path().join("none")));
        let findings = examine(&config, missing);
        let kernel = findings.iter().find(|finding| finding.subject == "kernel").unwrap();
        assert!(kernel.verdict == Wrong && kernel.found.contains("squeezy-guest"), "{kernel:?}");
    }

    #[test]
    fn a_state_directory_that_will_be_made_is_good() {
        let directory = tempfile::tempdir().unwrap();
        assert_ne!(state(&directory.path().join("a/b")).verdict, Wrong);
        assert_eq!(state(Path::new("/proc/self/state")).verdict, Wrong);
    }

    #[test]
    fn a_log_file_that_cannot_be_written_is_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("squeezy.log");
        let found = |text: &str| {
            let config = Config::parse(text, directory.path()).unwrap();
            let findings = examine(&config, Artifacts::find(Some(directory.path())));
            findings.into_iter().find(|finding| finding.subject == "log file")
        };
        assert_eq!(found(""), None);
        for _ in 0..2 {
            // Whether it is there already or not.
            assert_eq!(found("log_file = \"squeezy.log\"").unwrap().verdict, Good);
            std::fs::write(&file, "").unwrap();
        }
        for wrong in ["log_file = \"none/squeezy.log\"", "log_file = \".\""] {
            let finding = found(wrong).unwrap();
            assert!(finding.verdict == Wrong && finding.remedy.is_some(), "{finding:?}");
        }
    }

    #[test]
    fn a_daemon_that_runs_is_no_obstacle() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(holder(directory.path()), None);
        let lock = File::create(directory.path().join("lock")).unwrap();
        assert_eq!(holder(directory.path()), None);
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(holder(directory.path()).as_deref(), Some(""));
        std::fs::write(directory.path().join("lock"), "7\n").unwrap();
        assert_eq!(holder(directory.path()).as_deref(), Some(" (process 7)"));
    }

    #[test]
    fn an_address_in_use_is_wrong() {
        let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        assert_eq!(address("127.0.0.1", port).verdict, Wrong);
        // Which one it is, the system chooses: of any other, another test may make use.
        assert_eq!(address("127.0.0.1", 0).verdict, Good);
        assert_eq!(address("192.0.2.1", port).verdict, Wrong);
    }
}
