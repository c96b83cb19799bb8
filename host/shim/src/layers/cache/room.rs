//! Room for images: within their bound, and on the disk, where they are the first to go, for they can be made again.

use super::{Cache, IMAGE, IMAGES, Key, SOURCES, WORK, in_thread, taken_bytes};
use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};
use tokio::time::sleep;

/// How often it is looked whether there is room for what is being made.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// The file whose time says when an image was last removed of which the disk got nothing back.
const IN_VAIN: &str = "in-vain";
/// How long none is removed for the disk after that, by any server.
const IN_VAIN_INTERVAL: Duration = Duration::from_secs(60);

impl Cache {
    /// Removes images whose layers are gone, and others until the disk is not short with so many more bytes.
    ///
    /// # Errors
    /// One cannot be removed, or the disk not be looked at.
    pub async fn give_back(&self, more_bytes: u64) -> io::Result<()> {
        let (all, cache) = (self.lock_all().await?, self.clone());
        in_thread(move || {
            let _all = all;
            cache.make_room(more_bytes)
        })
        .await
    }

    /// Makes an image, as long as there is room for it.
    pub(super) async fn make_in_room(&self, layer: &Path, work: &Path) -> io::Result<()> {
        self.give_back(0).await?;
        self.check_room(work).await?;
        tokio::select! {
            made = self.make(layer, work) => made?,
            error = self.until_there_is_no_room(work) => return Err(error),
        }
        self.check_room(work).await
    }

    async fn until_there_is_no_room(&self, work: &Path) -> io::Error {
        loop {
            sleep(LOOK_INTERVAL).await;
            if let Err(error) = self.check_room(work).await {
                return error;
            }
        }
    }

    /// Checks that what is being made there may go on. Where there is no room, images go first, and then the largest of
    /// those that are being made, which is the one that the others wait for.
    pub(super) async fn check_room(&self, work: &Path) -> io::Result<()> {
        let mut disk = self.disk()?;
        if !disk.has_room(0) {
            self.give_back(0).await?;
            disk = self.disk()?;
        }
        let made = self.being_made()?;
        let why = if !disk.has_room(0) {
            format!("the node's disk has {} MiB left", disk.free_bytes >> 20)
        } else if made.iter().map(|(bytes, _)| bytes).sum::<u64>() > self.most_bytes {
            let most_mib = self.most_bytes >> 20;
            format!("images that are being made take more than {most_mib} MiB together")
        } else {
            return Ok(());
        };
        match made.iter().max() {
            Some((_, largest)) if largest != work => Ok(()),
            _ => Err(io::Error::other(why)),
        }
    }

    /// Those that are being made, with what they take, in bytes. What a server that is gone was making would be waited
    /// for in vain.
    fn being_made(&self) -> io::Result<Vec<(u64, PathBuf)>> {
        let works = fs::read_dir(self.directory.join(WORK))?.flatten().map(|work| work.path());
        let takes = |work: &Path| fs::metadata(work.join(IMAGE)).map_or(0, |it| taken_bytes(&it));
        Ok(works.filter(|work| is_locked(work)).map(|work| (takes(&work), work)).collect())
    }

    /// Removes what was left of images by whoever did not end to make them, images whose layers are gone, and others
    /// until all are within their bound, with those that are being made, and the disk is not short with so many more
    /// bytes, or gets nothing back. Whoever calls has all of them locked.
    pub(super) fn make_room(&self, more_bytes: u64) -> io::Result<()> {
        for entry in fs::read_dir(self.directory.join(WORK))?.flatten() {
            let Ok(work) = File::open(entry.path()) else { continue };
            // Whoever is at it has it locked, and whoever comes now waits until it is gone.
            if work.try_lock().is_ok()
                && let Err(error) = fs::remove_dir_all(entry.path())
            {
                tracing::warn!("{} cannot be removed: {error}", entry.path().display());
            }
        }
        let mut images: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(self.directory.join(IMAGES))?.flatten() {
            if self.has_no_source(&entry.path()) {
                fs::remove_file(entry.path())?;
                continue;
            }
            let metadata = entry.metadata()?;
            images.push((metadata.modified()?, taken_bytes(&metadata), entry.path()));
        }
        images.sort();
        let all_bytes = images.iter().map(|(_, bytes, _)| bytes).sum::<u64>()
            + self.being_made()?.iter().map(|(bytes, _)| bytes).sum::<u64>();
        let mut over_bytes = all_bytes.saturating_sub(self.most_bytes);
        let mut disk = self.disk()?;
        let mut is_in_vain = self.was_in_vain();
        for (_, bytes, path) in images {
            let is_short = !is_in_vain && disk.lacks_bytes(more_bytes) > 0;
            if over_bytes == 0 && !is_short {
                break;
            }
            fs::remove_file(&path)?;
            over_bytes = over_bytes.saturating_sub(bytes);
            if is_short {
                let before_bytes = disk.free_bytes;
                disk = self.disk()?;
                is_in_vain = disk.free_bytes <= before_bytes;
                if is_in_vain {
                    File::create(self.directory.join(IN_VAIN))?.set_modified(SystemTime::now())?;
                }
            }
        }
        for source in fs::read_dir(self.directory.join(SOURCES))?.flatten() {
            let key = Key(source.file_name().to_string_lossy().into_owned());
            if !self.path(&key).exists() {
                fs::remove_file(source.path())?;
            }
        }
        Ok(())
    }

    /// Whether the disk got nothing back of an image that was removed a moment ago. On a file system that copies without
    /// copying, the pools of VMs have what is in images, and all would be removed for nothing.
    fn was_in_vain(&self) -> bool {
        let when = fs::metadata(self.directory.join(IN_VAIN)).and_then(|file| file.modified());
        when.is_ok_and(|when| when.elapsed().is_ok_and(|passed| passed < IN_VAIN_INTERVAL))
    }

    /// Whether the layer that this is an image of is not there any more. Nobody knows that of images that were made
    /// before it was written down.
    fn has_no_source(&self, image: &Path) -> bool {
        let Some(key) = image.file_stem() else { return false };
        let Ok(layer) = fs::read_link(self.directory.join(SOURCES).join(key)) else { return false };
        Key::of(&layer).ok().is_none_or(|found| key != found.0.as_str())
    }
}

/// Whether somebody has it locked. Others may ask at the same time.
fn is_locked(work: &Path) -> bool {
    let locked = File::open(work).map(|work| work.try_lock_shared());
    matches!(locked, Ok(Err(TryLockError::WouldBlock)))
}
