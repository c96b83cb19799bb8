//! What is kept and when it is removed; `service/tests.rs` and `tests/images.rs` test the same with
//! actions.

use super::*;
use crate::serve::{
    blobs::tests::{has, names},
    registry::PulledImage,
};
use std::{fs, time::Duration};
use tempfile::TempDir;

/// A build directory and a state directory.
fn place() -> (TempDir, Artifacts, Arc<Images>) {
    let directory = tempfile::tempdir().unwrap();
    let files = Artifacts::find(Some(directory.path())).unwrap();
    let images = open(&directory);
    (directory, files, images)
}

fn open(directory: &TempDir) -> Arc<Images> {
    Images::open(&directory.path().join("state"), DiskSpace::new(1 << 30)).unwrap()
}

fn kept_in(directory: &TempDir) -> PathBuf {
    directory.path().join("state").join(DIRECTORY)
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

fn content((_, image): &(Pinned, FunctionImage)) -> String {
    fs::read_to_string(&image.image).unwrap()
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
    let again = open(&directory);
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
    let (directory, files, _) = place();
    let image = make(&directory.path().join("images"), "f.erofs", "same");
    let length = |path: &Path| fs::metadata(path).unwrap().len();
    // There is no space for a copy more.
    let most = length(&image) + length(&image.with_extension("toml"));
    let images = Images::open(&directory.path().join("state"), DiskSpace::new(most)).unwrap();
    let first = images.pin(&files, "f", None).await.unwrap();
    let second = images.pin(&files, "f", None).await.unwrap();
    assert_eq!((&first.0.digest, &*content(&second)), (&second.0.digest, "same"));
    make(&directory.path().join("images"), "f.erofs", "other");
    let error = images.pin(&files, "f", None).await.unwrap_err();
    assert!(matches!(error, PinError::Blob(BlobError::NoSpace { .. })), "{error}");
    assert_eq!(names(&kept_in(&directory)).len(), 1);
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
    assert_eq!(names(&kept_in(&directory)).len(), 0);
    fs::copy(made, aside.join(IMAGE)).unwrap();
    assert_eq!(content(&images.pin(&files, "f", Some(digest)).await.unwrap()), "made");
}

#[tokio::test]
async fn what_a_namespace_has_pulled_beyond_its_quota_goes() {
    let (directory, _, images) = place();
    let mut listed = Vec::new();
    for (number, namespace) in ["acme", "other", "acme", "acme"].into_iter().enumerate() {
        let text = number.to_string();
        let made = make(&directory.path().join(&text), IMAGE, &text);
        let digest = images.take_in(made, None).await.unwrap().0.digest.clone();
        listed.push(PulledImage {
            namespace: namespace.parse().unwrap(),
            repository: text,
            tag: None,
            blob: digest.clone(),
            digest,
            bytes: 100,
            pulled_ms: 1,
            used_ms: 1,
        });
    }
    drop(images);
    let list = serde_json::json!({ "version": 1, "images": listed }).to_string();
    fs::write(directory.path().join("state").join(super::pulled::FILE), list).unwrap();
    let images = open(&directory);
    images.keep_named(std::iter::empty());
    let digests: Vec<_> = listed.iter().map(|image| &image.blob).collect();
    let _held = images.find(digests[3]).await.unwrap();
    // It was used after the others.
    tokio::time::sleep(Duration::from_millis(5)).await;
    let acme = "acme".parse().unwrap();
    images.keep_to(&acme, 300);
    has(&kept_in(&directory), digests.iter().copied());
    images.keep_to(&acme, 250);
    has(&kept_in(&directory), [digests[0], digests[1], digests[3]]);
    images.keep_to(&acme, 0);
    has(&kept_in(&directory), [digests[1], digests[3]]);
    assert_eq!(images.all_pulled().len(), 2);
}

#[tokio::test]
async fn an_image_goes_with_its_last_action() {
    let (directory, files, images) = place();
    make(&directory.path().join("images"), "f.erofs", "one");
    let one = images.pin(&files, "f", None).await.unwrap();
    images.keep_named([one.0.digest.clone()].into_iter());
    make(&directory.path().join("images"), "f.erofs", "two");
    let two = images.pin(&files, "f", None).await.unwrap();
    images.keep_named([two.0.digest.clone()].into_iter());
    // A call of the first action has not been answered yet.
    has(&kept_in(&directory), [&one.0.digest, &two.0.digest]);
    assert_eq!(content(&one), "one");
    drop(one);
    has(&kept_in(&directory), [&two.0.digest]);
}

#[tokio::test]
async fn one_that_was_changed_is_not_run_and_can_be_made_anew() {
    let (directory, files, images) = place();
    make(&directory.path().join("images"), "f.erofs", "right");
    let digest = images.pin(&files, "f", None).await.unwrap().0.digest.clone();
    for name in [IMAGE, DEFINITION] {
        fs::write(kept_in(&directory).join(digest.digits()).join(name), "wrong").unwrap();
        let again = open(&directory);
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
                images.keep_named(std::iter::empty());
                (self::content(&taken), content, taken)
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await.unwrap());
    }
    assert!(all.iter().all(|(found, right, _)| found == right));
    has(&kept_in(&directory), all.iter().map(|(.., (pinned, _))| &pinned.digest));
}
