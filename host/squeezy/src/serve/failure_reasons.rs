//! Why calls were refused for reasons other than load: VMs that could not be booted, or instances
//! that could not be started.

use crate::mutex::lock;
use squeezy_node::{CallError, NodeEvent};
use squeezy_openwhisk::now_ms;
use squeezy_scaler::{FunctionIndex, InstanceNumber, RejectReason};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

/// The maximum length of a reason.
const MOST_CHARACTERS: usize = 300;

/// Why calls of a function are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// When the last call was refused, in milliseconds since 1970.
    pub at_ms: u64,
    /// The kind of failure; public.
    pub what: String,
    /// The details. They may quote the guest's console or an instance's output, so they are only
    /// for clients with the key. They do not contain directories of the host.
    pub why: String,
    /// The end of the output of an instance that could not be started, if it is itself why.
    pub by_instance: Option<Arc<[String]>>,
}

/// The failure reason of each function.
#[derive(Default)]
pub struct FailureReasons(Mutex<State>);

#[derive(Default)]
struct State {
    /// Why a VM last ended.
    vm: String,
    /// Why the memory of an instance last could not be plugged, and which instance.
    memory: Option<(InstanceNumber, String)>,
    /// Why an instance last could not be started, and its output if that is its own doing.
    instance: (String, Option<Arc<[String]>>),
    of: BTreeMap<FunctionIndex, Problem>,
}

impl State {
    fn refused(&mut self, function: FunctionIndex, reason: RejectReason) {
        let (why, by_instance) = match reason {
            RejectReason::VmFailed => (self.vm.clone(), None),
            RejectReason::StartFailed => self.instance.clone(),
            _ => return,
        };
        let what = CallError::Rejected(reason).to_string();
        self.of.insert(function, Problem { at_ms: now_ms(), what, why, by_instance });
    }
}

impl FailureReasons {
    /// Records an event. The node reports why something has failed right before it refuses the
    /// calls that were waiting for it.
    pub fn see(&self, event: &NodeEvent<'_>) {
        match *event {
            NodeEvent::Ended { reason, .. } => {
                self.lock().vm = presentable(&without_directories(&reason.to_string()))
            }
            NodeEvent::Plugged { instance, outcome, .. } => {
                let memory = outcome
                    .error
                    .as_ref()
                    .map(|error| (instance, without_directories(&error.to_string())));
                if memory.is_some() {
                    self.lock().memory = memory;
                }
            }
            NodeEvent::Started { instance, result: Err(reason), .. } => {
                let mut state = self.lock();
                let why = match &state.memory {
                    Some((of, error)) if *of == instance => {
                        presentable(&format!("{reason}: {error}"))
                    }
                    _ => presentable(&reason.to_string()),
                };
                state.instance = (why, reason.output().map(Arc::from));
            }
            NodeEvent::Called { function, result, .. } => {
                let mut state = self.lock();
                match result {
                    // The failure is over.
                    Ok(_) | Err(CallError::Failed { .. }) => drop(state.of.remove(&function)),
                    Err(CallError::Rejected(reason)) => state.refused(function, *reason),
                    Err(CallError::Ended) => {}
                }
            }
            // Its calls have yet to come.
            NodeEvent::NotPrewarmed { function, reason } => self.lock().refused(function, reason),
            _ => {}
        }
    }

    /// Why calls of a function are refused, if they are.
    pub fn of(&self, function: FunctionIndex) -> Option<Problem> {
        self.lock().of.get(&function).cloned()
    }

    /// The message for a call that has just failed, with the reason if there is one, and the output of the instance that
    /// itself is that.
    pub fn explain(
        &self,
        function: FunctionIndex,
        error: &CallError,
    ) -> (String, Option<Arc<[String]>>) {
        let what = error.to_string();
        match self.of(function) {
            Some(problem) if problem.what == what => {
                (format!("{what}: {}", problem.why), problem.by_instance)
            }
            _ => (what, None),
        }
    }

    /// Drops functions that no longer exist.
    pub fn retain(&self, is_there: impl Fn(FunctionIndex) -> bool) {
        self.lock().of.retain(|&function, _| is_there(function));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

/// The beginning of a reason, on one line.
fn presentable(reason: &str) -> String {
    let line = reason.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut line: String = line.take(MOST_CHARACTERS + 1).collect();
    if let Some((end, _)) = line.char_indices().nth(MOST_CHARACTERS) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// Replaces absolute paths in a text with their last component.
pub fn without_directories(text: &str) -> String {
    let is_of_path = |c: char| c.is_alphanumeric() || "/._-+@~".contains(c);
    let (mut kept, mut rest) = (String::new(), text);
    while let Some(start) = rest.find(is_of_path) {
        let (before, from) = rest.split_at(start);
        let (word, after) = from.split_at(from.find(|c| !is_of_path(c)).unwrap_or(from.len()));
        kept += before;
        kept += match word.rsplit_once('/') {
            Some((_, name)) if word.starts_with('/') && !name.is_empty() => name,
            _ => word,
        };
        rest = after;
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::failed_call;
    use squeezy_node::{InstanceError, ResizeOutcome, VmEnd};
    use squeezy_scaler::{Moment, VmIndex};
    use squeezy_vmm::VmError;
    use std::time::Duration;

    const F: FunctionIndex = FunctionIndex(3);

    fn rejected(reason: RejectReason) -> CallError {
        CallError::Rejected(reason)
    }

    fn call(failure_reasons: &FailureReasons, error: CallError) -> String {
        failure_reasons.see(&NodeEvent::Called {
            function: F,
            instance: None,
            came: Moment::START,
            trace: None,
            result: &Err(error.clone()),
        });
        failure_reasons.explain(F, &error).0
    }

    #[test]
    fn who_is_turned_away_hears_why() {
        let failure_reasons = FailureReasons::default();
        failure_reasons.see(&NodeEvent::Ended { vm: VmIndex(0), reason: &VmEnd::Unneeded });
        assert_eq!(failure_reasons.of(F), None);
        let end = VmEnd::Failed(VmError::Missing {
            what: "the kernel",
            path: "/srv/build/bzImage".into(),
            remedy: "run `make kernel`\nor so",
        });
        failure_reasons.see(&NodeEvent::Ended { vm: VmIndex(1), reason: &end });
        let said = call(&failure_reasons, rejected(RejectReason::VmFailed));
        assert!(
            said.ends_with("has ended: the kernel is not at bzImage: run `make kernel` or so"),
            "{said}"
        );
        assert_eq!(
            call(&failure_reasons, rejected(RejectReason::QueueFull)),
            "too many calls of this function are waiting"
        );
        assert!(failure_reasons.of(F).is_some());

        let (instance, function) = (InstanceNumber(1), F);
        let error = Some(VmError::Stopped);
        let outcome = &ResizeOutcome { latency: None, resident_drop_bytes: 0, taken: None, error };
        failure_reasons.see(&NodeEvent::Plugged {
            instance,
            function,
            took: Duration::ZERO,
            outcome,
        });
        let result = Err(&InstanceError::NotPlugged);
        failure_reasons.see(&NodeEvent::Started { instance, function, result });
        let said = call(&failure_reasons, rejected(RejectReason::StartFailed));
        assert!(
            said.ends_with("started: its memory could not be plugged: the VM has been stopped"),
            "{said}"
        );
        let long = InstanceError::NoAnswer("x".repeat(10_000));
        let (instance, result) = (InstanceNumber(2), Err(&long));
        failure_reasons.see(&NodeEvent::Started { instance, function, result });
        let said = call(&failure_reasons, rejected(RejectReason::StartFailed));
        assert!(said.len() < 400 && said.ends_with("x…"), "{said}");

        let error = rejected(RejectReason::StartFailed);
        assert_eq!(failure_reasons.explain(F, &error).1, None, "the host's doing");
        let (path, problem) = ("/init".to_owned(), "SyntaxError".to_owned());
        let output = vec!["a line".to_owned()];
        let result = Err(&InstanceError::NotReady { path, problem, output });
        failure_reasons.see(&NodeEvent::Started { instance, function, result });
        let said = call(&failure_reasons, error.clone());
        assert!(said.ends_with("started: /init: SyntaxError"), "{said}");
        let output = failure_reasons.explain(F, &error).1.expect("it is its own doing");
        assert_eq!(*output, ["a line"]);

        let (instance, came, result) = (Some(instance), Moment::START, &Err(failed_call("")));
        failure_reasons.see(&NodeEvent::Called { function, instance, came, trace: None, result });
        assert_eq!(failure_reasons.of(F), None);
    }

    #[test]
    fn what_cannot_start_ahead_of_calls_is_known_before_one_comes() {
        let failure_reasons = FailureReasons::default();
        let (path, problem) = ("/init".to_owned(), "SyntaxError".to_owned());
        let result = Err(&InstanceError::NotReady { path, problem, output: Vec::new() });
        let (instance, function) = (InstanceNumber(2), F);
        failure_reasons.see(&NodeEvent::Started { instance, function, result });
        for (reason, known) in
            [(RejectReason::NoRoomAhead, false), (RejectReason::StartFailed, true)]
        {
            failure_reasons.see(&NodeEvent::NotPrewarmed { function, reason });
            assert_eq!(failure_reasons.of(F).is_some(), known, "{reason:?}");
        }
        assert_eq!(failure_reasons.of(F).unwrap().why, "/init: SyntaxError");
    }

    #[test]
    fn directories_stay_here() {
        for (text, right) in [
            (
                "-drive file=/root/a.erofs,if=x: Could not open '/root/a.erofs'",
                "-drive file=a.erofs,if=x: Could not open 'a.erofs'",
            ),
            ("/dev/kvm (/a/b) and/or 1/2", "kvm (b) and/or 1/2"),
            ("", ""),
            ("/ ende/ ä/b", "/ ende/ ä/b"),
        ] {
            assert_eq!(without_directories(text), right);
        }
    }
}
