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

    /// Adds an action, or its latest version. Only while actions are changed.
    pub(super) async fn put(self: &Arc<Self>, action: Arc<Action>) -> Option<Roll> {
        let (name, index) = (action.name.clone(), action.index);
        let former = self.serving(&name);
        let prewarmed = match &former {
            Some(former) => self.node.prewarm(index, former.index).await,
            None => None,
        };
        let former = former.filter(|_| prewarmed.is_some());
        let earlier = lock(&self.actions)
            .insert(name.clone(), Versions { latest: action, former: former.clone() });
        if let Some(Versions { latest, former: earlier }) = earlier {
            self.retire([Some(latest), earlier].into_iter().flatten().filter(|version| {
                former.as_ref().is_none_or(|former| former.index != version.index)
            }));
        }
        let prewarmed = prewarmed?;
        let actions = self.clone();
        Some(Roll(tokio::spawn(async move {
            // Whatever has come of it, it is this version's turn. The node has said why if it failed.
            let _ = prewarmed.await;
            actions.retire(actions.end_roll(name, index));
        })))
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
