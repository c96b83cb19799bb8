//! What the API can do, without HTTP.

use super::{
    action::{Action, ActionBody, check_name, now_ms},
    activation::{Activation, Activations, Status},
    config::Config,
    key::random,
};
use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};
use squeezy_node::{
    Answer, Call, CallError, FunctionImage, FunctionLimits, ImageError, Node, NodeError, VmLimits,
    VmPlan,
};
use squeezy_runtime::RejectReason;
use squeezy_vmm::{Artifacts, GRANULE_BYTES, method::Sizing, round_up};
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::available_parallelism,
    time::Duration,
};

/// Bytes of an activation's id.
const ID_BYTES: usize = 16;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// What was asked for makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// There is no such thing.
    #[error("The requested resource does not exist.")]
    NotFound,
    /// It is there already.
    #[error("resource already exists")]
    Exists,
    /// Too many calls wait; the one of this id does not.
    #[error("Too many requests wait for this action; try again later.")]
    Busy,
    /// The daemon ends.
    #[error("The daemon is shutting down.")]
    Ending,
    /// It cannot be written down.
    #[error("{0}")]
    Internal(String),
}

/// Actions, their calls, and the node that answers them.
pub struct Service {
    config: Config,
    files: Artifacts,
    node: Node,
    actions: Mutex<BTreeMap<String, Arc<Action>>>,
    activations: Mutex<Activations>,
    /// Held while actions are changed, which takes the node a moment.
    changing: tokio::sync::Mutex<()>,
}

impl Service {
    /// A service without actions.
    pub fn new(config: Config, files: Artifacts, node: Node) -> Self {
        let activations = Activations::new(config.activations);
        Self {
            config,
            files,
            node,
            actions: Mutex::default(),
            activations: Mutex::new(activations),
            changing: tokio::sync::Mutex::default(),
        }
    }

    /// Adds the function in a directory, or of an image, under its own name.
    pub async fn add_function(&self, path: &Path) -> Result<(), ServiceError> {
        let image = FunctionImage::find(path, &self.files).map_err(invalid)?;
        let name = image.function.name.clone();
        self.put(name, ActionBody::default(), image, true).await.map(drop)
    }

    /// Makes or changes an action as a client wants it.
    pub async fn put_action(
        &self,
        name: String,
        mut body: ActionBody,
        overwrite: bool,
    ) -> Result<Arc<Action>, ServiceError> {
        check_name(&name).map_err(ServiceError::Invalid)?;
        let image = match (&body.exec, self.action(&name)) {
            (Some(exec), _) => {
                let image = exec.image.as_deref().filter(|_| exec.kind == "blackbox");
                let image = image.ok_or_else(|| {
                    ServiceError::Invalid(
                        "exec must be of the kind \"blackbox\" and name an image that has been built here"
                            .to_owned(),
                    )
                })?;
                if exec.code.as_ref().is_some_and(|code| code.as_str() != Some("")) {
                    let problem = "the image holds the function's code; exec takes none besides";
                    return Err(ServiceError::Invalid(problem.to_owned()));
                }
                self.image(image)?
            }
            (None, Some(action)) => action.image.clone(),
            (None, None) => {
                return Err(ServiceError::Invalid("exec is missing: which image?".to_owned()));
            }
        };
        body.exec = None;
        self.put(name, body, image, overwrite).await
    }

    /// The function of an image that has been built here, by its name.
    fn image(&self, name: &str) -> Result<FunctionImage, ServiceError> {
        let plain = !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        let missing = || ServiceError::Invalid(format!("there is no image {name:?}"));
        if !plain {
            return Err(missing());
        }
        match FunctionImage::find(&self.files.image(name), &self.files) {
            Ok(image) => Ok(image),
            Err(ImageError::Neither(_)) => Err(missing()),
            Err(error) => Err(invalid(error)),
        }
    }

    async fn put(
        &self,
        name: String,
        body: ActionBody,
        mut image: FunctionImage,
        overwrite: bool,
    ) -> Result<Arc<Action>, ServiceError> {
        let _changing = self.changing.lock().await;
        let earlier = self.action(&name);
        if earlier.is_some() && !overwrite {
            return Err(ServiceError::Exists);
        }
        if let Some(timeout) = body.limits.and_then(|limits| limits.timeout) {
            if !(1..=86_400_000).contains(&timeout) {
                let problem = "limits.timeout must be from 1 to 86400000 ms";
                return Err(ServiceError::Invalid(problem.to_owned()));
            }
            image.function.run_timeout = Duration::from_millis(timeout);
        }
        let plan = self.plan(&image);
        let limits = VmLimits { idle_time: Some(self.config.vm_idle) };
        let vm = self.node.add_vm(plan, limits).await.map_err(unusable)?;
        let function = image.function.clone();
        let limits = FunctionLimits { keep_alive: function.keep_alive, queue: self.config.queue };
        let index = self.node.add_function(vm, function, limits).await.map_err(unusable)?;
        let revision = earlier.as_ref().map_or(1, |action| action.revision + 1);
        let action = Arc::new(Action { name, body, revision, updated_ms: now_ms(), image, index });
        lock(&self.actions).insert(action.name.clone(), action.clone());
        if let Some(earlier) = earlier {
            self.node.remove_function(earlier.index);
        }
        Ok(action)
    }

    fn plan(&self, image: &FunctionImage) -> VmPlan {
        let function = &image.function;
        let shares = u32::from(function.concurrency) * function.cpu_millis;
        let host = available_parallelism().map_or(1, |count| count.get() as u32);
        VmPlan {
            files: self.files.clone(),
            name: format!("squeezy-{}", function.name),
            image: image.image.clone(),
            method: self.config.method,
            sizing: Sizing {
                instance_bytes: round_up(function.memory_bytes, GRANULE_BYTES),
                instances: function.concurrency,
                shared_bytes: self.config.shared_memory_bytes,
            },
            vcpus: shares.div_ceil(1000).clamp(1, host.min(64)),
            accelerator: self.config.accelerator,
            memory_backend: self.config.memory_backend,
        }
    }

    /// Removes an action: what waits for it is turned away, what it works on is finished.
    pub async fn delete_action(&self, name: &str) -> Result<Arc<Action>, ServiceError> {
        let _changing = self.changing.lock().await;
        let action = lock(&self.actions).remove(name).ok_or(ServiceError::NotFound)?;
        self.node.remove_function(action.index);
        Ok(action)
    }

    /// The action of this name.
    pub fn action(&self, name: &str) -> Option<Arc<Action>> {
        lock(&self.actions).get(name).cloned()
    }

    /// All actions, by name.
    pub fn actions(&self) -> Vec<Arc<Action>> {
        lock(&self.actions).values().cloned().collect()
    }

    /// A new activation's id.
    pub fn new_id(&self) -> Result<String, ServiceError> {
        random(ID_BYTES).map_err(|error| ServiceError::Internal(error.to_string()))
    }

    /// Calls an action and remembers what came of it. Runs to its end even when nobody waits.
    pub fn call(
        self: &Arc<Self>,
        action: Arc<Action>,
        id: String,
        arguments: Map<String, Value>,
    ) -> tokio::task::JoinHandle<Result<Arc<Activation>, ServiceError>> {
        let service = self.clone();
        tokio::spawn(async move {
            let start_ms = now_ms();
            let call = Call { activation: id.clone(), value: action.arguments(arguments) };
            let answer = service.node.call(action.index, call).await;
            match &answer {
                Err(CallError::Rejected(RejectReason::QueueFull)) => {
                    return Err(ServiceError::Busy);
                }
                Err(CallError::Ended | CallError::Rejected(RejectReason::Draining)) => {
                    return Err(ServiceError::Ending);
                }
                Err(CallError::Rejected(RejectReason::Retired)) => {
                    return Err(ServiceError::NotFound);
                }
                _ => {}
            }
            let activation = Arc::new(conclude(&action, id, start_ms, answer));
            lock(&service.activations).push(activation.clone());
            Ok(activation)
        })
    }

    /// The activation of this id.
    pub fn activation(&self, id: &str) -> Option<Arc<Activation>> {
        lock(&self.activations).get(id)
    }

    /// Activations, the latest first.
    pub fn activations(
        &self,
        action: Option<&str>,
        since_ms: u64,
        skip: usize,
        limit: usize,
    ) -> Vec<Arc<Activation>> {
        let activations = lock(&self.activations);
        activations.list(action, since_ms).skip(skip).take(limit).cloned().collect()
    }

    /// Ends everything.
    pub async fn drain(&self) {
        self.node.drain().await;
    }
}

/// What came of a call, in OpenWhisk's terms.
fn conclude(
    action: &Action,
    id: String,
    start_ms: u64,
    answer: Result<Answer, CallError>,
) -> Activation {
    let error = |text: &str| json!({ "error": text });
    let (status, result, waited, took, init) = match answer {
        Ok(Answer { response, waited, took, cold }) => {
            let (status, result) = judge(&response);
            (status, result, waited, took, cold)
        }
        Err(CallError::Failed { reason, waited, .. }) => {
            (Status::DeveloperError, error(&reason), waited, Duration::ZERO, None)
        }
        Err(other) => {
            (Status::InternalError, error(&other.to_string()), Duration::ZERO, Duration::ZERO, None)
        }
    };
    let (action, version) = (action.name.clone(), action.version());
    Activation { id, action, version, start_ms, status, result, waited, init, took }
}

/// An instance's answer: an object, with the field `error` if the function says so.
fn judge(response: &Response<Bytes>) -> (Status, Value) {
    let answer = serde_json::from_slice::<Value>(response.body());
    match answer {
        Ok(Value::Object(answer)) if response.status() == StatusCode::OK => {
            let failed = answer.contains_key("error");
            let status = if failed { Status::ApplicationError } else { Status::Success };
            (status, Value::Object(answer))
        }
        Ok(Value::Object(answer)) if answer.contains_key("error") => {
            (Status::ApplicationError, Value::Object(answer))
        }
        _ => {
            let problem = format!(
                "The function answered with status {} and no JSON object.",
                response.status().as_u16()
            );
            (Status::DeveloperError, json!({ "error": problem }))
        }
    }
}

fn invalid(error: ImageError) -> ServiceError {
    ServiceError::Invalid(error.to_string())
}

fn unusable(error: NodeError) -> ServiceError {
    match error {
        NodeError::Ended => ServiceError::Ending,
        other => ServiceError::Invalid(other.to_string()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
