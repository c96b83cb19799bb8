//! Sequences: actions that call others one after the other, each with the result of the one before.

use crate::{
    Namespace, QualifiedName,
    action::{ActionBody, check_name, describe, version},
    activation::Called,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The kind of sequences.
pub const SEQUENCE: &str = "sequence";

/// How many actions a sequence may call, those of the sequences in it included, as in OpenWhisk.
pub const MOST_ACTIONS: usize = 50;

/// How deep sequences may be nested, which OpenWhisk does not bound.
pub const MOST_DEPTH: usize = 16;

/// A sequence, as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sequence {
    /// What it calls. The names are resolved at each call.
    pub components: Vec<QualifiedName>,
    /// Number of changes.
    pub revision: u32,
    /// Time of the last change, in milliseconds since 1970.
    pub updated_ms: u64,
    /// As the client sent it, without `exec`.
    pub body: ActionBody,
}

/// Why there is no such sequence, or why one ends, in OpenWhisk's words where it has some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SequenceProblem {
    /// It has no components.
    #[error("No component specified for the sequence.")]
    Empty,
    /// It has too many of them.
    #[error("Too many actions in the sequence.")]
    TooLong,
    /// It is nested too deep.
    #[error("Sequences may be nested {MOST_DEPTH} deep.")]
    TooDeep,
    /// It is a part of itself.
    #[error("Sequence may not refer to itself.")]
    Cyclic,
    /// One of its components is not there.
    #[error("Sequence component does not exist.")]
    Missing,
}

/// What a component is.
#[derive(Clone, Debug)]
pub enum Component {
    /// There is nothing of this name.
    Missing,
    /// An action.
    Action,
    /// Another sequence.
    Sequence(Arc<Sequence>),
}

impl Sequence {
    /// What an activation says of it.
    pub fn called(&self, name: &QualifiedName) -> Called {
        Called { action: name.clone(), version: version(self.revision), kind: SEQUENCE }
    }

    /// The sequence in OpenWhisk's format.
    pub fn describe(&self, name: &QualifiedName) -> Value {
        let components = self.components.iter();
        let components: Vec<_> = components
            .map(|QualifiedName { namespace, name }| format!("/{namespace}/{name}"))
            .collect();
        let exec = json!({ "kind": SEQUENCE, "binary": false, "components": components });
        let limits = self.body.limits().describe(None);
        describe(name, self.revision, self.updated_ms, exec, &self.body, limits)
    }
}

/// The components of a sequence in `namespace`, which have to be in it, too: tenants see nothing of each other.
pub fn read_components(
    namespace: &Namespace,
    components: &[String],
) -> Result<Vec<QualifiedName>, String> {
    match components.len() {
        0 => return Err(SequenceProblem::Empty.to_string()),
        1..=MOST_ACTIONS => {}
        _ => return Err(SequenceProblem::TooLong.to_string()),
    }
    let read = |text: &String| {
        let parts = text.strip_prefix('/').and_then(|rest| rest.split_once('/'));
        let (of, name) = parts.ok_or_else(|| {
            let text: String = text.chars().take(100).collect();
            format!("exec.components: {text:?} is not /NAMESPACE/NAME or /NAMESPACE/PACKAGE/NAME")
        })?;
        if of != "_" && of != namespace.as_str() {
            return Err("a sequence can only have components of its own namespace".to_owned());
        }
        check_name(name)?;
        Ok(QualifiedName::new(namespace.clone(), name))
    };
    components.iter().map(read).collect()
}

/// Checks that a sequence of these components may have this name. `find` says what the name of a component leads to;
/// `None` if it leads nowhere.
pub fn check(
    name: &QualifiedName,
    components: &[QualifiedName],
    find: impl Fn(&QualifiedName) -> Option<(QualifiedName, Component)>,
) -> Result<(), SequenceProblem> {
    let mut walk = Walk { find, path: Vec::new(), actions: 0 };
    walk.sequence(name.clone(), components)
}

/// A walk through a sequence and those in it.
struct Walk<F> {
    find: F,
    /// The sequences that the current one is in, and itself.
    path: Vec<QualifiedName>,
    /// How many actions have been passed.
    actions: usize,
}

impl<F: Fn(&QualifiedName) -> Option<(QualifiedName, Component)>> Walk<F> {
    fn sequence(
        &mut self,
        name: QualifiedName,
        components: &[QualifiedName],
    ) -> Result<(), SequenceProblem> {
        if components.is_empty() {
            return Err(SequenceProblem::Empty);
        }
        if self.path.len() == MOST_DEPTH {
            return Err(SequenceProblem::TooDeep);
        }
        self.path.push(name);
        for component in components {
            let (name, component) = (self.find)(component).ok_or(SequenceProblem::Missing)?;
            // Also if the first of them is still an action, or is not there yet.
            if self.path.contains(&name) {
                return Err(SequenceProblem::Cyclic);
            }
            match component {
                Component::Missing => return Err(SequenceProblem::Missing),
                Component::Action => self.actions += 1,
                Component::Sequence(inner) => self.sequence(name, &inner.components)?,
            }
            if self.actions > MOST_ACTIONS {
                return Err(SequenceProblem::TooLong);
            }
        }
        self.path.pop();
        Ok(())
    }
}

/// Whether one of these sequences is a part of itself. Each is given with what the names of its components lead to.
pub fn is_any_cyclic(sequences: &BTreeMap<QualifiedName, Vec<QualifiedName>>) -> bool {
    let mut done = BTreeSet::new();
    for start in sequences.keys() {
        // Not recursive: a sequence may have become part of another after it had been put, so there is no bound.
        let mut path = vec![(start, 0)];
        let mut is_on_path = BTreeSet::from([start]);
        while let Some((name, next)) = path.last_mut() {
            let name = *name;
            let component = sequences.get(name).and_then(|components| components.get(*next));
            *next += 1;
            match component {
                Some(component) if is_on_path.contains(component) => return true,
                Some(component) if done.contains(component) => {}
                Some(component) => {
                    is_on_path.insert(component);
                    path.push((component, 0));
                }
                None => {
                    done.insert(name);
                    is_on_path.remove(name);
                    path.pop();
                }
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn name(text: &str) -> QualifiedName {
        text.parse().unwrap()
    }

    fn sequence(components: &[&str]) -> Arc<Sequence> {
        let components = components.iter().map(|component| name(component)).collect();
        let body = ActionBody::default();
        Arc::new(Sequence { components, revision: 1, updated_ms: 7, body })
    }

    /// What is there, by name.
    type There = BTreeMap<QualifiedName, Component>;

    fn there<const N: usize>(all: [(&str, Component); N]) -> There {
        all.into_iter().map(|(text, component)| (name(text), component)).collect()
    }

    fn checked(text: &str, components: &[&str], there: &There) -> Result<(), SequenceProblem> {
        check(&name(text), &sequence(components).components, |component| {
            let found = there.get(component).cloned().unwrap_or(Component::Missing);
            Some((component.clone(), found))
        })
    }

    #[test]
    fn components_are_of_the_same_namespace() {
        let acme: Namespace = "acme".parse().unwrap();
        let read = |components: &[&str]| {
            let components: Vec<_> = components.iter().map(|&text| text.to_owned()).collect();
            read_components(&acme, &components)
        };
        let right = vec![name("/acme/a"), name("/acme/p/b"), name("/acme/a")];
        assert_eq!(read(&["/_/a", "/acme/p/b", "/_/a"]), Ok(right));
        for wrong in ["a", "/a", "/_/", "/_/a/b/c", "/guest/a", "_/a", "/_/.."] {
            let error = read(&["/_/a", wrong]).unwrap_err();
            assert!(error.lines().count() == 1, "{error}");
        }
        assert_eq!(read(&[]).unwrap_err(), "No component specified for the sequence.");
        assert!(read(&["/_/a"; MOST_ACTIONS]).is_ok());
        let error = read(&["/_/a"; MOST_ACTIONS + 1]).unwrap_err();
        assert_eq!(error, "Too many actions in the sequence.");
    }

    #[test]
    fn a_sequence_is_described_as_clients_send_it() {
        let described = sequence(&["a", "p/b"]).describe(&name("p/s"));
        let right = json!({
            "kind": "sequence",
            "binary": false,
            "components": ["/guest/a", "/guest/p/b"],
        });
        assert_eq!(described["exec"], right);
        assert_eq!((&described["namespace"], &described["name"]), (&json!("guest/p"), &json!("s")));
    }

    #[test]
    fn no_sequence_is_a_part_of_itself() {
        let all = there([
            ("a", Component::Action),
            ("s", Component::Sequence(sequence(&["a", "t"]))),
            ("t", Component::Sequence(sequence(&["a", "a"]))),
        ]);
        assert_eq!(checked("u", &["s", "t", "s"], &all), Ok(()));
        for (text, components) in
            [("s", &["s"][..]), ("s", &["a", "s"]), ("t", &["s"]), ("a", &["a"]), ("a", &["s"])]
        {
            assert_eq!(checked(text, components, &all), Err(SequenceProblem::Cyclic), "{text}");
        }
        // Others may still name one that has been deleted.
        let all = there([("s", Component::Sequence(sequence(&["gone"])))]);
        assert_eq!(checked("gone", &["s"], &all), Err(SequenceProblem::Cyclic));
        assert_eq!(checked("new", &["s"], &all), Err(SequenceProblem::Missing));
    }

    #[test]
    fn actions_are_counted_wherever_they_are() {
        let ten = Component::Sequence(sequence(&["a"; 10]));
        let all = there([("a", Component::Action), ("ten", ten)]);
        assert_eq!(checked("s", &["ten"; 5], &all), Ok(()));
        let more = [&["ten"; 5][..], &["a"]].concat();
        assert_eq!(checked("s", &more, &all), Err(SequenceProblem::TooLong));
        assert_eq!(checked("s", &["none"], &all), Err(SequenceProblem::Missing));
        assert_eq!(checked("s", &[], &all), Err(SequenceProblem::Empty));
    }

    #[test]
    fn sequences_are_nested_so_deep_and_no_deeper() {
        let mut all = there([("s0", Component::Action)]);
        for depth in 1..=MOST_DEPTH {
            let (text, inner) = (format!("s{depth}"), format!("s{}", depth - 1));
            assert_eq!(checked(&text, &[&inner], &all), Ok(()), "{text}");
            all.insert(name(&text), Component::Sequence(sequence(&[&inner])));
        }
        let deepest = format!("s{MOST_DEPTH}");
        assert_eq!(checked("deeper", &[&deepest], &all), Err(SequenceProblem::TooDeep));
    }

    /// A change: of `name` to an action, to a sequence, or to nothing.
    fn change() -> impl Strategy<Value = (usize, Option<Vec<usize>>, bool)> {
        (0..6_usize, proptest::option::of(vec(0..6_usize, 0..4)), any::<bool>())
    }

    proptest! {
        #[test]
        fn a_cycle_can_never_be_stored(changes in vec(change(), 0..60)) {
            let text = |index: usize| format!("n{index}");
            let mut all = There::new();
            for (index, components, is_action) in changes {
                let own = text(index);
                match components {
                    Some(components) => {
                        let components: Vec<_> = components.into_iter().map(text).collect();
                        let components: Vec<_> = components.iter().map(String::as_str).collect();
                        if checked(&own, &components, &all).is_ok() {
                            let new = Component::Sequence(sequence(&components));
                            all.insert(name(&own), new);
                        }
                    }
                    None if is_action => drop(all.insert(name(&own), Component::Action)),
                    None => drop(all.remove(&name(&own))),
                }
                let edges = all.iter().filter_map(|(name, component)| match component {
                    Component::Sequence(one) => Some((name.clone(), one.components.clone())),
                    _ => None,
                });
                prop_assert!(!is_any_cyclic(&edges.collect()));
            }
        }

        #[test]
        fn every_cycle_is_found(edges in vec(vec(0..7_usize, 0..3), 7)) {
            // Whatever is left when those that lead nowhere are taken away again and again.
            let mut left: BTreeSet<usize> = (0..7).collect();
            while let Some(&end) =
                left.iter().find(|&&one| edges[one].iter().all(|to| !left.contains(to)))
            {
                left.remove(&end);
            }
            let text = |index: &usize| name(&format!("n{index}"));
            let all = edges.iter().enumerate();
            let all = all.map(|(one, to)| (text(&one), to.iter().map(text).collect())).collect();
            prop_assert_eq!(is_any_cyclic(&all), !left.is_empty());
        }
    }
}
