//! What series of one metric differ in.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use serde::{Serialize, Serializer};
use std::{
    fmt::{self, Write},
    sync::Arc,
};

/// The function, by its action's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Of {
    pub function: Name,
}

/// The function, and how something of it stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfState {
    pub function: Name,
    pub state: &'static str,
}

/// How something stands that is no function's.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct State {
    pub state: &'static str,
}

/// The function, and how a call came by its instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfStart {
    pub function: Name,
    pub start: Start,
}

/// The function, and what a call of it waited for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfWait {
    pub function: Name,
    pub waited_for: &'static str,
}

/// The function, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfReason {
    pub function: Name,
    pub reason: &'static str,
}

/// The function, whether memory was to come or to go, and why it did not.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfResize {
    pub function: Name,
    pub direction: Direction,
    pub reason: &'static str,
}

/// What runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Build {
    pub version: &'static str,
}

/// A name that many share.
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

/// How a call came by its instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// It waited for one that was started, and none of the function had ended before.
    Cold,
    /// One was there.
    Warm,
    /// It waited for one that was started, after others of the function had ended.
    Recreated,
}

impl Start {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Cold, Self::Warm, Self::Recreated];

    /// Its name.
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

/// Whether memory was to come or to go.
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
