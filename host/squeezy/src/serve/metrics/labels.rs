//! Labels of metrics.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use serde::{Serialize, Serializer};
use squeezy_openwhisk::Namespace;
use std::{
    fmt::{self, Write},
    sync::Arc,
};

/// A function, by its action's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Of {
    pub function: Name,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfNamespace {
    pub namespace: Name,
}

impl From<&Namespace> for OfNamespace {
    fn from(namespace: &Namespace) -> Self {
        Self { namespace: Name(namespace.as_str().into()) }
    }
}

/// A function, and a state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfState {
    pub function: Name,
    pub state: &'static str,
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct State {
    pub state: &'static str,
}

/// A function, and how a call got its instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfStart {
    pub function: Name,
    pub start: Start,
}

/// A function, and what a call waited for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfWait {
    pub function: Name,
    pub waited_for: &'static str,
}

/// A function, and a reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfReason {
    pub function: Name,
    pub reason: &'static str,
}

/// A function, the direction of a resize, and why it failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfResize {
    pub function: Name,
    pub direction: Direction,
    pub reason: &'static str,
}

/// A version.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Build {
    pub version: &'static str,
}

/// A shared string.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub Arc<str>);

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl EncodeLabelValue for Name {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(&self.0)
    }
}

/// How a call got its instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// It waited for an instance to start, and none of the function had ended before.
    Cold,
    /// An instance existed.
    Warm,
    /// It waited for an instance to start, and another one of the function had ended before.
    Recreated,
}

impl Start {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cold, Self::Warm, Self::Recreated];

    /// The label's value.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
            Self::Recreated => "recreated",
        }
    }
}

impl EncodeLabelValue for Start {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(self.name())
    }
}

/// The direction of a resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    Plug,
    Unplug,
}

impl EncodeLabelValue for Direction {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(match self {
            Self::Plug => "plug",
            Self::Unplug => "unplug",
        })
    }
}
