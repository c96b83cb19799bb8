use super::*;
use crate::{layers::disk::Disk, skip::skip};
use rustix::{fs::fstatvfs, process::geteuid};
use std::{
    fs,
    os::unix::fs::FileExt,
    sync::{
        Mutex as Lock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{sync::Notify, time::timeout};

/// Keeps the books of a guest, and refuses what a guest refuses.
#[derive(Default)]
struct Books {
    layers: Lock<Vec<Layer>>,
    /// What layers had that were removed, in bytes.
    removed_bytes: Arc<AtomicU64>,
    /// Layers that cannot be removed.
    stuck: Lock<Vec<u64>>,
    /// Whether it says that it has not taken what it has taken.
    is_forgetful: Lock<bool>,
    /// Whether it says that it takes a layer, and goes on when it is told to.
    is_slow: Lock<bool>,
    takes: Notify,
    goes_on: Notify,
}

impl Guest for Books {
    fn add(&self, layer: Layer) -> BoxFuture<'_, Result<()>> {
        let mut layers = self.layers.lock().unwrap();
        assert!(layers.iter().all(|other| !other.overlaps(layer)), "{layer:?}");
        layers.push(layer);
        let is_forgetful = *self.is_forgetful.lock().unwrap();
        let is_slow = *self.is_slow.lock().unwrap();
        Box::pin(async move {
            if is_slow {
                self.takes.notify_one();
                self.goes_on.notified().await;
            }
            if is_forgetful { Err(Error::failed("the VM does not answer")) } else { Ok(()) }
        })
    }

    fn remove(&self, offset_bytes: u64) -> BoxFuture<'_, Result<()>> {
        let result = if self.stuck.lock().unwrap().contains(&offset_bytes) {
            Err(Error::failed("it is still open"))
        } else {
            let mut layers = self.layers.lock().unwrap();
            let gone = layers.extract_if(.., |layer| layer.offset_bytes == offset_bytes);
            let gone_bytes = gone.map(|layer| layer.length_bytes).sum::<u64>();
            self.removed_bytes.fetch_add(gone_bytes, Ordering::Relaxed);
            Ok(())
        };
        Box::pin(async { result })
    }
}

struct Bench {
    directory: tempfile::TempDir,
    cache: Cache,
    /// What the disk has free of 100 MiB beside images, in bytes, as long as no layer is removed.
    free_bytes: Arc<AtomicU64>,
    pool: Pool,
    guest: Books,
}

impl Bench {
    /// A pool with room for two layers of a MiB.
    fn new() -> Option<Self> {
        if !geteuid().is_root() {
            skip("only root can read others' files");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let free_bytes = Arc::new(AtomicU64::new(50 << 20));
        let guest = Books::default();
        let (free, removed) = (free_bytes.clone(), guest.removed_bytes.clone());
        let disk = move |images_bytes| {
            let [free, removed] = [&free, &removed].map(|bytes| bytes.load(Ordering::Relaxed));
            let free_bytes = (free + removed).saturating_sub(images_bytes);
            Disk { free_bytes, all_bytes: 100 << 20 }
        };
        let cache = Cache::open(&directory.path().join("cache"), 64 << 20).unwrap().on_disk(disk);
        let pool = Pool::new(cache.unnamed_file().unwrap(), 5 << 20).unwrap();
        Some(Self { directory, cache, free_bytes, pool, guest })
    }

    fn layer(&self, name: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), name.repeat((1 << 20) / name.len())).unwrap();
        path
    }

    async fn take(&self, layers: &[&PathBuf]) -> Result<Taken> {
        self.take_beside(layers, &[]).await
    }

    /// The same for a pod whose other containers have those at these offsets.
    async fn take_beside(&self, layers: &[&PathBuf], of_pod: &[u64]) -> Result<Taken> {
        let layers: Vec<PathBuf> = layers.iter().copied().cloned().collect();
        self.pool.take(&self.cache, &self.guest, &layers, of_pod).await
    }

    fn has(&self, offset: u64, text: &str) -> bool {
        let mut bytes = vec![0; 1 << 20];
        let count = self.pool.file.read_at(&mut bytes, offset).unwrap();
        bytes[..count].windows(64).any(|window| window == &text.repeat(64).as_bytes()[..64])
    }
}

#[test]
fn a_pool_is_in_memory_or_not() {
    let pool = |file: File| Pool {
        file: Arc::new(file),
        ranges: Mutex::new(Ranges::new(Layer::GRANULE_BYTES)),
        changing: Mutex::default(),
    };
    let in_memory = rustix::fs::memfd_create("pool", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    assert_eq!(pool(in_memory.into()).in_memory_bytes(), u64::MAX, "of no size");
    let of_a_size = File::open("/dev/shm").unwrap();
    let disk = fstatvfs(&of_a_size).unwrap();
    assert_eq!(pool(of_a_size).in_memory_bytes(), disk.f_blocks * disk.f_frsize);
    assert_eq!(pool(File::open("/proc/version").unwrap()).in_memory_bytes(), 0);
}

#[tokio::test]
async fn containers_share_layers_and_each_is_where_it_is_said_to_be() {
    let Some(bench) = Bench::new() else { return };
    let (base, top) = (bench.layer("base"), bench.layer("top!"));
    let first = bench.take(&[&top, &base]).await.unwrap();
    let second = bench.take(&[&base]).await.unwrap();
    assert_eq!(second.offsets(), &first.offsets()[1..]);
    assert!(bench.has(first.offsets()[0], "top!") && bench.has(first.offsets()[1], "base"));
    assert!(!bench.has(0, "top!"));
    assert_eq!(bench.guest.layers.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_layer_that_nobody_has_stays_until_its_place_is_needed() {
    let Some(bench) = Bench::new() else { return };
    let [a, b, c] = ["aaaa", "bbbb", "cccc"].map(|name| bench.layer(name));
    let of_a = bench.take(&[&a]).await.unwrap();
    let place = of_a.offsets()[0];
    bench.pool.leave(of_a).await;
    let again = bench.take(&[&a]).await.unwrap();
    assert_eq!(again.offsets(), [place]);
    let of_b = bench.take(&[&b]).await.unwrap();
    let error = bench.take(&[&c]).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Crowded);
    assert!(error.message.contains("no place for the layer"), "{error}");
    bench.pool.leave(again).await;
    let of_c = bench.take(&[&c]).await.unwrap();
    assert_eq!(of_c.offsets(), [place]);
    assert!(bench.has(place, "cccc") && !bench.has(place, "aaaa"));
    assert!(bench.has(of_b.offsets()[0], "bbbb"));
}

#[tokio::test]
async fn a_container_that_cannot_have_all_layers_has_none() {
    let Some(bench) = Bench::new() else { return };
    let layers = ["aaaa", "bbbb", "cccc"].map(|name| bench.layer(name));
    bench.take(&layers.each_ref()).await.unwrap_err();
    let absent = bench.directory.path().join("absent");
    bench.take(&[&layers[0], &absent]).await.unwrap_err();
    // So all places are free for others.
    bench.take(&[&layers[1], &layers[2]]).await.unwrap();
}

#[tokio::test]
async fn a_pod_whose_layers_no_vm_has_place_for_is_not_sent_to_another_one() {
    let Some(bench) = Bench::new() else { return };
    let [a, b, c] = ["aaaa", "bbbb", "cccc"].map(|name| bench.layer(name));
    let (of_a, of_b) = (bench.take(&[&a]).await.unwrap(), bench.take(&[&b]).await.unwrap());
    // What containers of a pod share counts once.
    for layers in [vec![&c], vec![&c, &a]] {
        let error = bench.take_beside(&layers, of_a.offsets()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Crowded, "{error}");
    }
    let both = [of_a.offsets(), of_b.offsets()].concat();
    for (layers, of_pod) in [(vec![&c], both), (vec![&a, &b, &c], Vec::new())] {
        let error = bench.take_beside(&layers, &of_pod).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Full);
        assert!(error.message.contains("the pod's containers have 3 layers"), "{error}");
    }
}

#[tokio::test]
async fn a_place_that_the_guest_does_not_give_back_is_not_used_again() {
    let Some(bench) = Bench::new() else { return };
    let [a, b, c] = ["aaaa", "bbbb", "cccc"].map(|name| bench.layer(name));
    let of_a = bench.take(&[&a]).await.unwrap();
    let stuck = of_a.offsets()[0];
    bench.guest.stuck.lock().unwrap().push(stuck);
    bench.pool.leave(of_a).await;
    let of_b = bench.take(&[&b]).await.unwrap();
    let place = of_b.offsets()[0];
    bench.pool.leave(of_b).await;
    let of_c = bench.take(&[&c]).await.unwrap();
    assert_eq!(of_c.offsets(), [place]);
    assert!(bench.has(stuck, "aaaa"));
    // Until it does.
    bench.guest.stuck.lock().unwrap().clear();
    assert_eq!(bench.take(&[&a]).await.unwrap().offsets(), [stuck]);
}

#[tokio::test]
async fn a_layer_that_the_guest_has_without_saying_so_is_in_nobodys_way() {
    let Some(bench) = Bench::new() else { return };
    let [a, b] = ["aaaa", "bbbb"].map(|name| bench.layer(name));
    *bench.guest.is_forgetful.lock().unwrap() = true;
    bench.take(&[&a]).await.unwrap_err();
    *bench.guest.is_forgetful.lock().unwrap() = false;
    // The guest refuses one that is in the place of another.
    let of_b = bench.take(&[&b]).await.unwrap();
    assert!(bench.has(of_b.offsets()[0], "bbbb"));
    assert_eq!(bench.guest.layers.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn whose_layers_are_there_does_not_wait_for_one_that_is_put_there() {
    let Some(bench) = Bench::new() else { return };
    let [base, new] = ["base", "new!"].map(|name| bench.layer(name));
    let of_base = bench.take(&[&base]).await.unwrap();
    *bench.guest.is_slow.lock().unwrap() = true;
    let new = [&new];
    let others = async {
        bench.guest.takes.notified().await;
        assert_eq!(bench.take(&[&base]).await.unwrap(), of_base);
        bench.pool.leave(Taken(of_base.offsets().to_vec())).await;
        bench.guest.goes_on.notify_one();
    };
    let all = async { tokio::join!(bench.take(&new), bench.take(&new), others) };
    let (first, second, ()) = timeout(Duration::from_secs(60), all).await.expect("they wait");
    let first = first.unwrap();
    assert_eq!(second.unwrap(), first, "it is there twice");
    assert!(bench.has(first.offsets()[0], "new!") && bench.has(of_base.offsets()[0], "base"));
    assert_eq!(bench.guest.layers.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_layer_that_the_disk_has_no_room_for_is_refused_once_no_image_can_make_room() {
    let Some(bench) = Bench::new() else { return };
    let [a, b] = ["aaaa", "bbbb"].map(|name| bench.layer(name));
    bench.take(&[&a]).await.unwrap();
    let of_b = Key::of(&b).unwrap();
    bench.cache.image(&b, &of_b).await.unwrap();
    // A MiB of it is in the image that is there.
    bench.free_bytes.store(11 << 19, Ordering::Relaxed);
    let error = bench.take(&[&b]).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Full);
    assert!(error.message.contains("the node's disk has 5 MiB left"), "{error}");
    let images = bench.directory.path().join("cache/images");
    assert_eq!(fs::read_dir(images).unwrap().count(), 0, "images have made no room");
    bench.free_bytes.store(50 << 20, Ordering::Relaxed);
    bench.take(&[&b]).await.unwrap();
}

#[tokio::test]
async fn layers_that_nobody_has_make_room_on_the_disk_as_long_as_it_is_short() {
    let Some(bench) = Bench::new() else { return };
    let [a, b, c] = ["aaaa", "bbbb", "cccc"].map(|name| bench.layer(name));
    let (of_a, of_b) = (bench.take(&[&a]).await.unwrap(), bench.take(&[&b]).await.unwrap());
    let [place_of_a, place_of_b] = [&of_a, &of_b].map(|taken| taken.offsets()[0]);
    let give_back = async || bench.pool.give_back(&bench.cache, &bench.guest).await.unwrap();
    let layers = || bench.guest.layers.lock().unwrap().len();
    bench.pool.leave(of_a).await;
    give_back().await;
    assert_eq!(layers(), 2, "the disk is not short");
    for image in fs::read_dir(bench.directory.path().join("cache/images")).unwrap() {
        fs::remove_file(image.unwrap().path()).unwrap();
    }
    // It lacks one byte.
    bench.free_bytes.store((15 << 20) - 1, Ordering::Relaxed);
    bench.pool.leave(of_b).await;
    give_back().await;
    assert!(!bench.has(place_of_a, "aaaa") && bench.has(place_of_b, "bbbb"), "a was used before b");
    // One that a container has stays.
    let of_b = bench.take(&[&b]).await.unwrap();
    bench.free_bytes.store(0, Ordering::Relaxed);
    give_back().await;
    assert_eq!((layers(), of_b.offsets()), (1, &[place_of_b][..]));

    bench.pool.leave(of_b).await;
    bench.free_bytes.store(50 << 20, Ordering::Relaxed);
    bench.cache.image(&c, &Key::of(&c).unwrap()).await.unwrap();
    // Beside what is left to others, there is half of what it takes.
    let removed_bytes = bench.guest.removed_bytes.load(Ordering::Relaxed);
    bench.free_bytes.store((11 << 19) - removed_bytes, Ordering::Relaxed);
    let of_c = bench.take(&[&c]).await.unwrap();
    assert!(bench.has(of_c.offsets()[0], "cccc") && !bench.has(place_of_b, "bbbb"));
}
