//! What owners of functions may open for these of what is private: a list that may change while VMs run.

use super::{Destination, Rules};
use std::sync::{Arc, PoisonError, RwLock};

/// Private networks that functions of one owner may open, each for itself ([`Network::own`](super::Network::own)). The
/// judges of their VMs go by the list as it is now: a new one counts from the next connection on, and those that it
/// closes end within a second or two.
#[derive(Debug, Default)]
pub struct Openable(RwLock<Arc<[Destination]>>);

impl Openable {
    /// These, for now.
    pub fn new(networks: &[Destination]) -> Self {
        Self(RwLock::new(networks.into()))
    }

    /// These from now on.
    pub fn set(&self, networks: &[Destination]) {
        let mut now = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if **now != *networks {
            *now = networks.into();
        }
    }

    /// The list, which is the same one as long as nobody has changed it.
    pub fn now(&self) -> Arc<[Destination]> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Rules {
    /// Whether the owner of a function with these rules may allow this to it. What is private has to be in one of their
    /// private networks, or in one of these, as a whole; the rest opens nothing.
    pub fn may_allow(&self, destination: &Destination, openable: &[Destination]) -> bool {
        let own = self.allow.iter().filter(|allowed| allowed.is_private());
        !destination.is_private()
            || own.chain(openable).any(|allowed| destination.is_within(allowed))
    }

    /// The rules of an owner without what he may not allow.
    pub(super) fn permitted(&self, own: &Self, openable: &[Destination]) -> Self {
        let mut own = own.clone();
        own.allow.retain(|destination| self.may_allow(destination, openable));
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(texts: &[&str]) -> Vec<Destination> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn what_is_private_is_opened_only_where_all_of_it_is_allowed() {
        let image = Rules { allow: list(&["10.1.0.0/16", "0.0.0.0/0"]), deny: Vec::new() };
        let openable = list(&["192.168.0.0/24"]);
        let own = Rules {
            allow: list(&["1.1.1.1", "10.1.2.3", "10.0.0.0/8", "192.168.0.7", "172.16.0.1"]),
            deny: list(&["0.0.0.0/0"]),
        };
        let permitted = image.permitted(&own, &openable);
        let right = Rules { allow: list(&["1.1.1.1", "10.1.2.3", "192.168.0.7"]), ..own.clone() };
        assert_eq!(permitted, right);
        let without = image.permitted(&own, &[]);
        assert_eq!(without, Rules { allow: list(&["1.1.1.1", "10.1.2.3"]), ..own });
    }

    #[test]
    fn a_list_that_is_set_again_is_still_the_same() {
        let openable = Openable::new(&list(&["10.1.0.0/16"]));
        let before = openable.now();
        openable.set(&list(&["10.1.0.0/16"]));
        assert!(Arc::ptr_eq(&before, &openable.now()));
        openable.set(&[]);
        assert!(openable.now().is_empty() && before.len() == 1);
    }
}
