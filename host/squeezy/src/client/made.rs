//! What a function is made from, as the daemon takes it.

use super::{
    ClientError, action,
    code::{CodeFile, full_name},
    image::Source,
};
use crate::output::complain;
use bytesize::ByteSize;
use serde_json::{Value, json};
use squeezy_openwhisk::sequence::SEQUENCE;

/// What a function is made from.
pub enum Made {
    /// An image that is built here.
    Image(Source),
    /// An image in a registry.
    Pulled(String),
    /// A file with code.
    Code(CodeFile),
    /// The functions that it calls.
    Sequence(Vec<String>),
}

impl Made {
    /// The function's default name.
    pub fn name(&self) -> String {
        match self {
            Self::Image(source) => source.name().to_owned(),
            Self::Pulled(image) => image.clone(),
            Self::Code(code) => code.name(),
            Self::Sequence(functions) => functions.join(","),
        }
    }

    /// As the daemon takes it; an image is built first if necessary.
    pub fn exec(&self) -> Result<Value, ClientError> {
        match self {
            Self::Image(source) => {
                let image = source.image()?;
                Ok(json!({ "kind": "blackbox", "image": image.name, "digest": image.digest }))
            }
            Self::Pulled(image) => Ok(json!({ "kind": "blackbox", "image": image })),
            Self::Sequence(functions) => {
                // `/NAMESPACE/NAME` is what it is.
                let component = |name: &String| match name.strip_prefix('/') {
                    Some(_) => Ok(name.clone()),
                    None => Ok(format!("/_/{}", action(name)?)),
                };
                let components = functions.iter().map(component);
                let components = components.collect::<Result<Vec<_>, ClientError>>()?;
                Ok(json!({ "kind": SEQUENCE, "components": components }))
            }
            Self::Code(code) => {
                let exec = code.exec()?;
                let kind = full_name(exec["kind"].as_str().unwrap_or_default());
                let sent = ByteSize(exec["code"].as_str().map_or(0, str::len) as u64);
                complain(format_args!("code of the kind {kind}, {sent} as it is sent"));
                Ok(exec)
            }
        }
    }
}
