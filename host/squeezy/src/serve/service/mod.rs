//! The operations behind the API, independent of HTTP.

mod calls;
mod changing;
mod configured;
mod error;
mod images;
mod made;
mod minimum;
mod namespaces;
mod network;
mod packages;
mod persisted;
mod processors;
mod sequences;
mod versions;
mod web;

use super::{
    action::Action,
    blobs::DiskSpace,
    bodies::Bodies,
    code::{ActionCode, Codes, GivenCode, RunsCode},
    config::{Config, FunctionEntry},
    failure_reasons::FailureReasons,
    images::{Images, Pinned},
    kept::Kept,
    log::log_warning,
    registry::Registry,
    state::{Origin, State, StoredAction},
    telemetry::Telemetry,
    tenants::{Tenancy, Tenants},
};
use crate::mutex::lock;
pub use calls::{Answered, CallOrigin};
use changing::Changing;
pub use error::ServiceError;
use error::{invalid, unusable};
use made::Made;
pub use packages::Callable;
use persisted::Unavailable;
use processors::Processors;
pub use sequences::{CallableSequence, Callee};
use serde_json::Value;
use squeezy_node::{Contract, FunctionImage, FunctionLimits, Node, VmPlan};
use squeezy_openwhisk::{
    Namespace, OpenWhisk, QualifiedName,
    action::{ActionBody, Pair, check_name},
    now_ms,
    package::Package,
    sequence::Sequence,
};
use squeezy_scaler::{TenantIndex, VmIndex};
use squeezy_store::Store;
use squeezy_vmm::Artifacts;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use versions::{Actions, Roll};
pub use web::WebCall;

/// Where a runtime finds how much memory an instance has, in bytes.
const MEMORY_VARIABLE: &str = "MEMORY_LIMIT";

/// Actions, their calls, and the node that executes them.
pub struct Service {
    /// As it is now; some keys may change while the daemon runs.
    config: Mutex<Arc<Config>>,
    files: Artifacts,
    node: Node,
    actions: Arc<Actions>,
    /// Functions of the configuration, by name. An action made over the API may have taken the place of one.
    configured: Mutex<BTreeMap<QualifiedName, FunctionEntry>>,
    /// Activations, and totals of functions.
    pub store: Arc<Store>,
    failure_reasons: Arc<FailureReasons>,
    /// Whose actions they are.
    pub tenants: Arc<Tenants>,
    telemetry: Option<Arc<Telemetry>>,
    images: Arc<Images>,
    registry: Arc<Registry>,
    codes: Codes,
    /// How much of the disk the images and the code of actions may take.
    space: Arc<DiskSpace>,
    /// Memory budget for arguments and results.
    pub bodies: Arc<Bodies>,
    /// Actions that are stored but cannot be served.
    unavailable: Mutex<BTreeMap<QualifiedName, Unavailable>>,
    /// The tenants that namespaces with functions are in the node.
    in_node: Mutex<BTreeMap<Namespace, TenantIndex>>,
    processors: Processors,
    /// Namespaces whose end somebody waits for.
    ending: Mutex<BTreeSet<Namespace>>,
    packages: Mutex<BTreeMap<QualifiedName, Arc<Package>>>,
    /// Actions that call others. None has the name of an action.
    sequences: Mutex<BTreeMap<QualifiedName, Arc<Sequence>>>,
    /// Whose turn it is to change actions.
    changing: Changing,
}

/// The desired state of an action.
struct Change {
    body: ActionBody,
    image: FunctionImage,
    pinned: Option<Pinned>,
    origin: Option<Origin>,
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
        Kept { tenants, state, images, codes, space }: Kept,
        store: Arc<Store>,
        bodies: Arc<Bodies>,
        failure_reasons: Arc<FailureReasons>,
    ) -> Self {
        let scripts = images::scripts(&files);
        let registry = Registry::new(&config.state_directory, images.clone(), &space, scripts);
        let packages = state.packages().iter();
        let packages = packages.map(|(name, package)| (name.clone(), Arc::new(package.clone())));
        let packages = packages.collect();
        Self {
            registry,
            config: Mutex::new(Arc::new(config)),
            files,
            actions: Actions::new(node.clone()),
            node,
            configured: Mutex::default(),
            store,
            failure_reasons,
            tenants,
            telemetry: None,
            images,
            codes,
            space,
            bodies,
            unavailable: Mutex::default(),
            in_node: Mutex::new(BTreeMap::from([(Namespace::guest(), TenantIndex::FIRST)])),
            processors: Processors::default(),
            ending: Mutex::default(),
            packages: Mutex::new(packages),
            sequences: Mutex::default(),
            changing: Changing::new(state),
        }
    }

    /// With spans of calls, if they are sent anywhere.
    pub fn with_telemetry(self, telemetry: Option<Arc<Telemetry>>) -> Self {
        Self { telemetry, ..self }
    }

    /// The configuration that the daemon runs with.
    pub fn config(&self) -> Arc<Config> {
        lock(&self.config).clone()
    }

    /// The namespace that has this name now, unless it is going.
    fn tenancy(&self, namespace: &Namespace) -> Result<Tenancy, ServiceError> {
        let tenancy = Tenancy::of(&self.tenants, namespace).filter(Tenancy::is_there);
        tenancy.ok_or(ServiceError::NotFound)
    }

    /// Creates or changes an action atomically, even if the client stops waiting. Calls of a former version are served by
    /// that until an instance of this one is up; whoever waits for that for too long hears of the change before. `held`, of
    /// what there is to read it from, is dropped when it is changed.
    pub async fn put_action(
        self: &Arc<Self>,
        name: QualifiedName,
        body: ActionBody,
        code: Option<GivenCode>,
        overwrite: bool,
        held: impl Send + 'static,
    ) -> Result<Arc<Action>, ServiceError> {
        check_name(&name.name).map_err(ServiceError::Invalid)?;
        let service = self.clone();
        let asker = self.tenancy(&name.namespace)?;
        let change = async move {
            let _held = held;
            service.change(name, asker, body, code, overwrite).await
        };
        let (action, roll) = to_the_end(change).await?;
        Roll::wait(roll).await;
        Ok(action)
    }

    async fn change(
        &self,
        name: QualifiedName,
        asker: Tenancy,
        mut body: ActionBody,
        code: Option<GivenCode>,
        overwrite: bool,
    ) -> Result<(Arc<Action>, Option<Roll>), ServiceError> {
        body.limits().check().map_err(ServiceError::Invalid)?;
        let exec = body.exec.take();
        // It is looked at again later: much code has a turn of its own, and does not wait for this one.
        if !overwrite && self.has(&name) {
            return Err(ServiceError::Exists);
        }
        // This takes a while, so other actions may be changed meanwhile.
        let given = match exec {
            Some(exec) => Some(self.exec(&asker, &name, exec, code).await?),
            None => None,
        };
        let mut state = self.changing.of(&name.namespace).await?;
        // It may have been deleted meanwhile, and made anew.
        if !asker.is_there() {
            return Err(ServiceError::NotFound);
        }
        self.change_kept(&mut state, name, body, overwrite, given).await
    }

    async fn change_kept(
        &self,
        state: &mut State,
        name: QualifiedName,
        body: ActionBody,
        overwrite: bool,
        given: Option<Made>,
    ) -> Result<(Arc<Action>, Option<Roll>), ServiceError> {
        packages::check_place(&name, state)?;
        let earlier = self.action(&name);
        let kept = match &earlier {
            Some(earlier) => Some(self.stored(earlier)),
            None => state.actions().get(&name).cloned(),
        };
        let sequence = state.sequences().get(&name);
        let is_new = kept.is_none() && sequence.is_none();
        if !is_new && !overwrite {
            return Err(ServiceError::Exists);
        }
        let made = match (given, &kept) {
            (Some(given), _) => given,
            // The action keeps its stored image, but no settings from the configuration.
            (None, Some(kept)) => self.kept_made(&name.namespace, kept).await?,
            (None, None) => {
                return Err(ServiceError::Invalid(
                    "exec is missing: it has to name an image, or have a kind and code".to_owned(),
                ));
            }
        };
        self.within_quotas(state, &name, is_new, Some(&made))?;
        let Made { pinned, image, origin, code } = made;
        let earlier = kept.as_ref().map(|kept| (&kept.body, kept.revision));
        let earlier = earlier.or(sequence.map(|sequence| (&sequence.body, sequence.revision)));
        let (body, revision) = match earlier {
            Some((earlier, revision)) => (body.change(earlier), revision.saturating_add(1)),
            None => (body, 1),
        };
        let allow = self.tenants.network_allow(&name.namespace);
        network::check(&body, &image.function, &allow)?;
        let pinned = Some(pinned);
        let updated_ms = now_ms();
        let change = Change { body, image, pinned, origin, code, revision, updated_ms };
        let action = self.add(name, change).await?;
        if let Err(error) = state.put(&action.name, self.stored(&action)).await {
            self.node.remove_function(action.index);
            return Err(error.into());
        }
        let roll = self.replace(action.clone()).await;
        self.keep_named(state);
        Ok((action, roll))
    }

    /// Has the images and the code that no stored action names removed, as soon as nobody uses them.
    fn keep_named(&self, state: &State) {
        let stored = state.actions().values();
        self.images.keep_named(stored.filter_map(|stored| stored.digest.clone()));
        let codes = state.actions().iter().filter_map(|(name, stored)| {
            let code = stored.code.as_ref()?;
            Some((&name.namespace, &*code.kind, &code.digest))
        });
        self.codes.keep_named(codes);
    }

    /// Adds an action to the node, in a VM of its own: namespaces never share one.
    async fn add(
        &self,
        name: QualifiedName,
        mut change: Change,
    ) -> Result<Arc<Action>, ServiceError> {
        let limits = change.body.limits();
        limits.check().map_err(ServiceError::Invalid)?;
        limits.apply(&mut change.image.function);
        if let Some(code) = &change.code {
            let calls = change.image.function.calls_per_instance;
            code.kind.check_concurrency(calls).map_err(ServiceError::Invalid)?;
        }
        let network = network::chosen(&change.body)?;
        let function = &mut change.image.function;
        function.network = network.or(function.network).or(Some(self.config().network));
        function.reach.own = network::own_rules(&change.body)?;
        if let Some(code) = &change.code {
            change.image.code = code.drive();
            let function = &mut change.image.function;
            let memory = function.memory_bytes.to_string();
            function.environment.insert(MEMORY_VARIABLE.to_owned(), memory);
        }
        let image = &change.image;
        let images = std::slice::from_ref(image);
        let vm = self.add_vm(&name.namespace, &image.function.name, images).await?;
        self.add_to(vm, name, change).await
    }

    /// Creates a VM for these functions of a namespace; it is booted later.
    async fn add_vm(
        &self,
        namespace: &Namespace,
        name: &str,
        images: &[FunctionImage],
    ) -> Result<VmIndex, ServiceError> {
        let config = self.config();
        let Config { policy, shared_memory_bytes, accelerator, memory_backend, vm_idle, .. } =
            *config;
        let plan = VmPlan {
            cpu_share: self.cpu_share(namespace),
            openable: self.tenants.openable(namespace),
            accelerator,
            memory_backend,
            ..VmPlan::new(name, images, &self.files, policy, shared_memory_bytes)
        };
        self.node.add_vm(plan, Some(vm_idle)).await.map_err(unusable)
    }

    /// Adds an action to a VM that has its image.
    async fn add_to(
        &self,
        vm: VmIndex,
        name: QualifiedName,
        change: Change,
    ) -> Result<Arc<Action>, ServiceError> {
        let Change { body, image, pinned, origin, code, revision, updated_ms } = change;
        let limits = limits(&self.config(), &image, minimum::wanted(&body, &image.function)?);
        let contract: Arc<dyn Contract> = match &code {
            Some(code) => Arc::new(RunsCode::new(code.clone())),
            None => Arc::new(OpenWhisk),
        };
        let tenant = self.tenant(&name.namespace).await?;
        let index = self.node.add_function(vm, tenant, image.clone(), contract, limits).await;
        let index = index.map_err(unusable)?;
        let action =
            Action { name, body, revision, updated_ms, image, pinned, origin, code, index };
        Ok(Arc::new(action))
    }

    /// Makes an action callable, in place of the former version of its name.
    async fn replace(&self, action: Arc<Action>) -> Option<Roll> {
        let name = action.name.clone();
        lock(&self.unavailable).remove(&name);
        let roll = self.actions.put(action).await;
        lock(&self.sequences).remove(&name);
        roll
    }

    /// The latest version of the action with this name.
    pub fn action(&self, name: &QualifiedName) -> Option<Arc<Action>> {
        self.actions.latest(name)
    }

    /// Whether there is an action with this name, or a sequence, be it one that cannot be served.
    fn has(&self, name: &QualifiedName) -> bool {
        self.action(name).is_some()
            || self.sequence(name).is_some()
            || lock(&self.unavailable).contains_key(name)
    }

    /// The latest version of all actions of all namespaces, sorted by namespace and name.
    pub fn actions(&self) -> Vec<Arc<Action>> {
        self.actions.all()
    }

    /// Shuts down all instances and VMs.
    pub async fn drain(&self) {
        self.node.drain().await;
    }
}

/// Goes on to the end if the client stops waiting, so that what is on the disk, in the node and in memory agree.
async fn to_the_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, ServiceError>> + Send + 'static,
) -> Result<T, ServiceError> {
    let change = tokio::spawn(change);
    change.await.unwrap_or_else(|error| Err(ServiceError::Internal(error.to_string())))
}

/// The limits of an action made from this image, of which so many instances are kept up.
fn limits(config: &Config, image: &FunctionImage, minimum_instances: u32) -> FunctionLimits {
    FunctionLimits {
        keep_alive: image.function.keep_alive,
        freeze_after: Some(config.freeze_after),
        queue: config.queue,
        minimum_instances,
    }
}

/// A path that stays valid if the daemon is restarted in another directory.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
pub(super) mod tests;
