//! What a request takes: a look at the pod, a change, and for one that is to run, its node's word that it has room.

use crate::{
    cluster::{Cluster, Problem, short},
    pod::{Admission, Pod},
};
use squeezy_requests::{Answer, PodName, Request};
use std::{
    iter, thread,
    time::{Duration, Instant},
};

/// How long to wait for the first look whether the node has taken over what a pod requests: kubelet takes 0.9 s at the
/// least.
const FIRST_LOOK_AFTER: Duration = Duration::from_millis(400);
/// How long to wait for each further look, which reads the whole pod.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// How long a node may take to say that a pod requests something else than before. kubelet takes two seconds at times.
const SEEN_AFTER: Duration = Duration::from_secs(3);

/// Does what a request says, by then; `goes_on` is whether anybody still waits for it.
pub fn answer(
    request: &Request,
    cluster: &impl Cluster,
    until: Instant,
    goes_on: impl Fn() -> bool,
) -> Answer {
    let done = match request.occupied_bytes {
        Some(bytes) => fall(request, bytes, cluster, until),
        None => rise(request, cluster, until, goes_on),
    };
    match done {
        Ok(()) | Err(Problem::Gone) => Answer::Done,
        Err(Problem::Refused(why)) => Answer::Refused { why },
        Err(Problem::Failed(why)) => Answer::Failed { why },
    }
}

/// A pod that is frozen requests what it occupies, if it could have its limits back. One that is about to end keeps them.
fn fall(
    request: &Request,
    occupied_bytes: u64,
    cluster: &impl Cluster,
    until: Instant,
) -> Result<(), Problem> {
    let pod = cluster.pod(&request.pod, until)?;
    if pod.is_ending() {
        return Ok(());
    }
    let fallen = pod.fallen(occupied_bytes).map_err(Problem::Refused)?;
    match fallen {
        Some(patch) => cluster
            .resize(&request.pod, &patch, until)
            .map_err(|denied| denied.into_problem(|_| true)),
        None => Ok(()),
    }
}

/// A pod that is to run requests its limits, and its node has room for them.
fn rise(
    request: &Request,
    cluster: &impl Cluster,
    until: Instant,
    goes_on: impl Fn() -> bool,
) -> Result<(), Problem> {
    let before = cluster.pod(&request.pod, until)?;
    if before.is_ending() {
        rise_to_end(&request.pod, &before, cluster, until);
        return Ok(());
    }
    let mut old_until = None;
    if let Some(patch) = before.risen().map_err(Problem::Refused)? {
        // What is forbidden otherwise is nothing that its tenant could help.
        let is_quota = |message: &str| message.contains("exceeded quota");
        cluster
            .resize(&request.pod, &patch, until)
            .map_err(|denied| denied.into_problem(is_quota))?;
        // What the node says of a pod may be older than what the pod requested last, and be true of what it requests now by
        // accident.
        if before.admission() != Admission::Admitted {
            old_until = Some(Instant::now() + SEEN_AFTER);
        }
    } else if is_admitted(&before, &mut old_until)? {
        return Ok(());
    }
    for pause in iter::once(FIRST_LOOK_AFTER).chain(iter::repeat(LOOK_INTERVAL)) {
        if Instant::now() + pause >= until || !goes_on() {
            break;
        }
        thread::sleep(pause);
        let pod = cluster.pod(&request.pod, until)?;
        if pod.is_ending() || is_admitted(&pod, &mut old_until)? {
            return Ok(());
        }
    }
    Err(Problem::Failed("the node has not said yet whether it has room".to_owned()))
}

/// A pod that is about to end requests its limits, if the cluster lets it: it may run for days yet, and the scheduler is to
/// count what it may use. It is not to wait for that, though, or for its node.
fn rise_to_end(name: &PodName, pod: &Pod, cluster: &impl Cluster, until: Instant) {
    let Ok(Some(patch)) = pod.risen() else { return };
    if let Err(denied) = cluster.resize(name, &patch, until) {
        let why = short(&denied.message);
        tracing::info!("pod {name} is about to end and requests less than its limits: {why}");
    }
}

/// Whether the pod's node has admitted what the pod requests. Until `old_until`, if it has not said anything else before, it
/// may speak of what the pod requested earlier.
fn is_admitted(pod: &Pod, old_until: &mut Option<Instant>) -> Result<bool, Problem> {
    match pod.admission() {
        Admission::Admitted => Ok(old_until.is_none_or(|until| Instant::now() >= until)),
        Admission::Open => {
            *old_until = None;
            Ok(false)
        }
        Admission::Refused(why) => Err(Problem::Refused(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Denied;
    use serde_json::{Value, json};
    use std::{cell::RefCell, collections::VecDeque};

    /// A cluster with one pod, whose node says the next of these when it is looked at, and the last one from then on.
    struct Script {
        requested: RefCell<String>,
        says: RefCell<VecDeque<Value>>,
        denial: Option<Denied>,
        is_gone: bool,
    }

    impl Script {
        fn new(requested: &str, says: impl IntoIterator<Item = Value>) -> Self {
            let says = RefCell::new(says.into_iter().collect());
            Self {
                requested: RefCell::new(requested.to_owned()),
                says,
                denial: None,
                is_gone: false,
            }
        }

        fn ask(&self, occupied_bytes: Option<u64>) -> Answer {
            self.ask_for(Duration::from_secs(60), occupied_bytes)
        }

        /// For so long, if the node does not say more.
        fn ask_for(&self, limit: Duration, occupied_bytes: Option<u64>) -> Answer {
            let request = Request { pod: pod(), occupied_bytes };
            answer(&request, self, Instant::now() + limit, || true)
        }
    }

    impl Cluster for Script {
        fn pod(&self, _: &PodName, _: Instant) -> Result<Pod, Problem> {
            if self.is_gone {
                return Err(Problem::Gone);
            }
            let mut says = self.says.borrow_mut();
            let status = if says.len() > 1 { says.pop_front() } else { says.front().cloned() };
            let deleted = status.as_ref().and_then(|status| status["deleted"].as_str());
            let pod = json!({
                "metadata": { "uid": "1", "resourceVersion": "7", "deletionTimestamp": deleted },
                "spec": { "containers": [{ "name": "c", "resources": {
                    "limits": { "memory": "128Mi" }, "requests": { "memory": *self.requested.borrow() },
                } }] },
                "status": status,
            });
            Ok(serde_json::from_value(pod).unwrap())
        }

        fn resize(&self, _: &PodName, patch: &Value, _: Instant) -> Result<(), Denied> {
            if let Some(denial) = &self.denial {
                return Err(denial.clone());
            }
            let request = &patch["spec"]["containers"][0]["resources"]["requests"]["memory"];
            *self.requested.borrow_mut() = request.as_str().unwrap().to_owned();
            Ok(())
        }
    }

    fn pod() -> PodName {
        let name = |text: &str| text.parse().unwrap();
        PodName { namespace: name("default"), name: name("web"), uid: name("1") }
    }

    /// The node says that the container has this request.
    fn has(request: &str) -> Value {
        json!({ "containerStatuses": [{ "name": "c", "resources": { "requests": { "memory": request } } }] })
    }

    fn pending(reason: &str, message: &str) -> Value {
        let condition = json!({ "type": "PodResizePending", "status": "True", "reason": reason, "message": message });
        json!({ "conditions": [condition] })
    }

    /// The pod is about to end, and its node says nothing.
    fn ending() -> Value {
        json!({ "deleted": "2026-11-28T12:00:00Z" })
    }

    fn denied(status: u16, message: &str) -> Option<Denied> {
        Some(Denied { status, message: message.to_owned() })
    }

    #[test]
    fn a_pod_falls_from_its_limit_and_rises_to_it() {
        let cluster = Script::new("128Mi", [has("128Mi")]);
        assert_eq!(cluster.ask(Some(20 << 20)), Answer::Done);
        assert_eq!(*cluster.requested.borrow(), (20 << 20).to_string());
        *cluster.says.borrow_mut() = [has("20Mi"), has("20Mi"), has("128Mi")].into();
        assert_eq!(cluster.ask(None), Answer::Done);
        assert_eq!(
            (cluster.requested.borrow().as_str(), cluster.says.borrow().len()),
            ("128Mi", 1)
        );
    }

    #[test]
    fn only_what_has_its_limit_falls() {
        // By its own word, or because its node has not admitted it yet: it might never rise again.
        let smaller = Script::new("64Mi", [has("64Mi")]);
        assert!(matches!(smaller.ask(Some(20 << 20)), Answer::Refused { .. }));
        let full = pending("Deferred", "Node didn't have enough resource: memory");
        for says in [has("64Mi"), json!({}), full] {
            let open = Script::new("128Mi", [says]);
            assert!(matches!(open.ask(Some(20 << 20)), Answer::Refused { .. }));
            assert_eq!(*open.requested.borrow(), "128Mi");
        }
    }

    #[test]
    fn what_a_node_said_before_is_not_taken_for_its_word() {
        // It has not seen the fall when the pod rises, and says what it requested before that.
        let cluster = Script::new("1Mi", [has("128Mi"), has("128Mi"), has("1Mi"), has("128Mi")]);
        assert_eq!(cluster.ask(None), Answer::Done);
        assert_eq!(cluster.says.borrow().len(), 1, "it has been waited for");
    }

    #[test]
    fn a_pod_that_requests_its_limit_takes_one_look() {
        let cluster = Script::new("128Mi", [has("128Mi"), has("1Mi"), has("1Mi")]);
        assert_eq!(cluster.ask(None), Answer::Done);
        assert_eq!(cluster.says.borrow().len(), 2);
    }

    #[test]
    fn a_node_that_refuses_a_pod_is_told_from_one_that_says_nothing() {
        for (reason, message) in [
            ("Deferred", "Node didn't have enough resource: memory, used: 1"),
            ("Deferred", "Node didn't have enough resource: cpu, used: 1"),
            ("Infeasible", "Node didn't have enough capacity: cpu, requested: 64000"),
        ] {
            let expected = Answer::Refused { why: format!("{reason}: {message}") };
            let rises = Script::new("1Mi", [has("1Mi"), pending(reason, message)]);
            assert_eq!(rises.ask(None), expected);
            let has_risen = Script::new("128Mi", [pending(reason, message)]);
            assert_eq!(has_risen.ask(None), expected);
        }
        let silent = Script::new("1Mi", [has("1Mi")]);
        let limit = Duration::from_millis(1500);
        assert!(matches!(silent.ask_for(limit, None), Answer::Failed { .. }));
    }

    #[test]
    fn a_tenant_is_told_from_a_system_that_fails() {
        let rises = |denial| Script { denial, ..Script::new("1Mi", [has("1Mi")]) }.ask(None);
        let falls = |denial| Script { denial, ..Script::new("128Mi", [has("128Mi")]) }.ask(Some(1));
        let quota =
            "pods \"web\" is forbidden: exceeded quota: small, requested: requests.memory=127Mi";
        let class = "Pod \"web\" is invalid: Pod QOS Class may not change as a result of resizing";
        for (status, message) in [(403, quota), (422, class)] {
            let refused = Answer::Refused { why: message.to_owned() };
            assert_eq!(rises(denied(status, message)), refused);
            assert_eq!(falls(denied(status, message)), refused);
        }
        let rights = "pods \"web\" is forbidden: User \"x\" cannot patch resource \"pods/resize\"";
        assert!(matches!(rises(denied(403, rights)), Answer::Failed { .. }));
        assert!(matches!(falls(denied(403, rights)), Answer::Refused { .. }));
        for (status, message) in
            [(500, "etcdserver: request timed out"), (401, "Unauthorized"), (429, "later")]
        {
            assert!(matches!(rises(denied(status, message)), Answer::Failed { .. }), "{message}");
            assert!(matches!(falls(denied(status, message)), Answer::Failed { .. }), "{message}");
        }
    }

    #[test]
    fn nothing_is_to_be_done_for_a_pod_that_is_gone() {
        let gone = Script { is_gone: true, ..Script::new("1Mi", [has("1Mi")]) };
        assert_eq!((gone.ask(None), gone.ask(Some(1))), (Answer::Done, Answer::Done));
    }

    #[test]
    fn a_pod_that_is_about_to_end_rises_if_it_may_and_waits_for_nobody() {
        let cluster = Script::new("1Mi", [ending()]);
        assert_eq!(cluster.ask(None), Answer::Done);
        assert_eq!(*cluster.requested.borrow(), "128Mi");
        for status in [0, 403, 404, 422, 500] {
            let denial = denied(status, "no");
            let denying = Script { denial, ..Script::new("1Mi", [ending()]) };
            assert_eq!(denying.ask(None), Answer::Done, "{status}");
        }
        // Nor does one that is deleted while it waits.
        let deleted = Script::new("1Mi", [has("1Mi"), has("1Mi"), ending()]);
        assert_eq!(deleted.ask(None), Answer::Done);
    }

    #[test]
    fn a_pod_that_is_about_to_end_does_not_fall() {
        let cluster = Script::new("128Mi", [ending()]);
        assert_eq!(cluster.ask(Some(20 << 20)), Answer::Done);
        assert_eq!(*cluster.requested.borrow(), "128Mi");
    }

    #[test]
    fn nobody_looks_for_whoever_has_gone() {
        let cluster = Script::new("1Mi", [has("1Mi")]);
        let request = Request { pod: pod(), occupied_bytes: None };
        let until = Instant::now() + Duration::from_secs(60);
        assert!(matches!(answer(&request, &cluster, until, || false), Answer::Failed { .. }));
    }
}
