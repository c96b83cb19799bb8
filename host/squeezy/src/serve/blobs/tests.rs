//! What is kept, and that it goes with the last who has it.

use super::*;
use std::{sync::mpsc::channel, time::Instant};
use tempfile::TempDir;

const MOST: u64 = 1 << 20;

fn place() -> (TempDir, Arc<DiskSpace>, Arc<Blobs>) {
    let directory = tempfile::tempdir().unwrap();
    let space = DiskSpace::new(MOST);
    let blobs = Blobs::open(directory.path().join("blobs"), space.clone()).unwrap();
    (directory, space, blobs)
}

/// Adds a file.
fn add(blobs: &Arc<Blobs>, content: &[u8]) -> Result<Arc<Blob>, BlobError> {
    blobs.add(|unfinished| {
        let mut file = unfinished.file(unfinished.path().to_owned())?;
        file.write(content)?;
        file.finish()
    })
}

/// Adds a directory with a file.
fn add_directory(blobs: &Arc<Blobs>, content: &[u8]) -> Result<Arc<Blob>, BlobError> {
    blobs.add(|unfinished| {
        fs::create_dir(unfinished.path()).unwrap();
        let mut file = unfinished.file(unfinished.path().join("file"))?;
        file.write(content)?;
        file.finish()
    })
}

fn find(blobs: &Arc<Blobs>, digest: &Digest) -> Result<Option<Arc<Blob>>, BlobError> {
    blobs.find(digest, |path| match hash(path)? == *digest {
        true => Ok(()),
        false => Err(failed(path)(io::Error::other("altered"))),
    })
}

/// Names in the directory.
pub fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Waits until the directory has just these blobs; they are removed by other threads.
#[track_caller]
pub fn has<'a>(directory: &Path, digests: impl IntoIterator<Item = &'a Digest>) {
    let right: BTreeSet<_> = digests.into_iter().map(|digest| digest.digits().to_owned()).collect();
    let begin = Instant::now();
    while names(directory) != right {
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?} not {right:?}", names(directory));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until this many bytes are taken: those of a blob are free a moment after its file has gone.
#[track_caller]
fn takes(space: &DiskSpace, bytes: u64) {
    let begin = Instant::now();
    while space.taken_bytes() != bytes {
        assert!(begin.elapsed() < Duration::from_secs(10), "{} B are taken", space.taken_bytes());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Lets the threads that remove blobs do so, if they are going to.
fn settle() {
    std::thread::sleep(Duration::from_millis(50));
}

#[test]
fn it_goes_with_the_last_who_has_it() {
    let (_directory, space, blobs) = place();
    blobs.keep(BTreeSet::new());
    let (first, same) = (add(&blobs, b"one").unwrap(), add(&blobs, b"one").unwrap());
    let second = add_directory(&blobs, b"two").unwrap();
    assert!(Arc::ptr_eq(&first, &same));
    assert_eq!(space.taken_bytes(), 6);
    let digests = [first.digest.clone(), second.digest.clone()];
    drop(first);
    settle();
    has(&blobs.directory, &digests);
    drop(same);
    has(&blobs.directory, &digests[1..]);
    drop(second);
    has(&blobs.directory, []);
    takes(&space, 0);
}

#[test]
fn what_a_stored_action_names_is_kept_until_it_does_no_more() {
    let (_directory, _, blobs) = place();
    let blob = add(&blobs, b"one").unwrap();
    let digest = blob.digest.clone();
    blobs.keep(BTreeSet::from([digest.clone()]));
    drop(blob);
    settle();
    has(&blobs.directory, [&digest]);
    // Somebody who still runs it delays that.
    let blob = find(&blobs, &digest).unwrap().unwrap();
    blobs.keep(BTreeSet::new());
    settle();
    has(&blobs.directory, [&digest]);
    drop(blob);
    has(&blobs.directory, []);
    assert!(find(&blobs, &digest).unwrap().is_none());
}

#[test]
fn a_restarted_daemon_removes_nothing_before_it_knows_the_names() {
    let (directory, space, blobs) = place();
    let digest = add(&blobs, b"one").unwrap().digest.clone();
    let lost = add_directory(&blobs, b"lost").unwrap().digest.clone();
    // The earlier daemon was killed while it wrote one and removed another.
    fs::write(blobs.directory.join("7.new"), "half").unwrap();
    fs::create_dir(blobs.directory.join("8.new")).unwrap();
    fs::write(blobs.directory.join("8.new/file"), "half").unwrap();
    drop((blobs, space));
    let space = DiskSpace::new(1);
    let blobs = Blobs::open(directory.path().join("blobs"), space.clone()).unwrap();
    has(&blobs.directory, [&digest, &lost]);
    assert_eq!(space.taken_bytes(), 7);
    // An action that cannot be served for another reason.
    drop(find(&blobs, &digest).unwrap().unwrap());
    settle();
    has(&blobs.directory, [&digest, &lost]);
    blobs.keep(BTreeSet::from([digest.clone()]));
    has(&blobs.directory, [&digest]);
    takes(&space, 3);
}

#[test]
fn who_looks_at_one_keeps_it_from_being_removed() {
    let (_directory, _, blobs) = place();
    let digest = add(&blobs, b"one").unwrap().digest.clone();
    let found = blobs.find(&digest, |path| {
        blobs.keep(BTreeSet::new());
        settle();
        assert!(path.exists());
        Ok::<_, BlobError>(())
    });
    has(&blobs.directory, [&digest]);
    drop(found);
    has(&blobs.directory, []);
}

#[test]
fn what_was_altered_is_not_found_and_is_replaced_by_what_is_right() {
    let (directory, _, blobs) = place();
    for add in [add, add_directory] {
        let digest = add(&blobs, b"right").unwrap().digest.clone();
        let file = || match blobs.directory.join(digest.digits()) {
            path if path.is_dir() => path.join("file"),
            path => path,
        };
        fs::write(file(), "wrong").unwrap();
        let blobs = Blobs::open(directory.path().join("blobs"), DiskSpace::new(MOST)).unwrap();
        assert!(blobs.find(&digest, |_| hash(&file()).map(|sum| assert_ne!(sum, digest))).is_ok());
        let blob = blobs.find(&digest, |path| Err(failed(path)(io::Error::other("altered"))));
        assert!(blob.is_err());
        add(&blobs, b"right").unwrap();
        assert_eq!(fs::read(file()).unwrap(), b"right");
        has(&blobs.directory, [&digest]);
        drop(blobs);
        fs::remove_dir_all(directory.path().join("blobs")).unwrap();
        fs::create_dir(directory.path().join("blobs")).unwrap();
    }
}

#[test]
fn what_does_not_fit_leaves_nothing() {
    let (_directory, space, blobs) = place();
    blobs.keep(BTreeSet::new());
    let half = add(&blobs, &[1; MOST as usize / 2]).unwrap();
    let error = add(&blobs, &[2; MOST as usize / 2 + 1]).unwrap_err().to_string();
    assert!(error.contains("1 MiB") && error.contains("raise actions_disk"), "{error}");
    assert_eq!((names(&blobs.directory).len(), space.taken_bytes()), (1, MOST / 2));
    let other = add_directory(&blobs, &[3; MOST as usize / 2]).unwrap();
    assert!(add(&blobs, b"x").is_err());
    // What is there may be more than a new bound.
    space.set_most(10);
    assert!(add(&blobs, b"x").is_err());
    drop(half);
    has(&blobs.directory, [&other.digest]);
    drop(other);
    has(&blobs.directory, []);
    takes(&space, 0);
    assert!(add(&blobs, b"x").is_ok());
}

#[test]
fn many_at_once_are_all_right() {
    let (_directory, space, blobs) = place();
    blobs.keep(BTreeSet::new());
    std::thread::scope(|scope| {
        for number in 0..16_u8 {
            let blobs = &blobs;
            scope.spawn(move || {
                for round in 0..50 {
                    let content = [(number + round) % 3; 1000];
                    let blob = add(blobs, &content).unwrap();
                    assert_eq!(fs::read(&blob.path).unwrap(), content);
                    let found = find(blobs, &blob.digest).unwrap().unwrap();
                    drop(blob);
                    assert_eq!(fs::read(&found.path).unwrap(), content);
                }
            });
        }
    });
    has(&blobs.directory, []);
    takes(&space, 0);
}

#[test]
fn what_a_killed_tool_still_writes_is_removed() {
    let (directory, _space, blobs) = place();
    let (begins, has_begun) = channel();
    let refused = blobs.add(|unfinished| {
        let place = unfinished.path().to_owned();
        fs::create_dir(&place).unwrap();
        std::thread::spawn(move || {
            for number in 0..500 {
                if fs::write(place.join(number.to_string()), "").is_err() {
                    break;
                }
                let _ = begins.send(());
            }
        });
        has_begun.recv().unwrap();
        Err(BlobError::DiskFull)
    });
    assert!(matches!(refused, Err(BlobError::DiskFull)));
    has(&directory.path().join("blobs"), []);
}
