//! The layers of one VM, in its pool drive.
//!
//! A layer that no container has stays there for the next one, until its place is needed or the disk is short.

use super::{Cache, Key, ranges::Ranges};
use crate::{
    error::{Error, ErrorKind, Result},
    volumes::TMPFS,
};
use futures_util::future::BoxFuture;
use rustix::fs::{FallocateFlags, fallocate, fstatfs};
use squeezy_protocol::Layer;
use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::{sync::Mutex, task::spawn_blocking};

/// From linux/magic.h. Nobody says what is below the latter.
const RAMFS: i64 = 0x8584_58f6;
const OVERLAYFS: i64 = 0x794c_7630;

/// The guest's side of a pool.
pub trait Guest: Send + Sync {
    /// Mounts a layer.
    fn add(&self, layer: Layer) -> BoxFuture<'_, Result<()>>;
    /// Unmounts the layer at this offset, if it is there. Nothing of it is read any more when this returns.
    fn remove(&self, offset_bytes: u64) -> BoxFuture<'_, Result<()>>;
}

/// The pool of a VM.
pub struct Pool {
    file: Arc<File>,
    /// Locked for moments only.
    ranges: Mutex<Ranges>,
    /// Whoever puts a layer into the pool, which takes as long as copying it, or removes one, has it.
    changing: Mutex<()>,
}

/// Layers that a container has, until they are [left](Pool::leave).
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Taken(Vec<u64>);

impl Taken {
    /// Their offsets in the pool, the topmost first.
    pub fn offsets(&self) -> &[u64] {
        &self.0
    }
}

impl Pool {
    /// An empty pool in a file, which gets this length in bytes, and takes what is in it.
    ///
    /// # Errors
    /// The file cannot be that long.
    pub fn new(file: File, bytes: u64) -> io::Result<Self> {
        file.set_len(bytes)?;
        let ranges = Mutex::new(Ranges::new(bytes));
        Ok(Self { file: Arc::new(file), ranges, changing: Mutex::default() })
    }

    /// The file, for the VM to read.
    pub fn file(&self) -> Arc<File> {
        self.file.clone()
    }

    /// What may be in the host's memory of the file system that the file is in, and so of all images, in bytes: nothing
    /// if that is on a disk.
    pub fn in_memory_bytes(&self) -> u64 {
        match fstatfs(&*self.file) {
            Ok(found) if ![TMPFS, RAMFS, OVERLAYFS].contains(&found.f_type) => 0,
            Ok(found) if found.f_blocks != 0 => {
                found.f_blocks.saturating_mul(found.f_frsize.unsigned_abs())
            }
            // It has no size.
            _ => u64::MAX,
        }
    }

    /// Takes the layers of these directories for a container: those that are not there yet are put there. `of_pod` are
    /// the offsets of those that other containers of its pod have.
    ///
    /// # Errors
    /// One cannot be made or has no place; then none is taken. It is [crowded](ErrorKind::Crowded) if all of the pod's
    /// have place in the pool of a VM without other pods.
    pub async fn take(
        &self,
        cache: &Cache,
        guest: &dyn Guest,
        directories: &[PathBuf],
        of_pod: &[u64],
    ) -> Result<Taken> {
        let mut taken = Taken::default();
        for directory in directories {
            match self.take_one(cache, guest, directory).await {
                Ok(offset) => taken.0.push(offset),
                Err(error) => {
                    self.leave(taken).await;
                    if error.kind == ErrorKind::Crowded {
                        self.check_alone(cache, directories, of_pod).await?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    /// Checks that these layers, and what the pod's other containers have, have place in a VM without other pods.
    async fn check_alone(
        &self,
        cache: &Cache,
        directories: &[PathBuf],
        of_pod: &[u64],
    ) -> Result<()> {
        let mut lengths = self.ranges.lock().await.lengths(of_pod);
        for directory in directories {
            let key = Key::of(directory)?;
            if lengths.contains_key(&key) {
                continue;
            }
            let image = cache.image(directory, &key).await?;
            lengths.insert(key, image.metadata().map_err(Error::failed)?.len());
        }
        if self.ranges.lock().await.would_hold(lengths.values().copied()) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Full,
            format_args!(
                "the pod's containers have {} layers of {} MiB together, and a VM has place for {} within layers_gib \
                 (shim.toml)",
                lengths.len(),
                lengths.values().sum::<u64>() >> 20,
                Layer::MAX_COUNT
            ),
        ))
    }

    /// Leaves the layers of a container that is gone from the guest.
    pub async fn leave(&self, taken: Taken) {
        let mut ranges = self.ranges.lock().await;
        for offset in taken.0 {
            ranges.leave(offset);
        }
    }

    /// Removes layers that no container has, those that were not used for longest first, until the disk is not short.
    ///
    /// # Errors
    /// The disk cannot be looked at.
    pub async fn give_back(&self, cache: &Cache, guest: &dyn Guest) -> io::Result<()> {
        let _turn = self.changing.lock().await;
        self.make_room(cache, guest, 0).await
    }

    async fn take_one(&self, cache: &Cache, guest: &dyn Guest, directory: &Path) -> Result<u64> {
        let key = Key::of(directory)?;
        if let Some(offset) = self.ranges.lock().await.take(&key) {
            return Ok(offset);
        }
        // Others need not wait for this.
        let image = cache.image(directory, &key).await?;
        let _turn = self.changing.lock().await;
        if let Some(offset) = self.ranges.lock().await.take(&key) {
            return Ok(offset);
        }
        let failed = |error: &dyn std::fmt::Display| {
            Error::failed(format_args!(
                "cannot put the layer {} into the VM's pool: {error}",
                directory.display()
            ))
        };
        let length_bytes = image.metadata().map_err(|error| failed(&error))?.len();
        let mut disk = cache.disk().map_err(|error| failed(&error))?;
        if !disk.has_room(length_bytes) {
            cache.give_back(length_bytes).await.map_err(|error| failed(&error))?;
            let made = self.make_room(cache, guest, length_bytes).await;
            made.map_err(|error| failed(&error))?;
            disk = cache.disk().map_err(|error| failed(&error))?;
        }
        if !disk.has_room(length_bytes) {
            return Err(Error::new(
                ErrorKind::Full,
                format_args!(
                    "the node's disk has {} MiB left, which is too little for a layer of {} MiB",
                    disk.free_bytes >> 20,
                    length_bytes >> 20
                ),
            ));
        }
        let layer = self.place(guest, length_bytes, directory).await?;
        let put = async {
            let file = self.file.clone();
            spawn_blocking(move || copy(image, &file, layer.offset_bytes, length_bytes))
                .await
                .map_err(|error| failed(&error))?
                .map_err(|error| failed(&error))?;
            guest.add(layer).await
        };
        if let Err(error) = put.await {
            // It may be there though nobody has said so.
            self.remove(guest, layer).await;
            return Err(error);
        }
        self.ranges.lock().await.fill(layer.offset_bytes, key);
        Ok(layer.offset_bytes)
    }

    /// Removes layers that no container has until the disk is not short with so many more bytes. Whoever calls has the
    /// turn to change the pool.
    async fn make_room(&self, cache: &Cache, guest: &dyn Guest, more_bytes: u64) -> io::Result<()> {
        // Those that the guest keeps are there to be removed again.
        let count = self.ranges.lock().await.count();
        for _ in 0..count {
            if cache.disk()?.lacks_bytes(more_bytes) == 0 {
                break;
            }
            let oldest = self.ranges.lock().await.clear_oldest();
            let Some(oldest) = oldest else { break };
            self.remove(guest, oldest).await;
        }
        Ok(())
    }

    /// Removes a layer that holds nothing for anybody. Its range stays taken if the guest does not let go of it.
    async fn remove(&self, guest: &dyn Guest, layer: Layer) {
        match guest.remove(layer.offset_bytes).await {
            Ok(()) => {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                if let Err(error) =
                    fallocate(&*self.file, hole, layer.offset_bytes, layer.length_bytes)
                {
                    tracing::warn!("a range of the pool cannot be given back: {error}");
                }
                self.ranges.lock().await.remove(layer.offset_bytes);
            }
            Err(error) => tracing::warn!("a layer cannot be removed: {error}"),
        }
    }

    /// Takes a free range, for which others without users may have to go.
    async fn place(&self, guest: &dyn Guest, length_bytes: u64, directory: &Path) -> Result<Layer> {
        let count = self.ranges.lock().await.count();
        for _ in 0..=count {
            let oldest = {
                let mut ranges = self.ranges.lock().await;
                if let Some(layer) = ranges.find_free(length_bytes) {
                    ranges.add(layer);
                    return Ok(layer);
                }
                ranges.clear_oldest()
            };
            let Some(oldest) = oldest else { break };
            self.remove(guest, oldest).await;
        }
        Err(Error::new(
            ErrorKind::Crowded,
            format_args!(
                "the VM has no place for the layer {} of {} MiB beside those of other pods: the pod is sent to another \
                 VM when it is made anew",
                directory.display(),
                length_bytes >> 20
            ),
        ))
    }
}

/// Copies an image to its place; where the file system can do that, without copying anything.
fn copy(image: File, mut pool: &File, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
    pool.seek(SeekFrom::Start(offset_bytes))?;
    let copied = io::copy(&mut image.take(length_bytes), &mut pool)?;
    if copied == length_bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests;
