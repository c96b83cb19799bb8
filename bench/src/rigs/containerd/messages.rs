//! Those messages of CRI (`runtime.v1` in k8s.io/cri-api) that are needed, with those of their fields that are.

use prost::Message;
use std::collections::HashMap;

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodMetadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) uid: String,
    #[prost(string, tag = "3")]
    pub(super) namespace: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Resources {
    #[prost(int64, tag = "4")]
    pub(super) memory_limit_bytes: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodLinux {
    #[prost(message, optional, tag = "5")]
    pub(super) resources: Option<Resources>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodConfig {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<PodMetadata>,
    #[prost(string, tag = "2")]
    pub(super) host_name: String,
    #[prost(map = "string, string", tag = "7")]
    pub(super) annotations: HashMap<String, String>,
    #[prost(message, optional, tag = "8")]
    pub(super) linux: Option<PodLinux>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RunPod {
    #[prost(message, optional, tag = "1")]
    pub(super) config: Option<PodConfig>,
    #[prost(string, tag = "2")]
    pub(super) runtime_handler: String,
}

/// A request or a response that is the id of a pod or a container, which is each one's first field.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Id {
    #[prost(string, tag = "1")]
    pub(super) id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Nothing {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Name {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<Name>,
    #[prost(message, optional, tag = "2")]
    pub(super) image: Option<Name>,
    #[prost(string, repeated, tag = "3")]
    pub(super) command: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CreateContainer {
    #[prost(string, tag = "1")]
    pub(super) pod: String,
    #[prost(message, optional, tag = "2")]
    pub(super) config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    pub(super) pod_config: Option<PodConfig>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Execute {
    #[prost(string, tag = "1")]
    pub(super) container: String,
    #[prost(string, repeated, tag = "2")]
    pub(super) command: Vec<String>,
    #[prost(int64, tag = "3")]
    pub(super) timeout_seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Executed {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) stdout: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) stderr: Vec<u8>,
    #[prost(int32, tag = "3")]
    pub(super) exit_code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Network {
    #[prost(string, tag = "1")]
    pub(super) address: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodStatus {
    #[prost(message, optional, tag = "5")]
    pub(super) network: Option<Network>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodStatusAnswer {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<PodStatus>,
}
