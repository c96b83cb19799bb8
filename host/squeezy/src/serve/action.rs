//! Actions: functions under the names that clients use, with their default parameters.

use super::{code::ActionCode, images::Pinned, state::Origin};
use serde_json::{Map, Value};
use squeezy_node::FunctionImage;
use squeezy_openwhisk::{
    QualifiedName,
    action::{ActionBody, describe, exec, exec_of_code, version},
    activation::Called,
    kind,
    package::Package,
};
use squeezy_scaler::FunctionIndex;
use std::sync::Arc;

/// An action that can be called.
#[derive(Clone, Debug)]
pub struct Action {
    /// Its name.
    pub name: QualifiedName,
    /// As the client sent it.
    pub body: ActionBody,
    /// Number of changes.
    pub revision: u32,
    /// Time of the last change, in milliseconds since 1970.
    pub updated_ms: u64,
    /// The image it runs.
    pub image: FunctionImage,
    /// Keeps its image from being removed; `None` for a function of the configuration.
    pub pinned: Option<Pinned>,
    /// Where in a registry the image comes from; `None` if it was built here.
    pub origin: Option<Origin>,
    /// The code that this image runs; `None` if the image is all there is.
    pub code: Option<ActionCode>,
    /// The function's index in the node.
    pub index: FunctionIndex,
}

impl Action {
    /// Its version, in OpenWhisk's format.
    pub fn version(&self) -> String {
        version(self.revision)
    }

    /// Its kind.
    pub fn kind(&self) -> &'static str {
        self.code.as_ref().map_or(kind::IMAGE, |code| code.kind.name)
    }

    /// What an activation says of it.
    pub fn called(&self) -> Called {
        Called { action: self.name.clone(), version: self.version(), kind: self.kind() }
    }

    /// The arguments that the function receives: those of the call override the action's own, and those override
    /// what the packages say, the later before the earlier.
    pub fn arguments(&self, packages: &[Arc<Package>], given: Map<String, Value>) -> Value {
        let of_packages = packages.iter().flat_map(|package| &package.parameters);
        let own = of_packages.chain(self.body.parameters.iter().flatten());
        let mut arguments: Map<_, _> =
            own.map(|pair| (pair.key.clone(), pair.value.clone())).collect();
        arguments.extend(given);
        Value::Object(arguments)
    }

    /// The action in OpenWhisk's format, without its code.
    pub fn describe(&self) -> Value {
        let function = &self.image.function;
        let limits = self.body.limits().describe(Some(function));
        let digest = self.pinned.as_ref().map(|pinned| &pinned.digest);
        let exec = match &self.code {
            Some(code) => exec_of_code(code.kind.name, code.binary, code.main.as_deref()),
            None => match &self.origin {
                Some(origin) => exec(&origin.reference, Some(&origin.digest)),
                None => exec(&function.name, digest),
            },
        };
        describe(&self.name, self.revision, self.updated_ms, exec, &self.body, limits)
    }
}
