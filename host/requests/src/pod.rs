//! What a pod requests and should request, and whether its node has room for it.

use crate::{cluster::short, quantity::bytes};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const MEMORY: &str = "memory";

/// A pod, as far as it matters here.
#[derive(Deserialize)]
pub struct Pod {
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: String,
    resource_version: String,
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize)]
struct Spec {
    containers: Vec<Container>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    name: String,
    #[serde(default)]
    resources: Resources,
    #[serde(default)]
    resize_policy: Vec<ResizePolicy>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResizePolicy {
    resource_name: String,
    restart_policy: String,
}

#[derive(Default, Deserialize)]
struct Resources {
    #[serde(default)]
    limits: BTreeMap<String, String>,
    #[serde(default)]
    requests: BTreeMap<String, String>,
}

impl Resources {
    /// The memory that is requested, in bytes: the same may be written in several ways.
    fn requested(&self) -> Option<u64> {
        self.requests.get(MEMORY).and_then(|quantity| bytes(quantity))
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct ContainerStatus {
    name: String,
    /// Absent before the container runs.
    resources: Option<Resources>,
}

/// Whether a pod's node has taken over what the pod requests.
#[derive(Debug, PartialEq, Eq)]
pub enum Admission {
    /// It has.
    Admitted,
    /// It has not yet, or does not say so because a container does not run.
    Open,
    /// It does not, for people: it has no room for it now or ever, or another reason. What another resource has no room for
    /// keeps memory out as well, as a node takes over all or nothing.
    Refused(String),
}

impl Pod {
    /// Whether it is the one with this UID, and no other one of its name.
    pub fn has_uid(&self, uid: &str) -> bool {
        self.metadata.uid == uid
    }

    /// Whether it is about to end. It may run until then, for as long as its grace period is.
    pub fn is_ending(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// What to change for it to request so many bytes of memory, in proportion to the limits of its containers. Nothing if
    /// that is no less than these; or why it cannot.
    pub fn fallen(&self, occupied_bytes: u64) -> Result<Option<Value>, String> {
        let limits = self.limits()?;
        for container in &self.spec.containers {
            let restarts = |policy: &ResizePolicy| {
                policy.resource_name == MEMORY && policy.restart_policy != "NotRequired"
            };
            if container.resize_policy.iter().any(restarts) {
                return Err(format!(
                    "container {} would be restarted: its resizePolicy for memory is not NotRequired",
                    container.name
                ));
            }
        }
        // Otherwise it might not rise again.
        let is_limit =
            |container: &Container, limit: u64| container.resources.requested() == Some(limit);
        if !limits.iter().all(|&(container, _, limit)| is_limit(container, limit)) {
            return Err("its memory requests are not its limits".to_owned());
        }
        if self.admission() != Admission::Admitted {
            return Err("its node has not admitted its memory requests yet".to_owned());
        }
        let sum: u128 = limits.iter().map(|&(.., limit)| u128::from(limit)).sum();
        if u128::from(occupied_bytes) >= sum {
            return Ok(None);
        }
        let part = |limit: u64| {
            // Not more than its limit, as all of them occupy less than theirs, and not nothing.
            (u128::from(occupied_bytes) * u128::from(limit)).div_ceil(sum).max(1).to_string()
        };
        let mut patch =
            self.changed(limits.iter().map(|&(container, _, limit)| (container, part(limit))));
        // Whoever has changed it since has asked for something else.
        patch["metadata"]["resourceVersion"] = json!(self.metadata.resource_version);
        Ok(Some(patch))
    }

    /// What to change for it to request its limits; nothing if it does.
    pub fn risen(&self) -> Result<Option<Value>, String> {
        let limits = self.limits()?.into_iter();
        let less =
            limits.filter(|&(container, _, limit)| container.resources.requested() != Some(limit));
        let less: Vec<_> =
            less.map(|(container, limit, _)| (container, limit.to_owned())).collect();
        Ok((!less.is_empty()).then(|| self.changed(less)))
    }

    /// Its containers with their memory limits, as they are written and in bytes.
    fn limits(&self) -> Result<Vec<(&Container, &str, u64)>, String> {
        let containers = self.spec.containers.iter();
        containers
            .map(|container| {
                let name = &container.name;
                let limit = container.resources.limits.get(MEMORY);
                let limit = limit.ok_or_else(|| format!("container {name} has no memory limit"))?;
                let bytes = bytes(limit)
                    .ok_or_else(|| format!("the memory limit of container {name} is {limit:?}"))?;
                Ok((container, limit.as_str(), bytes))
            })
            .collect()
    }

    fn changed<'a>(&self, requests: impl IntoIterator<Item = (&'a Container, String)>) -> Value {
        let containers = requests.into_iter().map(|(container, request)| {
            json!({ "name": container.name, "resources": { "requests": { MEMORY: request } } })
        });
        json!({
            "metadata": { "uid": self.metadata.uid },
            "spec": { "containers": containers.collect::<Vec<_>>() },
        })
    }

    /// Whether its node has taken over what it requests.
    pub fn admission(&self) -> Admission {
        let pending =
            self.status.conditions.iter().find(|condition| {
                condition.kind == "PodResizePending" && condition.status == "True"
            });
        if let Some(Condition { reason, message, .. }) = pending {
            return Admission::Refused(short(&format!("{reason}: {message}")));
        }
        let has_it = |container: &Container| {
            let statuses = &self.status.container_statuses;
            let status = statuses.iter().find(|status| status.name == container.name);
            let resources = status.and_then(|status| status.resources.as_ref());
            resources.is_some_and(|has| has.requested() == container.resources.requested())
        };
        match self.spec.containers.iter().all(has_it) {
            true => Admission::Admitted,
            false => Admission::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pod whose containers have these limits and requests, which its node has admitted.
    fn pod(containers: &[(&str, &str)]) -> Value {
        let numbered = || containers.iter().enumerate();
        let specs = numbered().map(|(number, (limit, request))| {
            json!({
                "name": format!("c{number}"),
                "resources": { "limits": { "memory": limit }, "requests": { "memory": request, "cpu": "10m" } },
            })
        });
        let statuses = numbered().map(|(number, (_, request))| {
            json!({ "name": format!("c{number}"), "resources": { "requests": { "memory": request } } })
        });
        json!({
            "metadata": { "uid": "u", "resourceVersion": "7" },
            "spec": { "containers": specs.collect::<Vec<_>>() },
            "status": { "containerStatuses": statuses.collect::<Vec<_>>() },
        })
    }

    fn read(pod: Value) -> Pod {
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_frozen_pod_requests_what_it_occupies() {
        let pod = pod(&[("64Mi", "64Mi"), ("192Mi", "196608Ki")]);
        let changed = read(pod.clone()).fallen(40 << 20).unwrap().unwrap();
        assert_eq!(changed["metadata"], json!({ "uid": "u", "resourceVersion": "7" }));
        let request =
            |at: usize| &changed["spec"]["containers"][at]["resources"]["requests"]["memory"];
        assert_eq!((request(0), request(1)), (&json!("10485760"), &json!("31457280")));
        assert!(changed["spec"]["containers"][0]["resources"]["requests"].get("cpu").is_none());
        // It has memory that is not its containers'.
        assert!(read(pod).fallen(256 << 20).unwrap().is_none());
    }

    #[test]
    fn parts_are_never_less_than_all_and_never_nothing() {
        let changed = |bytes| {
            read(pod(&[("8", "8"), ("8", "8"), ("8", "8")])).fallen(bytes).unwrap().unwrap()
        };
        let last = |changed: Value| {
            changed["spec"]["containers"][2]["resources"]["requests"]["memory"].clone()
        };
        assert_eq!((last(changed(7)), last(changed(0))), (json!("3"), json!("1")));
    }

    #[test]
    fn what_might_not_rise_again_does_not_fall() {
        let reason = |pod: Value| read(pod).fallen(1 << 20).unwrap_err();
        assert!(reason(pod(&[("64Mi", "32Mi")])).contains("not its limits"));
        let mut unlimited = pod(&[("64Mi", "64Mi"), ("1Gi", "1Gi")]);
        unlimited["spec"]["containers"][1]["resources"] = json!({});
        assert_eq!(reason(unlimited), "container c1 has no memory limit");
        assert!(reason(pod(&[("64 MiB", "1")])).contains("\"64 MiB\""));
        let mut open = pod(&[("64Mi", "64Mi")]);
        open["status"] = json!({});
        assert!(reason(open).contains("not admitted"));
        let mut restarted = pod(&[("64Mi", "64Mi")]);
        restarted["spec"]["containers"][0]["resizePolicy"] = json!([
            { "resourceName": "cpu", "restartPolicy": "RestartContainer" },
            { "resourceName": "memory", "restartPolicy": "RestartContainer" },
        ]);
        assert!(reason(restarted.clone()).contains("would be restarted"));
        restarted["spec"]["containers"][0]["resizePolicy"][1]["restartPolicy"] =
            json!("NotRequired");
        assert!(read(restarted).fallen(1 << 20).unwrap().is_some());
    }

    #[test]
    fn a_pod_that_runs_requests_its_limits() {
        let changed = read(pod(&[("64Mi", "1000"), ("192Mi", "192Mi")])).risen().unwrap().unwrap();
        let containers = changed["spec"]["containers"].as_array().unwrap();
        assert_eq!(containers.len(), 1, "the other one does already");
        assert_eq!(containers[0]["name"], "c0");
        assert_eq!(containers[0]["resources"]["requests"]["memory"], "64Mi");
        assert!(read(pod(&[("64Mi", "67108864")])).risen().unwrap().is_none());
    }

    #[test]
    fn who_is_another_one_or_about_to_end_is_told() {
        let mut here = pod(&[]);
        let stays = read(here.clone());
        assert!(stays.has_uid("u") && !stays.has_uid("v") && !stays.is_ending());
        here["metadata"]["deletionTimestamp"] = json!("2026-11-28T12:00:00Z");
        assert!(read(here).is_ending());
    }

    #[test]
    fn a_node_says_what_it_has_taken_over() {
        let mut asked = pod(&[("64Mi", "64Mi")]);
        let status = |request: &str| json!([{ "name": "c0", "resources": { "limits": { "memory": "64Mi" }, "requests": { "memory": request } } }]);
        asked["status"] = json!({ "containerStatuses": [{ "name": "c0" }] });
        assert_eq!(read(asked.clone()).admission(), Admission::Open, "it does not run yet");
        asked["status"] = json!({ "containerStatuses": status("1000") });
        assert_eq!(read(asked.clone()).admission(), Admission::Open);
        for (reason, message, expected) in [
            ("Deferred", "not enough memory", "Deferred: not enough memory"),
            ("Infeasible", "not enough capacity: cpu", "Infeasible: not enough capacity: cpu"),
        ] {
            asked["status"]["conditions"] = json!([
                { "type": "PodResizePending", "status": "True", "reason": reason, "message": message }
            ]);
            assert_eq!(read(asked.clone()).admission(), Admission::Refused(expected.to_owned()));
        }
        for same in ["64Mi", "65536Ki", "67108864"] {
            asked["status"] = json!({ "containerStatuses": status(same), "conditions": [] });
            assert_eq!(read(asked.clone()).admission(), Admission::Admitted);
        }
    }
}
