//! What a container has of volumes in the VM.

use super::{Booted, directories::Read, pod::Pod};
use crate::{
    error::{Error, ErrorKind, Result},
    spec::{self, VolumeKind},
    volumes::{self, Part},
};
use squeezy_protocol::{ErrorCode, VolumeMount};
use squeezy_vmm::VmError;
use std::{
    io,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::{task::spawn_blocking, time::timeout};

/// How long reading or writing files of the host may take.
pub(super) const HOST_LIMIT: Duration = Duration::from_secs(30);

/// The volumes of a container, until it has ended.
#[derive(Default)]
pub(super) struct Volumes {
    /// Where it has them.
    pub(super) mounts: Vec<VolumeMount>,
    /// The files that are written back.
    reports: Vec<(u32, PathBuf)>,
    /// The volumes that only this container has.
    own: Vec<u32>,
    /// The directories of which it has the copies that its pod has.
    directories: Vec<PathBuf>,
}

impl Volumes {
    /// Makes what a container of a pod wants. If that fails, nothing of it is left but what the pod shares.
    pub(super) async fn new(
        booted: &Arc<Booted>,
        pod: &Pod,
        wanted: &[spec::Volume],
    ) -> Result<Self> {
        let mut made = Self::default();
        for volume in wanted {
            if let Err(error) = made.add(booted, pod, volume).await {
                made.remove(booted, pod).await;
                return Err(error);
            }
        }
        Ok(made)
    }

    async fn add(&mut self, booted: &Arc<Booted>, pod: &Pod, wanted: &spec::Volume) -> Result<()> {
        let made = self.make(booted, pod, wanted).await;
        let mount = made.map_err(|error| {
            let (target, source) = (&wanted.target, wanted.source.display());
            Error::new(error.kind, format_args!("volume {target:?} ({source}): {error}"))
        })?;
        self.mounts.push(mount);
        Ok(())
    }

    /// Makes a volume, unless the pod has it. Returns what the container has of it.
    async fn make(
        &mut self,
        booted: &Arc<Booted>,
        pod: &Pod,
        wanted: &spec::Volume,
    ) -> Result<VolumeMount> {
        let mount = |volume| VolumeMount {
            volume,
            file: None,
            part: None,
            target: wanted.target.clone(),
            read_only: wanted.is_read_only,
        };
        if let Some(Part { directory, path }) = shared(wanted).await? {
            let mount = VolumeMount { part: path, ..mount(pod.share(booted, &directory).await?) };
            mount.check().map_err(Error::invalid)?;
            return Ok(mount);
        }
        if wanted.kind == VolumeKind::Part && !wanted.is_read_only {
            return Err(Error::unsupported(
                "a part of a volume of the host that can be written to is not supported by this runtime: mount it with \
                 readOnly, or use an emptyDir",
            ));
        }
        let read = Read::now(booted, &wanted.source).await.map_err(Error::invalid)?;
        if !read.copied.is_file {
            if wanted.kind == VolumeKind::Report {
                return Err(Error::invalid("it is no file"));
            }
            let number = pod.directories().take(booted, pod, &wanted.source, read).await?;
            self.directories.push(wanted.source.clone());
            return Ok(mount(number));
        }
        let (number, copied) = (booted.volume_number(), read.copied);
        pod.copies(number, copied.most_bytes()).await?;
        self.own.push(number);
        booted.vm.agent()?.add_volume(number, &copied.volume).await?;
        if wanted.kind == VolumeKind::Report {
            self.reports.push((number, wanted.source.clone()));
        }
        Ok(VolumeMount { file: Some(volumes::FILE.to_owned()), ..mount(number) })
    }

    /// Writes back what the container has left in files, which has ended.
    pub(super) async fn report(&self, booted: &Booted) {
        for (number, source) in &self.reports {
            let write_back = async {
                let left = booted.vm.agent()?.file_of_volume(*number, volumes::FILE).await?;
                let path = source.clone();
                on_host(move || volumes::write_back(&path, &left)).await.map_err(Error::failed)
            };
            if let Err(error) = write_back.await {
                tracing::error!("{} is not written: {error}", source.display());
            }
        }
    }

    /// Removes those that only this container has, and leaves the others.
    pub(super) async fn remove(self, booted: &Booted, pod: &Pod) {
        for source in self.directories {
            pod.directories().leave(booted, pod, &source).await;
        }
        for number in self.own {
            remove(booted, number).await;
            pod.copies_no_more(number).await;
        }
    }
}

/// The directory that the containers of a pod share, or the part of one, that a volume is; nothing if it is none.
async fn shared(wanted: &spec::Volume) -> Result<Option<Part>> {
    let source = wanted.source.clone();
    match wanted.kind {
        VolumeKind::Shared => Ok(Some(Part { directory: source, path: None })),
        VolumeKind::Part => on_host(move || volumes::part(&source)).await.map_err(Error::failed),
        VolumeKind::Copy | VolumeKind::Report => Ok(None),
    }
}

/// Does something with files of the host, which are kubelet's and containerd's.
pub(super) async fn on_host<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match timeout(HOST_LIMIT, spawn_blocking(work)).await {
        Ok(done) => done.map_err(io::Error::other)?,
        Err(_) => Err(takes_long()),
    }
}

pub(super) fn takes_long() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("it takes longer than {HOST_LIMIT:?}"))
}

/// Removes a volume from the VM; its files go when nobody has it any more.
pub(super) async fn remove(booted: &Booted, number: u32) {
    let removed = match booted.vm.agent() {
        Ok(agent) => agent.remove_volume(number).await,
        Err(error) => Err(error),
    };
    match removed {
        // It was not made.
        Ok(()) | Err(VmError::Agent { code: ErrorCode::NotFound, .. }) => {}
        Err(error) => tracing::error!("volume {number} is left in the VM: {error}"),
    }
}

/// The most that the copies of a pod's containers can take together, in bytes: what base memory has for them.
pub(super) const COPIES_BYTES: u64 = 4 << 20;

/// Checks that copies that can take so much, in bytes each, are not too much for a pod.
pub(super) fn check(copies: impl IntoIterator<Item = u64>) -> Result<()> {
    if copies.into_iter().sum::<u64>() <= COPIES_BYTES {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Full,
        format_args!(
            "the copies of the pod's volumes would take more than {} MiB",
            COPIES_BYTES >> 20
        ),
    ))
}

impl Booted {
    /// A number that no other volume has.
    pub(super) fn volume_number(&self) -> u32 {
        self.volumes.fetch_add(1, Ordering::Relaxed)
    }
}
