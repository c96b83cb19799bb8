//! Stored actions, which survive restarts, including those that cannot be served at the moment.

use super::*;
use crate::serve::failure_reasons::without_directories;
use crate::serve::state::StoredCode;
use serde_json::json;
use squeezy_openwhisk::action::{describe, exec, exec_of_code};

/// An action that is stored but cannot be served, for instance because its image is missing.
#[derive(Clone, Debug)]
pub struct Unavailable {
    /// Its stored form.
    pub stored: StoredAction,
    /// Why it cannot be served, without directories of the host.
    pub problem: String,
}

impl Unavailable {
    /// The action in OpenWhisk's format.
    fn describe(&self, name: &QualifiedName) -> Value {
        let StoredAction { image, digest, origin, code, revision, updated_ms, body } = &self.stored;
        let exec = match code {
            Some(code) => exec_of_code(&code.kind, code.binary, code.main.as_deref()),
            None => match origin {
                Some(Origin { reference, digest }) => exec(reference, Some(digest)),
                None => {
                    let name = image.file_stem().unwrap_or_default().to_string_lossy();
                    exec(&name, digest.as_ref())
                }
            },
        };
        let mut described =
            describe(name, *revision, *updated_ms, exec, body, body.limits().describe(None));
        described["problem"] = self.problem.as_str().into();
        described
    }
}

impl Service {
    /// Adds the actions that were created over the API earlier; they replace functions of the same
    /// name.
    pub async fn restore(&self) {
        let mut state = self.changing.of_operator().await;
        for (name, stored) in state.actions().clone() {
            let _ = self.restore_one(&mut state, &name, &stored).await;
        }
        for (name, sequence) in state.sequences().clone() {
            self.set_sequence(name, sequence);
        }
        self.keep_named(&state);
    }

    /// Adds one of them. If it cannot be served it remains stored, and a function of its name
    /// remains in place.
    async fn restore_one(
        &self,
        state: &mut State,
        name: &QualifiedName,
        stored: &StoredAction,
    ) -> Result<Arc<Action>, ServiceError> {
        let restored = self.read(state, name, stored).await;
        if let Err(error) = &restored {
            log_warning(&format!("action {name:?} is stored, but cannot be served: {error}"));
            let problem = without_directories(&error.to_string());
            let unavailable = Unavailable { stored: stored.clone(), problem };
            lock(&self.unavailable).insert(name.clone(), unavailable);
        }
        restored
    }

    async fn read(
        &self,
        state: &mut State,
        name: &QualifiedName,
        stored: &StoredAction,
    ) -> Result<Arc<Action>, ServiceError> {
        check_name(&name.name).map_err(ServiceError::Invalid)?;
        let StoredAction { revision, updated_ms, ref body, .. } = *stored;
        let Made { pinned, image, origin, code } = self.kept_made(&name.namespace, stored).await?;
        let pinned = Some(pinned);
        let body = body.clone();
        let change = Change { body, image, pinned, origin, code, revision, updated_ms };
        let action = self.add(name.clone(), change).await?;
        // From now on its digest is recorded.
        if stored.digest.is_none()
            && let Err(error) = state.put(name, self.stored(&action)).await
        {
            self.node.remove_function(action.index);
            return Err(error.into());
        }
        // Nobody is told before all actions are restored, or waits for this one.
        drop(self.replace(action.clone()).await);
        Ok(action)
    }

    /// An action in its stored form.
    pub(super) fn stored(&self, action: &Action) -> StoredAction {
        let FunctionImage { function, image, .. } = &action.image;
        let has_name = action.pinned.is_some() || *image == self.files.image(&function.name);
        StoredAction {
            image: if has_name { PathBuf::from(&function.name) } else { absolute(image) },
            digest: action.pinned.as_ref().map(|pinned| pinned.digest.clone()),
            origin: action.origin.clone(),
            code: action.code.as_ref().map(|code| StoredCode {
                kind: code.kind.name.to_owned(),
                binary: code.binary,
                main: code.main.clone(),
                digest: code.code.digest.clone(),
                drive: code.drive().is_some(),
            }),
            revision: action.revision,
            updated_ms: action.updated_ms,
            body: action.body.clone(),
        }
    }

    /// The action with this name, ready to be called. If its image is back, it is served again.
    pub async fn callable(&self, name: &QualifiedName) -> Result<Callable, ServiceError> {
        let (name, packages) = self.resolve(name)?;
        let action = self.callable_action(&name).await?;
        Ok(Callable { action, packages })
    }

    async fn callable_action(&self, name: &QualifiedName) -> Result<Arc<Action>, ServiceError> {
        if let Some(action) = self.actions.serving(name) {
            return Ok(action);
        }
        let mut state = self.changing.of(&name.namespace).await?;
        // It may have been created in the meantime.
        if let Some(action) = self.actions.serving(name) {
            return Ok(action);
        }
        let stored = state.actions().get(name).cloned().ok_or(ServiceError::NotFound)?;
        let restored = self.restore_one(&mut state, name, &stored).await;
        restored.map_err(|error| ServiceError::Unavailable(without_directories(&error.to_string())))
    }

    /// Removes an action: waiting calls are refused, running ones completed. Completes even if the
    /// client stops waiting. Returns the action as it was.
    pub async fn delete_action(
        self: &Arc<Self>,
        name: QualifiedName,
    ) -> Result<Value, ServiceError> {
        let service = self.clone();
        to_the_end(async move {
            let mut state = service.changing.of(&name.namespace).await?;
            packages::check_place(&name, &state)?;
            let described = service.describe_action(&name).ok_or(ServiceError::NotFound)?;
            state.remove(&name).await?;
            lock(&service.sequences).remove(&name);
            lock(&service.unavailable).remove(&name);
            service.actions.remove_if(|action| action.name == name);
            service.keep_named(&state);
            Ok(described)
        })
        .await
    }

    /// The action with this name in OpenWhisk's format, including one that cannot be served. With what it gets from
    /// the packages that its name leads through.
    pub fn describe_action(&self, name: &QualifiedName) -> Option<Value> {
        let (name, packages) = self.resolve(name).ok()?;
        let (mut described, own) = match (self.sequence(&name), self.action(&name)) {
            (Some(sequence), _) => (sequence.describe(&name), sequence.body.parameters.clone()),
            (None, Some(action)) => (action.describe(), action.body.parameters.clone()),
            (None, None) => {
                let unavailable = lock(&self.unavailable).get(&name)?.clone();
                (unavailable.describe(&name), unavailable.stored.body.parameters)
            }
        };
        if !packages.is_empty() {
            let of_packages = packages.iter().map(|package| &*package.parameters);
            let all = packages::merged(of_packages.chain([own.as_deref().unwrap_or_default()]));
            described["parameters"] = json!(all);
        }
        Some(described)
    }

    /// All actions of a namespace in OpenWhisk's format, without parameters, sorted by name.
    pub fn describe_actions(&self, namespace: &Namespace) -> Vec<Value> {
        self.describe_actions_if(|name| name.namespace == *namespace)
    }

    pub(super) fn describe_actions_if(
        &self,
        wanted: impl Fn(&QualifiedName) -> bool,
    ) -> Vec<Value> {
        let without_parameters = |mut described: Value| {
            if let Some(described) = described.as_object_mut() {
                described.remove("parameters");
            }
            described
        };
        let mut all: BTreeMap<_, _> = lock(&self.unavailable)
            .iter()
            .filter(|(name, _)| wanted(name))
            .map(|(name, unavailable)| {
                (name.clone(), without_parameters(unavailable.describe(name)))
            })
            .collect();
        let actions = self.actions();
        let own = actions.iter().filter(|action| wanted(&action.name));
        all.extend(own.map(|action| (action.name.clone(), without_parameters(action.describe()))));
        let sequences = lock(&self.sequences);
        let own = sequences.iter().filter(|(name, _)| wanted(name));
        all.extend(
            own.map(|(name, sequence)| (name.clone(), without_parameters(sequence.describe(name)))),
        );
        all.into_values().collect()
    }
}
