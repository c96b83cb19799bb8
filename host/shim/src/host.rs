//! What a pod has on the host, apart from its VM.

use crate::{Id, error::Result};
use futures_util::future::BoxFuture;
use std::{any::Any, path::Path, sync::Arc};

/// The host's part of pods.
pub trait Host: Send + Sync {
    /// Starts the process that stands for a pod on the host, in its network namespace.
    fn hold<'a>(&'a self, network: Option<&'a Path>) -> BoxFuture<'a, Result<Holder>>;
    /// Gives back the pod's place in this server, however often that has to be tried.
    fn release(self: Arc<Self>, pod: Id) -> BoxFuture<'static, ()>;
    /// There is no room for this pod beside the others: no further one is sent to this server before one of those has
    /// left.
    fn limit_to_others(self: Arc<Self>, pod: Id) -> BoxFuture<'static, ()>;
}

/// A process that stands for a pod on the host: it ends when this is dropped.
pub struct Holder {
    /// Its id.
    pub pid: u32,
    /// What keeps it.
    pub keep: Box<dyn Any + Send + Sync>,
}
