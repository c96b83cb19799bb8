//! Directories of the host that containers of a pod have copies of: one for all that have the same.

use super::{Booted, pod::Pod, volumes::remove};
use crate::{
    error::{Error, Result},
    volumes::{self, Copied},
};
use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::Mutex,
    task::JoinSet,
    time::{Instant, sleep},
};

/// How often it is looked whether what was copied has changed. kubelet itself takes a minute.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// What was read of a file or directory.
pub(super) struct Read {
    /// When that began.
    since: Instant,
    pub(super) copied: Copied,
}

impl Read {
    /// Reads what is there now.
    pub(super) async fn now(booted: &Booted, source: &Path) -> io::Result<Self> {
        let since = Instant::now();
        let copied = booted.reads.read(source, volumes::copy).await?;
        Ok(Self { since, copied })
    }
}

/// The copies of a pod's containers, by what they are copies of. Locked while one is made, changed or removed.
#[derive(Default)]
pub(super) struct Directories(Mutex<HashMap<PathBuf, Directory>>);

struct Directory {
    /// The volume that it is.
    number: u32,
    /// How many volumes of containers it is.
    users: usize,
    last: Read,
    _follows: JoinSet<()>,
}

impl Directories {
    /// The volume that is a copy of a directory, of which this was read: made, if the pod has none.
    pub(super) async fn take(
        &self,
        booted: &Arc<Booted>,
        pod: &Pod,
        source: &Path,
        read: Read,
    ) -> Result<u32> {
        let mut directories = self.0.lock().await;
        if let Some(directory) = directories.get_mut(source) {
            if let Err(error) = directory.change(booted, pod, read).await {
                stays(source, &error);
            }
            directory.users += 1;
            return Ok(directory.number);
        }
        let number = booted.volume_number();
        pod.copies(number, read.copied.most_bytes()).await?;
        let made = async { booted.vm.agent()?.add_volume(number, &read.copied.volume).await };
        if let Err(error) = made.await {
            give_back(booted, pod, number).await;
            return Err(error.into());
        }
        let mut follows = JoinSet::new();
        follows.spawn(follow(booted.clone(), pod.clone(), source.to_owned()));
        let directory = Directory { number, users: 1, last: read, _follows: follows };
        directories.insert(source.to_owned(), directory);
        Ok(number)
    }

    /// Gives back what was [taken](Self::take) of this source.
    pub(super) async fn leave(&self, booted: &Booted, pod: &Pod, source: &Path) {
        let mut directories = self.0.lock().await;
        let Some(directory) = directories.get_mut(source) else { return };
        directory.users -= 1;
        if directory.users == 0 {
            let number = directory.number;
            directories.remove(source);
            give_back(booted, pod, number).await;
        }
    }

    /// Changes a copy to what was read, if there still is one.
    async fn change(&self, booted: &Booted, pod: &Pod, source: &Path, read: Read) -> Result<()> {
        match self.0.lock().await.get_mut(source) {
            Some(directory) => directory.change(booted, pod, read).await,
            None => Ok(()),
        }
    }
}

impl Directory {
    /// Makes it what was read, unless that is older than what it is.
    async fn change(&mut self, booted: &Booted, pod: &Pod, read: Read) -> Result<()> {
        let (now, last) = (&read.copied, &self.last);
        if read.since < last.since || *now == last.copied {
            return Ok(());
        }
        if now.is_file {
            return Err(Error::failed("it is no directory any more"));
        }
        // Until it has changed, it is as large as it was.
        pod.copies(self.number, now.most_bytes().max(last.copied.most_bytes())).await?;
        booted.vm.agent()?.change_volume(self.number, &now.volume).await?;
        pod.copies(self.number, now.most_bytes()).await?;
        self.last = read;
        Ok(())
    }
}

async fn give_back(booted: &Booted, pod: &Pod, number: u32) {
    remove(booted, number).await;
    pod.copies_no_more(number).await;
}

/// Makes a copy what the directory of the host is, whenever that changes.
async fn follow(booted: Arc<Booted>, pod: Pod, source: PathBuf) {
    let mut said = String::new();
    loop {
        sleep(LOOK_INTERVAL).await;
        let looked = match Read::now(&booted, &source).await {
            Ok(read) => pod.directories().change(&booted, &pod, &source, read).await,
            Err(error) => Err(Error::failed(error)),
        };
        match looked {
            Ok(()) => said.clear(),
            // Once for each.
            Err(error) if error.message == said => {}
            Err(error) => {
                stays(&source, &error);
                said = error.message;
            }
        }
    }
}

fn stays(source: &Path, error: &Error) {
    tracing::warn!("volume {} stays as it was: {error}", source.display());
}
