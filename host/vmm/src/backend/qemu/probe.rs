//! Checks whether QEMU is installed and has what a VM needs, without starting a VM.

use super::INSTALL;
use std::{
    io::{ErrorKind, Read},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// The oldest version that everything is tested with.
const OLDEST: (u32, u32) = (7, 2);
/// The device that memory is plugged with.
const DEVICE: &str = "virtio-mem-pci";
/// How long QEMU may take to say something about itself.
const LIMIT: Duration = Duration::from_secs(10);
/// Interval of looks whether it is done.
const PAUSE: Duration = Duration::from_millis(5);

/// QEMU's version, or why it cannot be used and what to do about it.
pub fn probe_qemu(program: &Path) -> Result<String, String> {
    let text = output(program, &["--version"])?;
    let (version, major, minor) =
        parse(&text).ok_or_else(|| format!("{} is not QEMU", program.display()))?;
    if (major, minor) < OLDEST {
        return Err(format!("QEMU {version} is older than {}.{}", OLDEST.0, OLDEST.1));
    }
    if !output(program, &["-machine", "none", "-device", "help"])?.contains(DEVICE) {
        return Err(format!("QEMU {version} was built without the device {DEVICE}"));
    }
    Ok(version)
}

/// The version in the first line of `--version`.
fn parse(text: &str) -> Option<(String, u32, u32)> {
    let version = text.strip_prefix("QEMU emulator version ")?.split_whitespace().next()?;
    let mut numbers = version.split('.').map(str::parse);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return None;
    };
    Some((version.to_owned(), major, minor))
}

fn output(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let name = program.display();
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!("{name} is missing: {INSTALL}"),
        _ => format!("{name}: {error}"),
    })?;
    let mut stdout = child.stdout.take().expect("it is piped");
    // On a thread of its own: a pipe that is full would keep QEMU from ending.
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = stdout.read_to_string(&mut text);
        text
    });
    let end = Instant::now() + LIMIT;
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < end => std::thread::sleep(PAUSE),
            Ok(Some(status)) if status.success() => break,
            other => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(match other {
                    Ok(None) => format!("{name} does not answer within {} s", LIMIT.as_secs()),
                    Ok(Some(status)) => format!("{name} {} fails: {status}", arguments.join(" ")),
                    Err(error) => format!("{name}: {error}"),
                });
            }
        }
    }
    reader.join().map_err(|_| format!("{name} writes what is not text"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executable::write_script;

    #[test]
    fn the_version_is_what_the_first_line_says() {
        let debian = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\nCopyright (c) ...\n";
        assert_eq!(parse(debian), Some(("7.2.22".to_owned(), 7, 2)));
        for wrong in ["", "bash 5.2", "QEMU emulator version ", "QEMU emulator version seven.two"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_no_qemu_is_refused_with_the_way_out() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("qemu");
        let error = probe_qemu(&program).unwrap_err();
        assert!(error.contains("apt install"), "{error}");
        for (script, part) in [
            ("echo no", "is not QEMU"),
            ("echo QEMU emulator version 6.9.0", "older than 7.2"),
            ("echo QEMU emulator version 9.0.0", "without the device virtio-mem-pci"),
            ("exit 3", "fails: exit status: 3"),
        ] {
            write_script(&program, script);
            let error = probe_qemu(&program).unwrap_err();
            assert!(error.contains(part), "{script}: {error}");
        }
    }
}
