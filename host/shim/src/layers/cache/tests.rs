use super::*;
use crate::skip::skip;
use rustix::{fs::XattrFlags, process::geteuid};
use std::{
    os::unix::fs::FileExt,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc::channel,
    },
    time::SystemTime,
};
use tokio::task::yield_now;

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

/// Images on a disk that has room.
fn open(directory: &Path, most_bytes: u64) -> Cache {
    open_on_disk(directory, most_bytes, &Arc::new(AtomicU64::new(50 << 20)))
}

/// The same on one of 100 MiB with so much free beside images, in bytes.
fn open_on_disk(directory: &Path, most_bytes: u64, free_bytes: &Arc<AtomicU64>) -> Cache {
    let free_bytes = free_bytes.clone();
    let disk = move |images_bytes| {
        let free_bytes = free_bytes.load(Ordering::Relaxed).saturating_sub(images_bytes);
        Disk { free_bytes, all_bytes: 100 << 20 }
    };
    Cache::open(directory, most_bytes).unwrap().on_disk(disk)
}

/// What somebody else makes who has got so far, in bytes.
async fn making(cache: &Cache, name: &str, bytes: usize) -> Work {
    let work = Work::lock(cache.directory.join(WORK).join(name)).await.unwrap();
    fs::write(work.path.join(IMAGE), vec![1; bytes]).unwrap();
    work
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
    let cache = open(directory.path(), 16 << 20);
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
    let other = open(directory.path(), 16 << 20);
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
    let server = || open(directory.path(), 16 << 20);
    let (a, b, c) = (server(), server(), server());
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
    let cache = open(directory.path(), (5 << 20) / 2);
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
async fn an_image_goes_when_its_layer_has_gone() {
    if !can_run() {
        return;
    }
    let (layers, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [gone, new, kept] = ["gone", "new", "kept"].map(|name| layer(layers.path(), name, 4096));
    let cache = open(directory.path(), 16 << 20);
    for layer in [&gone, &new, &kept] {
        image(&cache, layer).await.unwrap();
    }
    fs::remove_dir_all(&gone).unwrap();
    fs::rename(&new, layers.path().join("old")).unwrap();
    layer(layers.path(), "new", 4096);
    // One that was made before it was written down of what.
    let of_old = directory.path().join(IMAGES).join("of-old.erofs");
    fs::write(&of_old, "").unwrap();
    cache.give_back(0).await.unwrap();
    assert!(cache.find(&Key::of(&kept).unwrap()).is_some() && of_old.exists());
    let sources = fs::read_dir(directory.path().join(SOURCES)).unwrap().count();
    assert_eq!((images(directory.path()), sources), (2, 1));
}

#[tokio::test]
async fn images_make_room_for_others_before_the_disk_is_short() {
    if !can_run() {
        return;
    }
    let (layers, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [a, b] = ["a", "b"].map(|name| layer(layers.path(), name, 1 << 20));
    let free_bytes = Arc::new(AtomicU64::new(50 << 20));
    let cache = open_on_disk(directory.path(), 16 << 20, &free_bytes);
    image(&cache, &a).await.unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    image(&cache, &b).await.unwrap();
    let path = |layer| cache.path(&Key::of(layer).unwrap());
    let are_there = || [&a, &b].map(|layer| path(layer).exists());
    let set_free = |bytes: u64| {
        let images =
            [&a, &b].map(|layer| fs::metadata(path(layer)).map_or(0, |it| taken_bytes(&it)));
        free_bytes.store(bytes + images.iter().sum::<u64>(), Ordering::Relaxed);
    };
    set_free(15 << 20);
    cache.give_back(0).await.unwrap();
    assert_eq!(are_there(), [true, true]);
    // Half of one is lacking.
    cache.give_back(512 << 10).await.unwrap();
    assert_eq!(are_there(), [false, true]);
    // With the other one it has 4 MiB.
    set_free(3 << 20);
    let error = image(&cache, &a).await.unwrap_err();
    assert!(error.message.contains("the node's disk has 4 MiB left"), "{error}");
    assert_eq!((are_there(), work(directory.path())), ([false, false], 0));
    free_bytes.store(50 << 20, Ordering::Relaxed);
    image(&cache, &a).await.unwrap();
}

#[tokio::test]
async fn images_of_which_the_disk_gets_nothing_back_stay() {
    let directory = tempfile::tempdir().unwrap();
    // They share what they have with pools.
    let disk = |_: u64| Disk { free_bytes: 10 << 20, all_bytes: 100 << 20 };
    let server = |most_bytes| Cache::open(directory.path(), most_bytes).unwrap().on_disk(disk);
    let servers = [(); 3].map(|()| server(1 << 20));
    for name in ["a", "b", "c", "d"] {
        fs::write(directory.path().join(IMAGES).join(name), vec![1; 8192]).unwrap();
    }
    for server in servers {
        server.give_back(0).await.unwrap();
        assert_eq!(images(directory.path()), 3, "others than the first one went");
    }
    // They stay within their bound nevertheless.
    server(2 * 8192).give_back(0).await.unwrap();
    assert_eq!(images(directory.path()), 2);
    let in_vain = File::open(directory.path().join("in-vain")).unwrap();
    in_vain.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    server(1 << 20).give_back(0).await.unwrap();
    assert_eq!(images(directory.path()), 1, "it is tried again later");
}

/// Of a server that is silent for some seconds nothing is expected any more.
#[tokio::test]
async fn others_go_on_while_images_make_room() {
    let directory = tempfile::tempdir().unwrap();
    let (goes_on, others) = channel();
    let others = Mutex::new(others);
    let disk = move |_| {
        let gone_on = others.lock().unwrap().recv_timeout(LOCK_LIMIT);
        gone_on.expect("nothing else goes on");
        Disk { free_bytes: 50 << 20, all_bytes: 100 << 20 }
    };
    let cache = Cache::open(directory.path(), 1 << 20).unwrap().on_disk(disk);
    let other = async {
        yield_now().await;
        goes_on.send(()).unwrap();
    };
    let (given_back, ()) = tokio::join!(cache.give_back(0), other);
    given_back.unwrap();
}

#[tokio::test]
async fn what_is_being_made_counts() {
    if !can_run() {
        return;
    }
    let (layers, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [a, b] = ["a", "b"].map(|name| layer(layers.path(), name, 1 << 20));
    let large = layer(layers.path(), "large", 2 << 20);
    let cache = open(directory.path(), (7 << 20) / 2);
    image(&cache, &a).await.unwrap();
    let other = making(&cache, "other", 3 << 20).await;
    image(&cache, &b).await.unwrap();
    let is_there = |layer: &Path| cache.path(&Key::of(layer).unwrap()).exists();
    assert_eq!([is_there(&a), is_there(&b)], [false, true]);
    other.remove().await;
    let smaller = making(&cache, "smaller", (7 << 20) / 4).await;
    let error = image(&cache, &large).await.unwrap_err();
    assert!(error.message.contains("being made take more than 3 MiB together"), "{error}");
    smaller.remove().await;
    image(&cache, &large).await.unwrap();
}

#[tokio::test]
async fn the_largest_that_is_being_made_ends_where_there_is_no_room() {
    let directory = tempfile::tempdir().unwrap();
    let free_bytes = Arc::new(AtomicU64::new(50 << 20));
    let cache = open_on_disk(directory.path(), 16 << 20, &free_bytes);
    let small = making(&cache, "small", 4096).await;
    let large = making(&cache, "large", 8192).await;
    for work in [&small, &large] {
        cache.check_room(&work.path).await.unwrap();
    }
    free_bytes.store(4 << 20, Ordering::Relaxed);
    cache.check_room(&small.path).await.unwrap();
    cache.check_room(&large.path).await.unwrap_err();
    large.remove().await;
    cache.check_room(&small.path).await.unwrap_err();
}

#[tokio::test]
async fn nobody_waits_for_the_end_of_what_a_server_that_is_gone_was_making() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open(directory.path(), 4096);
    let one = making(&cache, "one", 8192).await;
    let left = directory.path().join(WORK).join("left");
    fs::create_dir(&left).unwrap();
    fs::write(left.join(IMAGE), vec![1; 16384]).unwrap();
    cache.check_room(&one.path).await.unwrap_err();
    assert_eq!(work(directory.path()), 2);
}

#[tokio::test]
async fn what_a_server_has_left_half_way_is_no_image_and_goes() {
    if !can_run() {
        return;
    }
    let (layers, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [one, other] = ["one", "other"].map(|name| layer(layers.path(), name, 4096));
    let cache = open(directory.path(), 16 << 20);
    let at = |layer: &Path| directory.path().join(WORK).join(Key::of(layer).unwrap().0);
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
