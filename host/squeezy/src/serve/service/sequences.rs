//! Sequences: actions without an image or instances of their own, which call others one after the other.

use super::{calls::Invocation, packages::resolve_with, *};
use crate::serve::{
    bodies::{Held, Part},
    strangers::Strangers,
    telemetry::TracedCall,
};
use serde_json::Map;
use squeezy_openwhisk::{
    MAX_ARGUMENTS_BYTES,
    action::{Exec, Pairs},
    activation::{Activation, Called, Status},
    length_as_text,
    sequence::{
        Component, MOST_ACTIONS, MOST_DEPTH, SEQUENCE, SequenceProblem, check, is_any_cyclic,
        read_components,
    },
};
use squeezy_store::Running;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// What a call is for.
#[derive(Clone, Debug)]
pub enum Callee {
    /// An action with instances.
    Action(Callable),
    /// A sequence of others.
    Sequence(CallableSequence),
}

/// A sequence as it is called.
#[derive(Clone, Debug)]
pub struct CallableSequence {
    /// Its name.
    pub name: QualifiedName,
    /// The sequence.
    pub sequence: Arc<Sequence>,
    /// As in [`Callable`].
    pub packages: Vec<Arc<Package>>,
}

impl<T: Into<Callable>> From<T> for Callee {
    fn from(callable: T) -> Self {
        Self::Action(callable.into())
    }
}

impl Callee {
    /// The name of what is called.
    pub fn name(&self) -> &QualifiedName {
        match self {
            Self::Action(Callable { action, .. }) => &action.name,
            Self::Sequence(CallableSequence { name, .. }) => name,
        }
    }

    /// What each call gets, besides its own arguments.
    pub fn parameters(&self) -> Pairs {
        match self {
            Self::Action(callable) => callable.parameters(),
            Self::Sequence(callable) => callable.parameters(),
        }
    }
}

impl CallableSequence {
    fn parameters(&self) -> Pairs {
        let own = self.sequence.body.parameters.as_deref().unwrap_or_default();
        packages::merged(self.packages.iter().map(|package| &*package.parameters).chain([own]))
    }
}

/// A call of a sequence, with those of the sequences in it.
#[derive(Default)]
pub(super) struct Run {
    /// How many actions have been called.
    actions: usize,
    /// How many sequences are in progress, each within the one before.
    depth: usize,
}

/// How far a sequence has come.
struct Progress {
    status: Status,
    /// The latest result, which is the arguments of the next component; at first the sequence's arguments.
    result: Value,
    /// The reservation for the sequence's arguments, until they are passed on.
    given: Option<Arc<Held>>,
    /// The reservation for the latest result of a component.
    held: Option<Held>,
    /// The activations of the components that were called.
    ids: Vec<String>,
    /// How long these took together.
    took: Duration,
    /// The memory of the largest of them, in MiB.
    memory_mib: Option<u64>,
}

/// Why a sequence ends before its next component is called.
struct Stop(Status, String);

impl From<SequenceProblem> for Stop {
    fn from(problem: SequenceProblem) -> Self {
        Self(Status::ApplicationError, problem.to_string())
    }
}

impl From<ServiceError> for Stop {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::NotFound => SequenceProblem::Missing.into(),
            // The first words are OpenWhisk's, which says no more.
            other => Self(Status::InternalError, format!("Sequence failed. {other}")),
        }
    }
}

/// What the calls of a sequence's components have in common.
struct Within<'a> {
    id: &'a str,
    traced: &'a TracedCall,
    part: &'a Part,
    strangers: Option<&'a Arc<Strangers>>,
}

impl Service {
    /// The sequence with this name.
    pub fn sequence(&self, name: &QualifiedName) -> Option<Arc<Sequence>> {
        lock(&self.sequences).get(name).cloned()
    }

    /// What a call of this name is for. If it is an action whose image is back, that is served again.
    pub async fn callee(&self, name: &QualifiedName) -> Result<Callee, ServiceError> {
        let (own, packages) = self.resolve(name)?;
        match self.sequence(&own) {
            Some(sequence) => {
                Ok(Callee::Sequence(CallableSequence { name: own, sequence, packages }))
            }
            None => self.callable(name).await.map(Callee::Action),
        }
    }

    /// The same, without serving anything again.
    fn callee_as_it_is(&self, name: &QualifiedName) -> Result<Callee, ServiceError> {
        let (own, packages) = self.resolve(name)?;
        if let Some(sequence) = self.sequence(&own) {
            return Ok(Callee::Sequence(CallableSequence { name: own, sequence, packages }));
        }
        match self.actions.serving(&own) {
            Some(action) => Ok(Callee::Action(Callable { action, packages })),
            None if lock(&self.unavailable).contains_key(&own) => {
                Err(ServiceError::Unavailable("ask its owner".to_owned()))
            }
            None => Err(ServiceError::NotFound),
        }
    }

    /// Creates or changes an action or a sequence atomically, even if the client stops waiting. Returns it in
    /// OpenWhisk's format.
    pub async fn put(
        self: &Arc<Self>,
        name: QualifiedName,
        body: ActionBody,
        code: Option<GivenCode>,
        overwrite: bool,
        held: impl Send + 'static,
    ) -> Result<Value, ServiceError> {
        let is_sequence = match &body.exec {
            Some(exec) => exec.kind == SEQUENCE,
            None => self.sequence(&name).is_some(),
        };
        if !is_sequence {
            return Ok(self.put_action(name, body, code, overwrite, held).await?.describe());
        }
        check_name(&name.name).map_err(ServiceError::Invalid)?;
        if code.is_some() {
            let problem = "a sequence has components, and no code".to_owned();
            return Err(ServiceError::Invalid(problem));
        }
        let service = self.clone();
        let asker = self.tenancy(&name.namespace)?;
        let change = async move {
            let _held = held;
            service.change_sequence(name, asker, body, overwrite).await
        };
        to_the_end(change).await
    }

    async fn change_sequence(
        &self,
        name: QualifiedName,
        asker: Tenancy,
        mut body: ActionBody,
        overwrite: bool,
    ) -> Result<Value, ServiceError> {
        body.limits().check().map_err(ServiceError::Invalid)?;
        let read = |exec: Exec| {
            let components = exec.components.unwrap_or_default();
            read_components(&name.namespace, &components).map_err(ServiceError::Invalid)
        };
        let components = body.exec.take().map(read).transpose()?;
        let mut state = self.changing.of(&name.namespace).await?;
        // It may have been deleted meanwhile, and made anew.
        if !asker.is_there() {
            return Err(ServiceError::NotFound);
        }
        packages::check_place(&name, &state)?;
        let (action, sequence) = (self.action(&name), state.sequences().get(&name));
        let stored = state.actions().get(&name);
        let earlier = match (&action, stored, sequence) {
            (.., Some(earlier)) => Some((&earlier.body, earlier.revision)),
            (Some(earlier), ..) => Some((&earlier.body, earlier.revision)),
            (None, Some(earlier), None) => Some((&earlier.body, earlier.revision)),
            (None, None, None) => None,
        };
        if earlier.is_some() && !overwrite {
            return Err(ServiceError::Exists);
        }
        let components = components.or_else(|| Some(sequence?.components.clone()));
        // There was one, which has just been deleted.
        let components = components.ok_or(ServiceError::NotFound)?;
        let checked = check(&name, &components, |component| {
            let (name, _) = self.resolve(component).ok()?;
            let found = match state.sequences().get(&name) {
                Some(sequence) => Component::Sequence(Arc::new(sequence.clone())),
                None if state.has(&name) || self.action(&name).is_some() => Component::Action,
                None => Component::Missing,
            };
            Some((name, found))
        });
        checked.map_err(|problem| ServiceError::Invalid(problem.to_string()))?;
        self.within_quotas(&state, &name, earlier.is_none(), None)?;
        let (body, revision) = match earlier {
            Some((earlier, revision)) => (body.change(earlier), revision.saturating_add(1)),
            None => (body, 1),
        };
        let sequence = Sequence { components, revision, updated_ms: now_ms(), body };
        state.put_sequence(&name, sequence.clone()).await?;
        let described = sequence.describe(&name);
        self.set_sequence(name, sequence);
        self.keep_named(&state);
        Ok(described)
    }

    /// Makes a sequence callable, in place of an action of its name.
    pub(super) fn set_sequence(&self, name: QualifiedName, sequence: Sequence) {
        lock(&self.sequences).insert(name.clone(), Arc::new(sequence));
        lock(&self.unavailable).remove(&name);
        self.actions.remove_if(|action| action.name == name);
    }

    /// Checks that no sequence would be a part of itself if there were this package.
    pub(super) fn stays_acyclic(
        &self,
        name: &QualifiedName,
        package: &Package,
    ) -> Result<(), ServiceError> {
        let new = Arc::new(package.clone());
        let find = |other: &QualifiedName| {
            if other == name { Some(new.clone()) } else { self.package(other) }
        };
        let resolved = |component| Some(resolve_with(component, find)?.0);
        let sequences = lock(&self.sequences).clone();
        let own = sequences.iter().filter(|(other, _)| other.namespace == name.namespace);
        let edges = own.map(|(name, sequence)| {
            (name.clone(), sequence.components.iter().filter_map(resolved).collect())
        });
        if is_any_cyclic(&edges.collect()) {
            return Err(ServiceError::Invalid(SequenceProblem::Cyclic.to_string()));
        }
        Ok(())
    }

    /// Calls the components of a sequence, and records its activation. It has no refusal of its own.
    pub(super) async fn answer_sequence(
        self: &Arc<Self>,
        callable: CallableSequence,
        invocation: Invocation,
        run: &mut Run,
    ) -> Answered {
        let parameters = callable.parameters();
        let CallableSequence { name, sequence, .. } = callable;
        let Invocation { id, arguments, held, accept, part, traced, strangers, cause, web } =
            invocation;
        let (begin, start_ms) = (Instant::now(), now_ms());
        let Called { action, version, kind } = sequence.called(&name);
        let running = Running {
            id: id.clone(),
            action: action.clone(),
            version: version.clone(),
            kind: kind.into(),
            start_ms,
            cause: cause.clone(),
        };
        self.started(running, accept).await;
        let mut all: Map<_, _> =
            parameters.into_iter().map(|pair| (pair.key, pair.value)).collect();
        all.extend(arguments);
        let mut progress = Progress {
            status: Status::Success,
            result: all.into(),
            given: held,
            held: None,
            ids: Vec::new(),
            took: Duration::ZERO,
            memory_mib: None,
        };
        let strangers = strangers.as_ref();
        let within = Within { id: &id, traced: &traced, part: &part, strangers };
        run.depth += 1;
        for component in &sequence.components {
            if let Err(Stop(status, error)) =
                self.call_component(component, &mut progress, &within, run).await
            {
                progress.status = status;
                progress.result = serde_json::json!({ "error": error });
                progress.held = None;
            }
            if progress.status != Status::Success {
                break;
            }
        }
        run.depth -= 1;
        let Progress { status, result, held, ids, took, memory_mib, .. } = progress;
        let limits = memory_mib.map(|memory| {
            let mut limits = sequence.body.limits().describe(None);
            limits["memory"] = memory.into();
            limits
        });
        let activation = Arc::new(Activation {
            id,
            action,
            version,
            kind: kind.into(),
            start_ms,
            status,
            result,
            waited: begin.elapsed().saturating_sub(took),
            waited_for: None,
            init: None,
            took,
            logs: ids,
            cause,
            limits,
            by_stranger: strangers.is_some(),
        });
        self.ended(&activation).await;
        traced.end(&activation);
        // A stranger has its place until then.
        drop(web);
        Answered { activation, held }
    }

    /// Calls the next component with the result of the one before.
    async fn call_component(
        self: &Arc<Self>,
        name: &QualifiedName,
        progress: &mut Progress,
        within: &Within<'_>,
        run: &mut Run,
    ) -> Result<(), Stop> {
        // What it is made of may have changed since it was put.
        if run.actions == MOST_ACTIONS {
            return Err(SequenceProblem::TooLong.into());
        }
        let callee = match within.strangers {
            Some(_) => self.callee_as_it_is(name)?,
            None => self.callee(name).await?,
        };
        let Value::Object(arguments) = progress.result.take() else {
            return Err(ServiceError::Internal("a result is no object".to_owned()).into());
        };
        let own = callee.parameters();
        let too_long = |length: usize| {
            let error = format!(
                "The arguments of the component {name} are larger than allowed: {length} > {MAX_ARGUMENTS_BYTES} bytes."
            );
            Err(Stop(Status::DeveloperError, error))
        };
        let internal = |error: serde_json::Error| ServiceError::Internal(error.to_string());
        let mut length = length_as_text(&arguments).map_err(internal)?;
        if !own.is_empty() {
            length += length_as_text(&own).map_err(internal)?;
        }
        if length > MAX_ARGUMENTS_BYTES {
            return too_long(length);
        }
        let mut held = progress.given.take();
        if let Some(mut held_for_result) = progress.held.take() {
            // The component's arguments from now on, for as long as that runs.
            held_for_result.becomes_request_now().map_err(|_| {
                let error = format!(
                    "Sequence failed. There is not enough memory for the arguments of the component {name} at the moment, because of other requests; try again later."
                );
                Stop(Status::InternalError, error)
            })?;
            held = Some(Arc::new(held_for_result));
        }
        let invocation = Invocation {
            id: self.new_id()?,
            arguments,
            held,
            // Nobody hears its ID before the end of the sequence.
            accept: oneshot::channel().0,
            part: within.part.clone(),
            traced: within.traced.part(),
            web: None,
            strangers: within.strangers.cloned(),
            cause: Some(within.id.to_owned()),
        };
        let Answered { activation, held } = match callee {
            Callee::Action(callable) => {
                run.actions += 1;
                let Action { body, image, .. } = &*callable.action;
                let limits = body.limits().describe(Some(&image.function));
                progress.memory_mib = progress.memory_mib.max(limits["memory"].as_u64());
                let queue = self.config().queue;
                let part = |strangers: &Arc<Strangers>| {
                    strangers.part(&callable.action.name, queue).ok_or(ServiceError::Busy)
                };
                let _place = within.strangers.map(part).transpose()?;
                self.answer_action(callable, invocation).await?
            }
            Callee::Sequence(_) if run.depth == MOST_DEPTH => {
                return Err(SequenceProblem::TooDeep.into());
            }
            Callee::Sequence(callable) => {
                Box::pin(self.answer_sequence(callable, invocation, run)).await
            }
        };
        let inner = activation.limits.as_ref().and_then(|limits| limits["memory"].as_u64());
        progress.memory_mib = progress.memory_mib.max(inner);
        progress.ids.push(activation.id.clone());
        progress.took += activation.took;
        progress.status = activation.status;
        progress.result = Arc::unwrap_or_clone(activation).result;
        progress.held = held;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
