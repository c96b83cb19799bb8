//! The versions of actions: which is the latest, and which serves.
//!
//! A changed action is served by its former version until an instance of the latest one is up. That is started at once, and
//! then calls go to the latest version, without a wait for a boot; idle instances of the former one end, running calls
//! end as they would have, and calls that wait for it are sent on. The latest version serves at once, and calls wait for
//! it as for a new action, if that is of no use:
//!
//! - the former version has no instance, or loses its last one;
//! - no instance of the latest one can be started, so that whoever calls hears why;
//! - there is no memory for both.
//!
//! Only what serves here is different: clients are shown, and the disk has, the latest version alone.

use super::Action;
use crate::mutex::lock;
use squeezy_node::Node;
use squeezy_openwhisk::QualifiedName;
use squeezy_scaler::FunctionIndex;
use std::{
    collections::{BTreeMap, btree_map::Entry},
    mem,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::task::JoinHandle;

/// How long whoever changes an action waits until the latest version serves.
const PATIENCE: Duration = Duration::from_secs(30);

/// The versions of one action.
struct Versions {
    latest: Arc<Action>,
    /// The one that serves, until an instance of the latest one is up.
    former: Option<Arc<Action>>,
}

impl Versions {
    fn serving(&self) -> &Arc<Action> {
        self.former.as_ref().unwrap_or(&self.latest)
    }
}

/// All actions with their versions. No other place decides which of them serves.
pub(super) struct Actions {
    node: Node,
    actions: Mutex<BTreeMap<QualifiedName, Versions>>,
}

/// An action that is served by its former version for the time being.
pub(super) struct Roll(JoinHandle<()>);

impl Roll {
    /// Waits until the latest versions serve, or later ones, but not for long.
    pub(super) async fn wait(rolls: impl IntoIterator<Item = Self>) {
        let all = async {
            for Self(roll) in rolls {
                let _ = roll.await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, all).await;
    }
}

impl Actions {
    pub(super) fn new(node: Node) -> Arc<Self> {
        Arc::new(Self { node, actions: Mutex::default() })
    }

    /// The latest version of an action.
    pub(super) fn latest(&self, name: &QualifiedName) -> Option<Arc<Action>> {
        Some(lock(&self.actions).get(name)?.latest.clone())
    }

    /// The version of an action that serves.
    pub(super) fn serving(&self, name: &QualifiedName) -> Option<Arc<Action>> {
        Some(lock(&self.actions).get(name)?.serving().clone())
    }

    /// The version of an action that serves callers whom the latest one admits: that one, unless a former one serves that
    /// would admit them too. So no former version is called by those whom the owner has shut out.
    pub(super) fn to_serve(
        &self,
        name: &QualifiedName,
        admits: impl Fn(&Action) -> bool,
    ) -> Option<Arc<Action>> {
        let actions = lock(&self.actions);
        let versions = actions.get(name).filter(|versions| admits(&versions.latest))?;
        let serving = Some(versions.serving()).filter(|serving| admits(serving));
        Some(serving.unwrap_or(&versions.latest).clone())
    }

    /// The latest version of each action, sorted by namespace and name.
    pub(super) fn all(&self) -> Vec<Arc<Action>> {
        lock(&self.actions).values().map(|versions| versions.latest.clone()).collect()
    }

    /// Adds an action, or its latest version. Only while actions are changed, and to the end: otherwise nobody would end the
    /// roll.
    pub(super) async fn put(self: &Arc<Self>, action: Arc<Action>) -> Option<Roll> {
        let (name, index) = (action.name.clone(), action.index);
        // The node is asked afterwards: an earlier roll may end while it answers.
        let former = self.insert(action)?;
        let Some(prewarmed) = self.node.prewarm(index, former.index).await else {
            self.retire(self.end_roll(name, index));
            return None;
        };
        let actions = self.clone();
        Some(Roll(tokio::spawn(async move {
            // Whatever has come of it, it is this version's turn. The node has said why if it failed.
            let _ = prewarmed.await;
            actions.retire(actions.end_roll(name, index));
        })))
    }

    /// Makes this the latest version of its action. Returns the one that goes on to serve, if there is one. As that is found
    /// and kept in one step, it is none that a roll has retired.
    fn insert(&self, action: Arc<Action>) -> Option<Arc<Action>> {
        let mut actions = lock(&self.actions);
        let Some(versions) = actions.get_mut(&action.name) else {
            actions.insert(action.name.clone(), Versions { latest: action, former: None });
            return None;
        };
        let earlier = mem::replace(&mut versions.latest, action);
        let serves = versions.former.get_or_insert_with(|| earlier.clone()).clone();
        drop(actions);
        // A version that has never served will not.
        self.retire(Some(earlier).filter(|earlier| earlier.index != serves.index));
        Some(serves)
    }

    /// Has the latest version serve, if it is this one. Returns the former one.
    fn end_roll(&self, name: QualifiedName, latest: FunctionIndex) -> Option<Arc<Action>> {
        match lock(&self.actions).entry(name) {
            Entry::Occupied(mut versions) if versions.get().latest.index == latest => {
                versions.get_mut().former.take()
            }
            _ => None,
        }
    }

    /// Removes actions with all their versions: waiting calls are refused, running ones completed.
    pub(super) fn remove_if(&self, goes: impl Fn(&Action) -> bool) {
        let mut going = Vec::new();
        lock(&self.actions).retain(|_, Versions { latest, former }| {
            let stays = !goes(latest);
            if !stays {
                going.extend(former.take());
                going.push(latest.clone());
            }
            stays
        });
        self.retire(going);
    }

    fn retire(&self, versions: impl IntoIterator<Item = Arc<Action>>) {
        for version in versions {
            self.node.remove_function(version.index);
        }
    }

    /// Forgets all actions, as if the daemon had been started again.
    #[cfg(test)]
    pub(super) fn forget_all(&self) {
        lock(&self.actions).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::service, *};

    #[tokio::test]
    async fn no_version_that_an_earlier_roll_has_retired_serves_again() {
        let (service, _hold, _directory) = service().await;
        let name = QualifiedName::guest("f");
        let first = service.action(&name).unwrap();
        let version =
            |number| Arc::new(Action { index: FunctionIndex(number), ..(*first).clone() });
        let actions = &service.actions;
        let serving = || actions.serving(&name).unwrap().index;
        let end_roll = |of: &Action| actions.end_roll(name.clone(), of.index).map(|one| one.index);

        // The roll before ends while the node is asked about the next one.
        let (second, third) = (version(101), version(102));
        assert_eq!(actions.insert(second.clone()).unwrap().index, first.index);
        assert_eq!(actions.insert(third.clone()).unwrap().index, first.index);
        assert_eq!((end_roll(&second), serving()), (None, first.index));
        assert_eq!((end_roll(&third), serving()), (Some(first.index), third.index));

        // Or right before that.
        let (fourth, fifth) = (version(103), version(104));
        assert_eq!(actions.insert(fourth.clone()).unwrap().index, third.index);
        assert_eq!((end_roll(&fourth), serving()), (Some(third.index), fourth.index));
        assert_eq!(actions.insert(fifth.clone()).unwrap().index, fourth.index);
        assert_eq!((end_roll(&fifth), serving()), (Some(fourth.index), fifth.index));
    }

    #[tokio::test]
    async fn a_former_version_without_an_instance_does_not_serve() {
        let (service, _hold, _directory) = service().await;
        let name = QualifiedName::guest("f");
        let first = service.action(&name).unwrap();
        let next = Arc::new(Action { index: FunctionIndex(101), ..(*first).clone() });
        assert!(service.actions.put(next.clone()).await.is_none());
        assert_eq!(service.actions.serving(&name).unwrap().index, next.index);
        assert!(service.node.status().await.unwrap().functions.is_empty(), "it is retired");
    }
}
