use super::*;
use crate::skip::skip;
use rustix::{fs::XattrFlags, process::geteuid};
use std::os::unix::fs::FileExt;

/// Where erofs has its magic number, and what it is.
const MAGIC_AT: u64 = 1024;
const MAGIC: [u8; 4] = 0xe0f5_e1e2_u32.to_le_bytes();

/// Images are made by root, who can read every file of a layer.
fn can_run() -> bool {
    let root = geteuid().is_root();
    if !root {
        skip("only root can read others' files");
    }
    root
}

fn layer(parent: &Path, name: &str, bytes: usize) -> PathBuf {
    let path = parent.join(name);
    fs::create_dir(&path).unwrap();
    fs::write(path.join("file"), vec![1; bytes]).unwrap();
    path
}

fn images(directory: &Path) -> usize {
    fs::read_dir(directory.join("images")).unwrap().count()
}

fn work(directory: &Path) -> usize {
    fs::read_dir(directory.join("work")).unwrap().count()
}

async fn image(cache: &Cache, layer: &Path) -> Result<File> {
    cache.image(layer, &Key::of(layer)?).await
}

#[tokio::test]
async fn an_image_is_made_once_and_has_what_overlayfs_needs() {
    if !can_run() {
        return;
    }
    let (layers, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let layer = layer(layers.path(), "layer", 5000);
    rustix::fs::setxattr(&layer, "trusted.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
    std::os::unix::fs::chown(layer.join("file"), Some(1234), Some(1234)).unwrap();
    let cache = Cache::open(directory.path(), 16 << 20).unwrap();
    let first = image(&cache, &layer).await.unwrap();
    let mut magic = [0; 4];
    first.read_exact_at(&mut magic, MAGIC_AT).unwrap();
    assert_eq!(magic, MAGIC);
    let mut bytes = vec![0; first.metadata().unwrap().len() as usize];
    first.read_exact_at(&mut bytes, 0).unwrap();
    let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    // The prefix of the attribute's name is a number there.
    assert!(has(b"overlay.opaquey") && has(&1234_u32.to_le_bytes()));
    // Another server, too, finds it.
    let other = Cache::open(directory.path(), 16 << 20).unwrap();
    let second = image(&other, &layer).await.unwrap();
    assert_eq!(first.metadata().unwrap().ino(), second.metadata().unwrap().ino());
    assert_eq!((images(directory.path()), work(directory.path())), (1, 0));
}

#[tokio::test]
async fn servers_that_need_an_image_at_once_make_one() {
    if !can_run() {
        return;
    }
    let (layers, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let layer = layer(layers.path(), "layer", 1 << 20);
    let open = || Cache::open(directory.path(), 16 << 20).unwrap();
    let (a, b, c) = (open(), open(), open());
    let (a, b, c) =
        tokio::try_join!(image(&a, &layer), image(&b, &layer), image(&c, &layer)).unwrap();
    let inodes = [a, b, c].map(|file| file.metadata().unwrap().ino());
    assert!(inodes.iter().all(|inode| *inode == inodes[0]), "{inodes:?}");
    assert_eq!((images(directory.path()), work(directory.path())), (1, 0));
}

#[tokio::test]
async fn what_was_not_used_for_longest_goes_when_there_is_no_room() {
    if !can_run() {
        return;
    }
    let (layers, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [a, b, c] = ["a", "b", "c"].map(|name| layer(layers.path(), name, 1 << 20));
    // Room for two.
    let cache = Cache::open(directory.path(), (5 << 20) / 2).unwrap();
    for layer in [&a, &b, &a, &c] {
        image(&cache, layer).await.unwrap();
        sleep(Duration::from_millis(20)).await;
    }
    let is_there = |layer| cache.find(&Key::of(layer).unwrap()).is_some();
    assert_eq!([&a, &b, &c].map(|layer| is_there(layer)), [true, false, true]);
    let large = layer(layers.path(), "large", 3 << 20);
    let error = image(&cache, &large).await.unwrap_err();
    assert!(error.message.contains("it takes more than 2 MiB"), "{error}");
    assert_eq!((images(directory.path()), work(directory.path())), (2, 0));
}

#[tokio::test]
async fn what_a_server_has_left_half_way_is_no_image_and_goes() {
    if !can_run() {
        return;
    }
    let (layers, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [one, other] = ["one", "other"].map(|name| layer(layers.path(), name, 4096));
    let cache = Cache::open(directory.path(), 16 << 20).unwrap();
    let at = |layer: &Path| directory.path().join("work").join(Key::of(layer).unwrap().0);
    for layer in [&one, &other] {
        fs::create_dir(at(layer)).unwrap();
        fs::write(at(layer).join(IMAGE), "half").unwrap();
    }
    let file = image(&cache, &one).await.unwrap();
    assert!(file.metadata().unwrap().len() > 1024);
    assert_eq!((images(directory.path()), work(directory.path())), (1, 0));
}

#[test]
fn a_layer_of_the_same_name_is_another_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = layer(directory.path(), "layer", 1);
    let first = Key::of(&path).unwrap();
    assert_eq!(Key::of(&path).unwrap(), first);
    let kept = directory.path().join("kept");
    fs::rename(&path, &kept).unwrap();
    layer(directory.path(), "layer", 1);
    assert_ne!(Key::of(&path).unwrap(), first);
    assert!(Key::of(&path.join("file")).unwrap_err().message.contains("it is no directory"));
    assert!(Key::of(&path.join("absent")).is_err());
}
