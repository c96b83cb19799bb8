//! The VM behind a server: pods have a partition each, and roots are made of layers in its pool.

mod boot;
mod container;

use crate::{
    Id,
    error::{Error, ErrorKind, Result},
    layers::{Cache, Guest, Pool},
    serve::Assignment,
    spec::Pod,
    vm::{Container, Ended, Limits, Output, Signal, Usage, Vm},
};
use boot::boot;
use container::{Made, Memory};
use futures_util::future::BoxFuture;
use squeezy_protocol::{ErrorCode, Layer};
use squeezy_vmm::{VmError, mechanism::Mechanism};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::sync::watch;

/// Where images of layers are kept.
pub const LAYERS: &str = "/var/lib/squeezy/layers";
/// How much they may take, in bytes.
const LAYERS_BYTES: u64 = 16 << 30;

/// The VM of a server. It boots with the first pod.
pub struct Machine {
    name: String,
    partition_bytes: u64,
    layers: PathBuf,
    /// Whoever boots has it.
    booting: tokio::sync::Mutex<()>,
    booted: watch::Sender<Option<Arc<Booted>>>,
    inside: Mutex<Inside>,
    /// Counts instances.
    started: AtomicU64,
}

/// What there is once it has booted.
struct Booted {
    vm: squeezy_vmm::Vm,
    mechanism: Box<dyn Mechanism>,
    pool: Pool,
    cache: Cache,
}

#[derive(Default)]
struct Inside {
    /// The memory of each pod.
    pods: HashMap<Id, Memory>,
    containers: HashMap<Id, Arc<Made>>,
}

impl Machine {
    /// The VM of this server, with images of layers in `layers` (usually [`LAYERS`]). It does not boot yet.
    pub fn new(assignment: &Assignment, layers: &Path) -> Self {
        Self {
            name: assignment.server.as_str().to_owned(),
            partition_bytes: assignment.partition_bytes,
            layers: layers.to_owned(),
            booting: tokio::sync::Mutex::default(),
            booted: watch::channel(None).0,
            inside: Mutex::default(),
            started: AtomicU64::default(),
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Boots it, if nobody has.
    async fn boot(&self) -> Result<Arc<Booted>> {
        let _turn = self.booting.lock().await;
        let booted = self.booted.borrow().clone();
        if let Some(booted) = booted {
            return Ok(booted);
        }
        let cache = Cache::open(&self.layers, LAYERS_BYTES)?;
        let booted = Arc::new(boot(&self.name, self.partition_bytes, cache).await?);
        self.booted.send_replace(Some(booted.clone()));
        Ok(booted)
    }

    fn booted(&self) -> Result<Arc<Booted>> {
        self.booted.borrow().clone().ok_or_else(|| Error::state("the VM has not booted"))
    }

    fn pod(&self, id: &Id) -> Result<Memory> {
        let pod = self.inside().pods.get(id).cloned();
        pod.ok_or_else(|| Error::state(format_args!("there is no pod {id} in the VM")))
    }

    fn container(&self, id: &Id) -> Result<Arc<Made>> {
        let container = self.inside().containers.get(id).cloned();
        container.ok_or_else(|| Error::state(format_args!("there is no container {id} in the VM")))
    }
}

impl Vm for Machine {
    fn create_pod<'a>(&'a self, id: &'a Id, _: &'a Pod) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.boot().await?;
            self.inside().pods.insert(id.clone(), Memory::default());
            Ok(())
        })
    }

    fn delete_pod<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Ok(memory) = self.pod(id) else { return Ok(()) };
            let _ = memory.give_back(&self.booted()?, None).await.await;
            self.inside().pods.remove(id);
            Ok(())
        })
    }

    fn create<'a>(&'a self, id: &'a Id, container: &'a Container) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (booted, memory) = (self.booted()?, self.pod(&container.pod)?);
            let number = self.started.fetch_add(1, Ordering::Relaxed);
            let made = Made::new(&booted, number, container, memory, self.partition_bytes).await?;
            self.inside().containers.insert(id.clone(), Arc::new(made));
            Ok(())
        })
    }

    fn start<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<Output>> {
        Box::pin(async move { self.container(id)?.start(&self.booted()?).await })
    }

    fn wait<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<Ended>> {
        Box::pin(async move { self.container(id)?.wait(&self.booted()?).await })
    }

    fn signal<'a>(&'a self, id: &'a Id, signal: Signal, all: bool) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.container(id)?.signal(&self.booted()?, signal, all).await })
    }

    fn delete<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Ok(container) = self.container(id) else { return Ok(()) };
            container.unmake(&self.booted()?).await;
            self.inside().containers.remove(id);
            Ok(())
        })
    }

    fn usage<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<Usage>> {
        Box::pin(async move {
            let found = {
                let inside = self.inside();
                let of_pod = inside.pods.get(id).and_then(|pod| {
                    inside.containers.values().find(|container| container.belongs_to(pod))
                });
                inside.containers.get(id).or(of_pod).cloned()
            };
            match found {
                Some(container) => container.usage(&self.booted()?).await,
                // A pod without containers.
                None => Ok(Usage { memory_limit_bytes: self.partition_bytes, ..Usage::default() }),
            }
        })
    }

    fn update<'a>(&'a self, _: &'a Id, _: Limits) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            Err(Error::unimplemented(
                "changing the limits of a container is not supported by this runtime",
            ))
        })
    }

    fn ended(&self) -> BoxFuture<'_, String> {
        let mut booted = self.booted.subscribe();
        Box::pin(async move {
            let found = booted.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
            match found {
                Some(booted) => booted.vm.wait().await.to_string(),
                None => std::future::pending().await,
            }
        })
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let booted = self.booted.borrow().clone();
            if let Some(booted) = booted
                && let Err(error) = booted.vm.stop().await
            {
                tracing::error!("{error}");
            }
        })
    }
}

impl Guest for Booted {
    fn add(&self, layer: Layer) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { Ok(self.vm.agent()?.add_layer(layer).await?) })
    }

    fn remove(&self, offset_bytes: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { Ok(self.vm.agent()?.remove_layer(offset_bytes).await?) })
    }
}

impl From<VmError> for Error {
    fn from(error: VmError) -> Self {
        let kind = match &error {
            VmError::Agent { code: ErrorCode::Invalid, .. } => ErrorKind::Invalid,
            VmError::Full { .. } | VmError::NoPartition { .. } => ErrorKind::Full,
            _ => ErrorKind::Failed,
        };
        Self::new(kind, error)
    }
}
