//! What is kept and when it is removed; `service/tests.rs` and `tests/images.rs` test the same with
//! actions.

use super::*;
use tempfile::TempDir;

/// A build directory and a state directory.
fn place() -> (TempDir, Artifacts, Arc<Images>) {
    let directory = tempfile::tempdir().unwrap();
    let files = Artifacts::find(Some(directory.path())).unwrap();
    let images = Arc::new(Images::open(&directory.path().join("state")).unwrap());
    (directory, files, images)
}

/// Creates the image NAME.erofs in this directory, with this content.
fn make(directory: &Path, name: &str, content: &str) -> PathBuf {
    let definition = include_str!("../../../../../functions/html/function.toml");
    fs::create_dir_all(directory).unwrap();
    let image = directory.join(name);
    fs::write(&image, content).unwrap();
    fs::write(image.with_extension("toml"), definition).unwrap();
    image
}

fn content((_, image): &(Arc<Pinned>, FunctionImage)) -> String {
    fs::read_to_string(&image.image).unwrap()
}

/// Names in the directory of images.
fn kept(images: &Images) -> BTreeSet<String> {
    let entries = fs::read_dir(&images.directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn what_is_built_later_under_a_name_changes_nothing() {
    let (directory, files, images) = place();
    make(&directory.path().join("images"), "f.erofs", "first");
    let first = images.pin(&files, "f", None).await.unwrap();
    make(&directory.path().join("images"), "f.erofs", "second");
    let second = images.pin(&files, "f", None).await.unwrap();
    assert_eq!((content(&first), content(&second)), ("first".to_owned(), "second".to_owned()));
    // As a restarted daemon finds it.
    let again = Arc::new(Images::open(&directory.path().join("state")).unwrap());
    assert_eq!(content(&again.find(&first.0.digest).await.unwrap()), "first");
    let by_digest = again.pin(&files, "f", Some(&second.0.digest)).await.unwrap();
    assert_eq!(content(&by_digest), "second");
}

#[tokio::test]
async fn the_digest_is_what_the_build_calls_it() {
    let (directory, _, images) = place();
    let made = make(directory.path(), "image.erofs", "an image");
    let (pinned, _) = images.take_in(made, None).await.unwrap();
    let sum = "sha256sum image.erofs image.toml | sha256sum";
    let mut shell = std::process::Command::new("sh");
    let output = shell.args(["-c", sum]).current_dir(directory.path()).output().unwrap();
    let digest = format!("sha256:{}", String::from_utf8(output.stdout).unwrap().get(..64).unwrap());
    assert_eq!(pinned.digest.to_string(), digest);
    assert_eq!(digest.parse::<Digest>().unwrap(), pinned.digest);
    for wrong in ["", "sha256:", &digest[7..], &digest.to_uppercase(), &format!("{digest}/..")] {
        assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn what_is_used_already_is_not_copied_again() {
    let (directory, files, images) = place();
    make(&directory.path().join("images"), "f.erofs", "same");
    let first = images.pin(&files, "f", None).await.unwrap();
    let second = images.pin(&files, "f", None).await.unwrap();
    assert_eq!(first.0.digest, second.0.digest);
    assert_eq!(images.copies.load(Ordering::Relaxed), 1);
    assert_eq!(content(&second), "same");
}

#[tokio::test]
async fn one_that_was_made_aside_is_taken_by_its_digest_alone() {
    let (directory, files, images) = place();
    let (_elsewhere, _, others) = place();
    let made = make(directory.path(), "image.erofs", "made");
    let (pinned, _) = others.take_in(made.clone(), None).await.unwrap();
    let digest = &pinned.digest;
    assert!(matches!(images.pin(&files, "f", Some(digest)).await, Err(PinError::Gone(_))));
    let aside = directory.path().join("images/sha256").join(digest.digits());
    make(&aside, IMAGE, "something else");
    assert!(matches!(images.pin(&files, "f", Some(digest)).await, Err(PinError::Different { .. })));
    assert_eq!(kept(&images).len(), 0);
    fs::copy(made, aside.join(IMAGE)).unwrap();
    assert_eq!(content(&images.pin(&files, "f", Some(digest)).await.unwrap()), "made");
}

#[tokio::test]
async fn only_what_nobody_has_is_removed() {
    let (directory, files, images) = place();
    let mut made = Vec::new();
    for content in ["kept", "used", "neither"] {
        make(&directory.path().join("images"), "f.erofs", content);
        made.push(images.pin(&files, "f", None).await.unwrap());
    }
    let digests: Vec<_> = made.iter().map(|(pinned, _)| pinned.digest.clone()).collect();
    drop(made.pop());
    drop(made.remove(0));
    images.sweep(BTreeSet::from([digests[0].clone()])).await;
    assert_eq!(
        kept(&images),
        BTreeSet::from([digests[0].digits().to_owned(), digests[1].digits().to_owned()])
    );
    assert_eq!(content(&made[0]), "used");
    made.clear();
    images.sweep(BTreeSet::new()).await;
    assert_eq!(kept(&images).len(), 0);
}

#[tokio::test]
async fn whatever_a_killed_daemon_was_at_goes_away() {
    let (directory, files, images) = place();
    make(&directory.path().join("images"), "f.erofs", "whole");
    let digest = images.pin(&files, "f", None).await.unwrap().0.digest.clone();
    // It was copying one image and removing another.
    for name in ["0.new", "00ff.new"] {
        fs::create_dir(images.directory.join(name)).unwrap();
        fs::write(images.directory.join(name).join(IMAGE), "ha").unwrap();
    }
    let again = Arc::new(Images::open(&directory.path().join("state")).unwrap());
    assert_eq!(kept(&again), BTreeSet::from([digest.digits().to_owned()]));
    // No action had been stored yet.
    again.sweep(BTreeSet::new()).await;
    assert_eq!(kept(&again).len(), 0);
}

#[tokio::test]
async fn one_that_was_changed_is_not_run_and_can_be_made_anew() {
    let (directory, files, images) = place();
    make(&directory.path().join("images"), "f.erofs", "right");
    let digest = images.pin(&files, "f", None).await.unwrap().0.digest.clone();
    for name in [IMAGE, DEFINITION] {
        fs::write(images.directory.join(digest.digits()).join(name), "wrong").unwrap();
        let again = Arc::new(Images::open(&directory.path().join("state")).unwrap());
        let found = again.find(&digest).await;
        assert!(matches!(found, Err(PinError::Different { .. })), "{found:?}");
        assert_eq!(content(&again.pin(&files, "f", None).await.unwrap()), "right");
        assert_eq!(content(&again.find(&digest).await.unwrap()), "right");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn many_at_once_are_all_right() {
    let (directory, _, images) = place();
    let tasks: Vec<_> = (0..16)
        .map(|number| {
            let images = images.clone();
            let content = format!("{}", number % 3);
            let made = make(&directory.path().join(number.to_string()), "f.erofs", &content);
            tokio::spawn(async move {
                let taken = images.take_in(made, None).await.unwrap();
                images.sweep(BTreeSet::new()).await;
                (self::content(&taken), content, taken)
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await.unwrap());
    }
    assert!(all.iter().all(|(found, right, _)| found == right));
    assert_eq!(kept(&images).len(), 3);
}
