//! Actions: functions under the names clients know, and what they are called with.

use super::images::Pinned;
use serde_json::{Map, Value};
use squeezy_node::FunctionImage;
use squeezy_openwhisk::action::{ActionBody, describe, exec, version};
use squeezy_scaler::FunctionIndex;
use std::sync::Arc;

/// An action that can be called.
#[derive(Clone, Debug)]
pub struct Action {
    /// Its name.
    pub name: String,
    /// As a client wrote it.
    pub body: ActionBody,
    /// How often it was changed.
    pub revision: u32,
    /// When it was changed last, in milliseconds since 1970.
    pub updated_ms: u64,
    /// What it runs.
    pub image: FunctionImage,
    /// Keeps its image as it is; nothing does so for a function of the configuration.
    pub pinned: Option<Arc<Pinned>>,
    /// What the node knows it by.
    pub index: FunctionIndex,
}

impl Action {
    /// Its version, as clients see it.
    pub fn version(&self) -> String {
        version(self.revision)
    }

    /// What a call with these arguments gives the function: they go before the action's own.
    pub fn arguments(&self, given: Map<String, Value>) -> Value {
        let own = self.body.parameters.iter().flatten();
        let mut arguments: Map<_, _> =
            own.map(|pair| (pair.key.clone(), pair.value.clone())).collect();
        arguments.extend(given);
        Value::Object(arguments)
    }

    /// The action as clients get it.
    pub fn describe(&self) -> Value {
        let function = &self.image.function;
        let limits = self.body.limits().describe(Some(function));
        let digest = self.pinned.as_ref().map(|pinned| &pinned.digest);
        let exec = exec(&function.name, digest);
        describe(&self.name, self.revision, self.updated_ms, exec, &self.body, limits)
    }
}
