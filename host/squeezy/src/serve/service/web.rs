//! Actions that anybody may ask for.

use super::*;
use crate::serve::strangers::StrangerCall;
use serde_json::Map;
use squeezy_openwhisk::web::Export;

/// The call of a web action, which was admitted to one version of it.
pub struct WebCall {
    /// How that version was exported.
    pub export: Export,
    /// The caller's place, if it is a stranger.
    pub stranger: Option<StrangerCall>,
}

impl WebCall {
    /// Whether another version would have admitted it too: it may not be exported to the same clients, or have
    /// parameters that clients may not override. Those of its packages stay what they were for this call.
    pub(super) fn is_admitted(&self, action: &Action, arguments: &Map<String, Value>) -> bool {
        let own = action.body.parameters.as_deref().unwrap_or_default();
        export(&action.body).as_ref() == Some(&self.export)
            && self.export.overridden(arguments, own).is_none()
    }
}

fn export(body: &ActionBody) -> Option<Export> {
    Export::of(body.annotations.as_deref().unwrap_or_default())
}

impl Service {
    /// The web action with this name. Unlike [`Self::callable`], this neither changes anything nor waits,
    /// because anybody may ask.
    pub fn web_action(&self, name: &QualifiedName) -> Result<(Callee, Export), ServiceError> {
        let (name, packages) = self.resolve(name)?;
        if let Some(sequence) = self.sequence(&name) {
            let export = export(&sequence.body).ok_or(ServiceError::NotFound)?;
            let callable = CallableSequence { name, sequence, packages };
            return Ok((Callee::Sequence(callable), export));
        }
        if let Some(latest) = self.action(&name) {
            let export = export(&latest.body).ok_or(ServiceError::NotFound)?;
            let is_the_same = |action: &Action| {
                self::export(&action.body).as_ref() == Some(&export)
                    && action.body.parameters == latest.body.parameters
            };
            let action = self.actions.to_serve(&name, is_the_same).unwrap_or(latest);
            return Ok((Callable { action, packages }.into(), export));
        }
        let unavailable = lock(&self.unavailable);
        match unavailable.get(&name).and_then(|action| export(&action.stored.body)) {
            Some(_) => Err(ServiceError::Unavailable("ask its owner".to_owned())),
            None => Err(ServiceError::NotFound),
        }
    }
}
