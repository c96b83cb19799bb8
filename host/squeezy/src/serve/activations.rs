//! The most recent activations, kept for clients that ask later.

use squeezy_openwhisk::activation::Activation;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

/// A filter for activations.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Only of this action.
    pub action: Option<String>,
    /// Only from this time on, in milliseconds since 1970.
    pub since_ms: Option<i64>,
    /// Only up to this time, in milliseconds since 1970.
    pub upto_ms: Option<i64>,
}

impl Selection {
    fn admits(&self, activation: &Activation) -> bool {
        let start_ms = i64::try_from(activation.start_ms).unwrap_or(i64::MAX);
        self.action.as_ref().is_none_or(|action| *action == activation.action)
            && self.since_ms.is_none_or(|since| start_ms >= since)
            && self.upto_ms.is_none_or(|upto| start_ms <= upto)
    }
}

/// The most recent activations.
pub struct Activations {
    most: usize,
    most_bytes: usize,
    /// Sum of the activations' [`Activation::size`].
    bytes: usize,
    order: VecDeque<Arc<Activation>>,
    by_id: HashMap<String, Arc<Activation>>,
}

impl Activations {
    /// Keeps at most `most` activations, and of those as many as fit into `most_bytes` with their
    /// results and logs.
    pub fn new(most: usize, most_bytes: usize) -> Self {
        Self { most, most_bytes, bytes: 0, order: VecDeque::new(), by_id: HashMap::new() }
    }

    /// Adds one, and drops the oldest ones beyond the limits.
    pub fn push(&mut self, activation: Arc<Activation>) {
        self.bytes += activation.size();
        while self.order.len() >= self.most || self.bytes > self.most_bytes {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes -= oldest.size();
            self.by_id.remove(&oldest.id);
        }
        self.by_id.insert(activation.id.clone(), activation.clone());
        self.order.push_back(activation);
    }

    /// The activation with this id.
    pub fn get(&self, id: &str) -> Option<Arc<Activation>> {
        self.by_id.get(id).cloned()
    }

    /// Matching activations, latest first.
    pub fn list(&self, selection: &Selection) -> impl Iterator<Item = &Arc<Activation>> {
        self.order.iter().rev().filter(|activation| selection.admits(activation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use squeezy_openwhisk::activation::Status;
    use std::time::Duration;

    const MOST_BYTES: usize = 64 << 20;

    fn activation(id: &str, action: &str) -> Arc<Activation> {
        Arc::new(Activation {
            id: id.to_owned(),
            action: action.to_owned(),
            kind: "blackbox",
            version: "0.0.1".to_owned(),
            start_ms: 1000,
            status: Status::Success,
            result: json!({ "a": 1 }),
            waited: Duration::ZERO,
            waited_for: None,
            init: None,
            took: Duration::ZERO,
            logs: Vec::new(),
        })
    }

    #[test]
    fn only_the_latest_are_remembered() {
        let mut activations = Activations::new(2, MOST_BYTES);
        for id in ["1", "2", "3"] {
            activations.push(activation(id, "f"));
        }
        assert!(activations.get("1").is_none());
        let all = Selection::default();
        let listed: Vec<_> = activations.list(&all).map(|a| a.id.as_str()).collect();
        assert_eq!(listed, ["3", "2"]);
    }

    #[test]
    fn activations_are_selected_by_action_and_time() {
        let mut activations = Activations::new(2, MOST_BYTES);
        activations.push(activation("1", "f"));
        let count = |action: Option<&str>, since_ms, upto_ms| {
            let action = action.map(str::to_owned);
            activations.list(&Selection { action, since_ms, upto_ms }).count()
        };
        assert_eq!(count(Some("f"), Some(1000), Some(1000)), 1);
        assert_eq!(count(Some("g"), None, None), 0);
        assert_eq!(count(None, Some(1001), None), 0);
        assert_eq!(count(None, Some(-1), Some(999)), 0);
    }

    #[test]
    fn large_results_are_forgotten_sooner_but_not_the_latest() {
        let mut activations = Activations::new(100, MOST_BYTES);
        let large = |id: &str, bytes| {
            let result = json!({ "text": "x".repeat(bytes), "list": [1, { "a": null }] });
            Arc::new(Activation { result, ..(*activation(id, "f")).clone() })
        };
        for id in ["1", "2", "3", "4"] {
            activations.push(large(id, MOST_BYTES / 3));
        }
        assert_eq!(activations.list(&Selection::default()).count(), 2);
        activations.push(large("5", MOST_BYTES));
        assert_eq!(activations.list(&Selection::default()).count(), 1);
        assert!(activations.get("5").is_some() && activations.get("4").is_none());
        activations.push(activation("6", "f"));
        assert_eq!(activations.bytes, activation("6", "f").size());
    }
}
