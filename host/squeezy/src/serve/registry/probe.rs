//! Whether images can be pulled on this machine, and drives of code be made, which takes one of the same programs.

use squeezy_sandbox::{Sandbox, output};

/// What a pull needs, as in packages of Debian.
pub const NEEDS: &str = "bubblewrap, skopeo, umoci, erofs-utils and python3";

/// Names those of the programs that follow it that are missing.
const LOOK: &str = "for tool; do command -v \"$tool\" >/dev/null || echo \"$tool\"; done";
const PROGRAMS: [&str; 4] = ["skopeo", "umoci", PACKER, "python3"];
const PACKER: &str = "mkfs.erofs";

/// The most that may be said about what is missing, in bytes.
const MOST: usize = 4096;

/// Looks for the programs that pull images in the sandbox in which they will run. Fails with the reason, in one line.
pub async fn probe() -> Result<(), String> {
    look_for(&PROGRAMS).await
}

/// The same for the program that packs a drive of code.
pub async fn probe_packer() -> Result<(), String> {
    look_for(&[PACKER]).await
}

async fn look_for(programs: &[&str]) -> Result<(), String> {
    let work = std::env::temp_dir();
    let sandbox = Sandbox { work: &work, files: Vec::new(), most_file_bytes: 0 };
    let command =
        sandbox.command(["sh", "-c", LOOK, "sh"].into_iter().chain(programs.iter().copied()));
    let missing = output(command, MOST).await.map_err(|error| error.to_string())?;
    let missing: Vec<_> = std::str::from_utf8(&missing).unwrap_or_default().lines().collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!("missing: {}", missing.join(", "))),
    }
}
