//! The operations behind the API, independent of HTTP.

mod calls;
mod error;
mod made;
mod persisted;

use super::{
    action::Action,
    bodies::Bodies,
    code::{ActionCode, Codes, GivenCode, RunsCode},
    config::{Config, FunctionEntry},
    failure_reasons::FailureReasons,
    images::{Images, Pinned},
    kept::Kept,
    log::log_line,
    state::{State, StoredAction},
};
pub use error::ServiceError;
use error::{invalid, unusable};
use made::Made;
use persisted::Unavailable;
use serde_json::Value;
use squeezy_node::{Contract, FunctionImage, FunctionLimits, Node, VmPlan};
use squeezy_openwhisk::{
    OpenWhisk,
    action::{ActionBody, check_name},
    now_ms,
};
use squeezy_scaler::VmIndex;
use squeezy_store::Store;
use squeezy_vmm::Artifacts;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Where a runtime finds how much memory an instance has, in bytes.
const MEMORY_VARIABLE: &str = "MEMORY_LIMIT";

/// Actions, their calls, and the node that executes them.
pub struct Service {
    config: Config,
    files: Artifacts,
    node: Node,
    actions: Mutex<BTreeMap<String, Arc<Action>>>,
    /// Activations, and totals of functions.
    pub store: Arc<Store>,
    failure_reasons: Arc<FailureReasons>,
    images: Arc<Images>,
    codes: Arc<Codes>,
    /// Memory budget for arguments and results.
    pub bodies: Arc<Bodies>,
    /// Actions that are stored but cannot be served.
    unavailable: Mutex<BTreeMap<String, Unavailable>>,
    /// Held while actions are changed, which involves the node and the disk.
    changing: tokio::sync::Mutex<State>,
}

/// The desired state of an action.
struct Change {
    body: ActionBody,
    image: FunctionImage,
    pinned: Option<Arc<Pinned>>,
    code: Option<ActionCode>,
    revision: u32,
    updated_ms: u64,
}

impl Service {
    /// A service without actions.
    pub fn new(
        config: Config,
        files: Artifacts,
        node: Node,
        Kept { state, images, codes }: Kept,
        store: Arc<Store>,
        bodies: Arc<Bodies>,
        failure_reasons: Arc<FailureReasons>,
    ) -> Self {
        Self {
            config,
            files,
            node,
            actions: Mutex::default(),
            store,
            failure_reasons,
            images,
            codes,
            bodies,
            unavailable: Mutex::default(),
            changing: tokio::sync::Mutex::new(state),
        }
    }

    /// Adds functions under their own names, sharing a VM. An error comes with the path of the
    /// function that caused it.
    pub async fn add_functions(
        &self,
        entries: &[FunctionEntry],
    ) -> Result<(), (PathBuf, ServiceError)> {
        let Some(first) = entries.first() else { return Ok(()) };
        let mut images = Vec::new();
        for entry in entries {
            let at = |error| (entry.path.clone(), error);
            let image = FunctionImage::find(&entry.path, &self.files);
            let mut image = image.map_err(|error| at(invalid(error)))?;
            entry.settings.apply(&mut image.function);
            images.push(image);
        }
        let name = first.vm.as_ref().unwrap_or(&images[0].function.name);
        let vm = self.add_vm(name, &images).await.map_err(|error| (first.path.clone(), error))?;
        for (entry, image) in entries.iter().zip(images) {
            self.add_alone(vm, image).await.map_err(|error| (entry.path.clone(), error))?;
        }
        Ok(())
    }

    /// Adds a function to a VM that was created for it.
    async fn add_alone(&self, vm: VmIndex, image: FunctionImage) -> Result<(), ServiceError> {
        let _changing = self.changing.lock().await;
        let name = image.function.name.clone();
        if self.action(&name).is_some() {
            let problem = format!("the function {name:?} exists already: names must be unique");
            return Err(ServiceError::Invalid(problem));
        }
        let body = ActionBody::default();
        let change =
            Change { body, image, pinned: None, code: None, revision: 1, updated_ms: now_ms() };
        let action = self.add_to(vm, name, change).await?;
        self.replace(action);
        Ok(())
    }

    /// Creates or changes an action atomically, even if the client stops waiting.
    pub async fn put_action(
        self: &Arc<Self>,
        name: String,
        body: ActionBody,
        code: Option<GivenCode>,
        overwrite: bool,
    ) -> Result<Arc<Action>, ServiceError> {
        check_name(&name).map_err(ServiceError::Invalid)?;
        let service = self.clone();
        let put = tokio::spawn(async move { service.change(name, body, code, overwrite).await });
        put.await.unwrap_or_else(|error| Err(ServiceError::Internal(error.to_string())))
    }

    async fn change(
        &self,
        name: String,
        mut body: ActionBody,
        code: Option<GivenCode>,
        overwrite: bool,
    ) -> Result<Arc<Action>, ServiceError> {
        body.limits().check().map_err(ServiceError::Invalid)?;
        let exec = body.exec.take();
        if !overwrite {
            let state = self.changing.lock().await;
            if self.action(&name).is_some() || state.actions().contains_key(&name) {
                return Err(ServiceError::Exists);
            }
        }
        // This takes a while, so other actions may be changed meanwhile.
        let given = match exec {
            Some(exec) => match self.exec(exec, code).await {
                Ok(made) => Some(made),
                Err(error) => {
                    // Half of it may have been kept.
                    self.sweep(&*self.changing.lock().await).await;
                    return Err(error);
                }
            },
            None => None,
        };
        let mut state = self.changing.lock().await;
        let changed = self.change_kept(&mut state, name, body, overwrite, given).await;
        self.sweep(&state).await;
        changed
    }

    async fn change_kept(
        &self,
        state: &mut State,
        name: String,
        body: ActionBody,
        overwrite: bool,
        given: Option<Made>,
    ) -> Result<Arc<Action>, ServiceError> {
        let earlier = self.action(&name);
        let kept = match &earlier {
            Some(earlier) => Some(self.stored(earlier)),
            None => state.actions().get(&name).cloned(),
        };
        if kept.is_some() && !overwrite {
            return Err(ServiceError::Exists);
        }
        let Made { pinned, image, code } = match (given, &kept) {
            (Some(given), _) => given,
            // The action keeps its stored image, but no settings from the configuration.
            (None, Some(kept)) => self.kept_made(kept).await?,
            (None, None) => {
                return Err(ServiceError::Invalid(
                    "exec is missing: it has to name an image, or have a kind and code".to_owned(),
                ));
            }
        };
        let body = match &kept {
            Some(kept) => body.change(&kept.body),
            None => body,
        };
        let revision = kept.map_or(1, |kept| kept.revision.saturating_add(1));
        let pinned = Some(pinned);
        let change = Change { body, image, pinned, code, revision, updated_ms: now_ms() };
        let action = self.add(name, change).await?;
        if let Err(error) = state.put(&action.name, self.stored(&action)).await {
            self.node.remove_function(action.index);
            return Err(error.into());
        }
        self.replace(action.clone());
        Ok(action)
    }

    /// Removes the images and the code that no action uses any more.
    async fn sweep(&self, state: &State) {
        let kept = state.actions().values().filter_map(|stored| stored.digest.clone());
        self.images.sweep(kept.collect::<BTreeSet<_>>()).await;
        let codes = state.actions().values().filter_map(|stored| stored.code.as_ref());
        self.codes.sweep(codes.map(|code| code.digest.clone()).collect()).await;
    }

    /// Adds an action to the node, in a VM of its own.
    async fn add(&self, name: String, mut change: Change) -> Result<Arc<Action>, ServiceError> {
        let limits = change.body.limits();
        limits.check().map_err(ServiceError::Invalid)?;
        limits.apply(&mut change.image.function);
        if change.code.is_some() {
            let function = &mut change.image.function;
            let memory = function.memory_bytes.to_string();
            function.environment.insert(MEMORY_VARIABLE.to_owned(), memory);
        }
        let image = &change.image;
        let vm = self.add_vm(&image.function.name, std::slice::from_ref(image)).await?;
        self.add_to(vm, name, change).await
    }

    /// Creates a VM for these functions; it is booted later.
    async fn add_vm(&self, name: &str, images: &[FunctionImage]) -> Result<VmIndex, ServiceError> {
        let Config { policy, shared_memory_bytes, accelerator, memory_backend, .. } = self.config;
        let plan = VmPlan {
            accelerator,
            memory_backend,
            ..VmPlan::new(name, images, &self.files, policy, shared_memory_bytes)
        };
        self.node.add_vm(plan, Some(self.config.vm_idle)).await.map_err(unusable)
    }

    /// Adds an action to a VM that has its image.
    async fn add_to(
        &self,
        vm: VmIndex,
        name: String,
        change: Change,
    ) -> Result<Arc<Action>, ServiceError> {
        let Change { body, image, pinned, code, revision, updated_ms } = change;
        let limits = FunctionLimits {
            keep_alive: image.function.keep_alive,
            freeze_after: Some(self.config.freeze_after),
            queue: self.config.queue,
        };
        let contract: Arc<dyn Contract> = match &code {
            Some(code) => Arc::new(RunsCode::new(code.clone())),
            None => Arc::new(OpenWhisk),
        };
        let index = self.node.add_function(vm, image.clone(), contract, limits).await;
        let index = index.map_err(unusable)?;
        Ok(Arc::new(Action { name, body, revision, updated_ms, image, pinned, code, index }))
    }

    /// Makes an action callable, and retires the previous one of its name.
    fn replace(&self, action: Arc<Action>) {
        lock(&self.unavailable).remove(&action.name);
        let earlier = lock(&self.actions).insert(action.name.clone(), action);
        if let Some(earlier) = earlier {
            self.node.remove_function(earlier.index);
        }
    }

    /// The action with this name.
    pub fn action(&self, name: &str) -> Option<Arc<Action>> {
        lock(&self.actions).get(name).cloned()
    }

    /// All actions, sorted by name.
    pub fn actions(&self) -> Vec<Arc<Action>> {
        lock(&self.actions).values().cloned().collect()
    }

    /// Shuts down all instances and VMs.
    pub async fn drain(&self) {
        self.node.drain().await;
    }
}

/// A path that stays valid if the daemon is restarted in another directory.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(super) mod tests;
