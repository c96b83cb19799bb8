//! Drives of code that is large: file systems with the files of an action, which its VM has beside the image that runs
//! them.
//!
//! A drive is made once, in a sandbox, and is there as long as its code is. The blobs in `code-drives/` of the state
//! directory are directories with a drive and its sum, under a digest of what it was made of.

use super::{ActionCode, CodeError, Named};
use crate::{
    put_code::{RUNS, TAKES, WRONG},
    serve::{
        blobs::{Blob, BlobError, Blobs, DiskSpace, Unfinished, blocking, failed, hash, sync},
        lines::Lines,
        log::log_warning,
        watched_directory::{self, Usage},
    },
};
use sha2::{Digest as _, Sha256};
use squeezy_archive::PutError;
use squeezy_openwhisk::{Digest, Namespace};
use squeezy_protocol::{CODE_DIRECTORY, MAX_SENT_CODE_BYTES};
use squeezy_sandbox::{Sandbox, ToolError, lines, output};
use std::{
    cell::Cell,
    fs::{self, DirBuilder},
    future::ready,
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, time::timeout};

/// Name of their directory in the state directory.
pub const DIRECTORY: &str = "code-drives";

/// Files of one: the drive, and the sum of what is in it.
pub const DRIVE: &str = "code.erofs";
const SUM: &str = "sum";

/// The directory in which a sandbox makes one, and what is packed of it: the root of the drive.
const WORK: &str = "work";
const ROOT: &str = "root";

/// Code that is longer has a drive, in bytes. What is shorter is sent to each instance as soon as it would find it there.
const MOST_SENT_WITHOUT: u64 = 256 << 10;

/// No file in the sandbox may become longer, in bytes: a drive is a little larger than what is packed at most.
const MOST_FILE_BYTES: u64 = 512 << 20;

/// What a drive may take beyond its files, in bytes.
const ENVELOPE_BYTES: u64 = 1 << 20;

/// How long unpacking and packing may take, each: the least, also on a slow processor, one second more for so many bytes
/// that the files take, and the most. Others wait meanwhile.
const LEAST_LIMIT: Duration = Duration::from_secs(20);
const BYTES_IN_A_SECOND: u64 = 4 << 20;
const MOST_LIMIT: Duration = Duration::from_secs(120);

/// The most files and directories that there may be meanwhile: 65,536 of the code, and a few more.
const MOST_FILES: u64 = 65_600;

/// How many are made at a time for the operator's namespace, and for all others, one for each.
const AT_A_TIME: usize = 2;

/// The most that `mkfs.erofs` may say, in bytes.
const MOST_SAID: usize = 64 << 10;

/// The version of what drives are: another one has other digests.
const VERSION: u32 = 1;

/// Where the program and the code are in the sandbox.
const PROGRAM_THERE: &str = "/squeezy";
const CODE_THERE: &str = "/code";

/// The drives of a state directory's actions.
pub struct Drives {
    blobs: Arc<Blobs>,
    space: Arc<DiskSpace>,
    /// This program, which puts the code into its place.
    program: Option<PathBuf>,
    /// Whose turn it is to make one.
    turns: Lines,
}

impl Drives {
    /// Opens the drives of a state directory, which must not be in use by another process.
    pub fn open(
        state: &Path,
        space: Arc<DiskSpace>,
        program: Option<PathBuf>,
    ) -> Result<Self, BlobError> {
        let blobs = Blobs::open(state.join(DIRECTORY), space.clone())?;
        Ok(Self { blobs, space, program, turns: Lines::new(AT_A_TIME) })
    }

    /// The drive of a namespace's code, which is made if it is not there; none if the code is sent to instances.
    pub async fn of(
        &self,
        namespace: &Namespace,
        code: &ActionCode,
    ) -> Result<Option<Arc<Blob>>, CodeError> {
        let bytes = code.bytes()?;
        if bytes <= MOST_SENT_WITHOUT {
            return Ok(None);
        }
        let sent_bytes = if code.binary { bytes.div_ceil(3) * 4 } else { bytes };
        match self.find_or_make(namespace, code).await {
            Err(CodeError::NoSandbox(reason)) if sent_bytes <= MAX_SENT_CODE_BYTES as u64 => {
                log_warning(&format!(
                    "each instance gets its code, which would be faster on a drive of its VM: {reason}"
                ));
                Ok(None)
            }
            made => made.map(Some),
        }
    }

    async fn find_or_make(
        &self,
        namespace: &Namespace,
        code: &ActionCode,
    ) -> Result<Arc<Blob>, CodeError> {
        let key = key(namespace, code.kind.name, &code.code.digest);
        if let Some(drive) = self.find(&key).await? {
            return Ok(drive);
        }
        let _turn = self.turns.turn(namespace).await;
        // Somebody may have made it meanwhile.
        if let Some(drive) = self.find(&key).await? {
            return Ok(drive);
        }
        let Some(program) = self.program.clone() else {
            return Err(CodeError::NoSandbox("the daemon's own program is not there".to_owned()));
        };
        let (blobs, space, code) = (self.blobs.clone(), self.space.clone(), code.clone());
        let tools = Handle::current();
        blocking(move || {
            blobs.add(|unfinished| {
                make(&tools, &program, &space, &code, unfinished)?;
                Ok::<_, CodeError>(key)
            })
        })
        .await
    }

    /// The drive with this digest, if it is there as it was made.
    async fn find(&self, key: &Digest) -> Result<Option<Arc<Blob>>, CodeError> {
        let (blobs, key) = (self.blobs.clone(), key.clone());
        blocking(move || match blobs.find(&key, |place| verify(place, &key)) {
            // What it is made of is there.
            Err(CodeError::Gone(_)) => Ok(None),
            found => found,
        })
        .await
    }

    /// What the drive of this code of a namespace and of a kind takes on the disk, in bytes; nothing if it has none.
    pub fn bytes_of(&self, namespace: &Namespace, kind: &str, code: &Digest) -> u64 {
        self.blobs.bytes_of(&key(namespace, kind, code))
    }

    /// Says of which code there may be drives from now on.
    pub fn keep_of<'a>(&self, named: impl Iterator<Item = Named<'a>>) {
        self.blobs.keep(named.map(|(namespace, kind, code)| key(namespace, kind, code)).collect());
    }
}

/// The digest of a drive: of what it is made of, and how. Each namespace has its own: otherwise one would hear from how
/// long it takes whether another one has the same code.
fn key(namespace: &Namespace, kind: &str, code: &Digest) -> Digest {
    Digest::of_sum(Sha256::digest(format!("{VERSION} {namespace} {kind} {code}")).into())
}

/// Fails if the drive in this directory is not the one that was made.
fn verify(place: &Path, key: &Digest) -> Result<(), CodeError> {
    let wanted = fs::read_to_string(place.join(SUM));
    match (wanted, hash(&place.join(DRIVE))) {
        (Ok(wanted), Ok(sum)) if wanted == sum.digits() => Ok(()),
        (_, Err(error)) if !error.is_missing() => Err(error.into()),
        _ => Err(CodeError::Gone(key.clone())),
    }
}

/// Makes the drive of code in a directory that is not finished.
fn make(
    tools: &Handle,
    program: &Path,
    space: &Arc<DiskSpace>,
    code: &ActionCode,
    unfinished: &mut Unfinished,
) -> Result<(), CodeError> {
    let place = unfinished.path().to_owned();
    let work = place.join(WORK);
    for directory in [&place, &work, &work.join(ROOT)] {
        DirBuilder::new().mode(0o700).create(directory).map_err(failed(directory))?;
    }
    // Until the files are gone, nobody else can have their space, nor that of the drive.
    let mut taken = space.take_none();
    let most_bytes = Cell::new(ENVELOPE_BYTES);
    let take = |bytes: u64| {
        let reserved = bytes.saturating_mul(2).saturating_add(ENVELOPE_BYTES);
        // File systems may give a file that grows twice what is in it until it is closed.
        most_bytes.set(reserved.saturating_mul(2));
        taken.grow_to(reserved)
    };
    let making = async {
        let bytes = put(program, code, &work, take).await?;
        pack(&work, limit(bytes)).await
    };
    tools.block_on(watched(&work, &most_bytes, making))?;
    let made = work.join(DRIVE);
    taken.shrink(fs::symlink_metadata(&made).map_err(failed(&made))?.len());
    let sum = unfinished.take_in(&made, &place.join(DRIVE))?;
    fs::remove_dir_all(&work).map_err(failed(&work))?;
    drop(taken);
    let mut file = unfinished.file(place.join(SUM))?;
    file.write(sum.digits().as_bytes())?;
    file.finish()?;
    Ok(sync(&place)?)
}

/// Does something that writes to a directory. It ends with an error, and what it has started is killed, as soon as there
/// is more than there may be, which only somebody brings about who has taken over a tool.
async fn watched<T>(
    directory: &Path,
    most_bytes: &Cell<u64>,
    work: impl Future<Output = Result<T, CodeError>>,
) -> Result<T, CodeError> {
    let judge = |found: Result<Usage, ToolError>| match found {
        Ok(Usage { bytes, files }) if bytes <= most_bytes.get() && files <= MOST_FILES => Ok(()),
        Ok(_) => Err(CodeError::Wrong("it takes more of the disk than it says".to_owned())),
        Err(error) => Err(failed(directory)(io::Error::other(error)).into()),
    };
    watched_directory::watched(directory, work, |found| ready(judge(found))).await
}

/// Puts the files of code where they are packed, after `take` has heard how many bytes that takes. Returns these.
async fn put(
    program: &Path,
    code: &ActionCode,
    work: &Path,
    mut take: impl FnMut(u64) -> Result<(), BlobError>,
) -> Result<u64, CodeError> {
    let files = vec![(program.to_owned(), PROGRAM_THERE), (code.code.path.clone(), CODE_THERE)];
    let sandbox = Sandbox { work, files, most_file_bytes: MOST_FILE_BYTES };
    let directory = format!("{ROOT}{CODE_DIRECTORY}");
    let mut command = vec![PROGRAM_THERE, "put-code", CODE_THERE, directory.as_str()];
    command.extend(["--file", code.kind.file]);
    command.extend(code.kind.packed.then_some("--packed"));
    let (runs, announced) = (Cell::new(false), Cell::new(0));
    let hear = |line: &str| {
        if line == RUNS {
            runs.set(true);
            return Ok(());
        }
        let bytes = line.strip_prefix(TAKES).and_then(|bytes| bytes.parse::<u64>().ok());
        announced.set(bytes.unwrap_or(0));
        take(announced.get())
    };
    let begun = Instant::now();
    let too_late = async {
        while let Some(left) = limit(announced.get()).checked_sub(begun.elapsed()) {
            tokio::time::sleep(left).await;
        }
    };
    tokio::select! {
        put = lines(sandbox.command(command), hear) => {
            put.map_err(|error| not_put(runs.get(), error))?;
        }
        () = too_late => return Err(too_long("unpacking", limit(announced.get()))),
    }
    Ok(announced.get())
}

/// How long it may take to unpack or to pack files that take so many bytes.
fn limit(bytes: u64) -> Duration {
    MOST_LIMIT.min(LEAST_LIMIT + Duration::from_secs(bytes / BYTES_IN_A_SECOND))
}

/// Why code is not in its place. If the program `runs` that puts it there, it is not for want of a sandbox: otherwise a
/// client could have its code stored without a drive.
fn not_put(runs: bool, error: ToolError<BlobError>) -> CodeError {
    let reason = match error {
        ToolError::Refused(error) => return error.into(),
        error => error.to_string(),
    };
    // Its own words first: they may quote names that look like others.
    if reason.starts_with(WRONG) {
        CodeError::Wrong(reason)
    } else if reason == PutError::Full.to_string() {
        BlobError::DiskFull.into()
    } else if runs {
        CodeError::Wrong(format!("it cannot be unpacked: {reason}"))
    } else {
        CodeError::NoSandbox(reason)
    }
}

/// Makes the drive of these files.
async fn pack(work: &Path, limit: Duration) -> Result<(), CodeError> {
    let sandbox = Sandbox { work, files: Vec::new(), most_file_bytes: MOST_FILE_BYTES };
    let identifier = "00000000-0000-0000-0000-000000000000";
    // As images that are pulled: what is packed better takes several times as long.
    let command = ["mkfs.erofs", "--quiet", "-zlz4", "-x-1", "-U", identifier, DRIVE, ROOT];
    let packed = timeout(limit, output(sandbox.command(command), MOST_SAID)).await;
    packed.map_err(|_| too_long("packing", limit))?.map(drop).map_err(|error| match error {
        ToolError::Said(reason) if is_full(&reason) => BlobError::DiskFull.into(),
        ToolError::Said(reason) => failed(work)(io::Error::other(reason)).into(),
        ToolError::Refused(never) => match never {},
        ToolError::Missing(error) => CodeError::NoSandbox(error.to_string()),
    })
}

fn is_full(reason: &str) -> bool {
    reason.to_lowercase().contains("no space left on device")
}

fn too_long(what: &str, limit: Duration) -> CodeError {
    CodeError::Wrong(format!("{what} it takes more than {} s", limit.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_code_does_not_keep_others_waiting_as_long_as_large_code() {
        let seconds =
            [0, 64 << 20, 256 << 20, 1 << 30, u64::MAX].map(|bytes| limit(bytes).as_secs());
        assert_eq!(seconds, [20, 36, 84, 120, 120]);
    }

    #[tokio::test]
    async fn a_tool_that_writes_more_than_it_says_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let work = directory.path();
        let sandbox = Sandbox { work, files: Vec::new(), most_file_bytes: MOST_FILE_BYTES };
        let fill = sandbox.command(["sh", "-c", "head -c 8388608 /dev/zero > file; sleep 1000"]);
        let filling = async {
            let filled = output(fill, MOST_SAID).await;
            filled.map_err(|error| CodeError::NoSandbox(format!("{error:?}")))
        };
        let most_bytes = Cell::new(ENVELOPE_BYTES);
        let filled = watched(work, &most_bytes, filling);
        let error = timeout(Duration::from_secs(60), filled).await.unwrap().unwrap_err();
        assert!(error.to_string().contains("more of the disk than it says"), "{error}");
    }

    #[test]
    fn each_namespace_has_drives_of_its_own() {
        let (acme, other) = ("acme".parse().unwrap(), "other".parse().unwrap());
        let code = Digest::of_sum([7; 32]);
        assert_ne!(key(&acme, "python:3.11", &code), key(&other, "python:3.11", &code));
    }

    #[test]
    fn what_an_archive_brings_about_is_not_for_want_of_a_sandbox() {
        let said = |reason: &str| ToolError::Said(reason.to_owned());
        let killed = "it ended without a reason (exit status: 137)";
        let name =
            "The archive has the file \"../No space left on device\", which is not inside it";
        for reason in [name, killed, "xxx: No space left on device", "memory allocation failed"] {
            assert!(matches!(not_put(true, said(reason)), CodeError::Wrong(_)), "{reason}");
        }
        let missing = ToolError::Missing(io::Error::other("x"));
        assert!(matches!(not_put(true, missing), CodeError::Wrong(_)));
        let full = not_put(true, said("No space left on device."));
        assert!(matches!(full, CodeError::Blob(BlobError::DiskFull)));
        for error in [said(killed), ToolError::Missing(io::Error::other("x"))] {
            assert!(matches!(not_put(false, error), CodeError::NoSandbox(_)));
        }
    }
}
