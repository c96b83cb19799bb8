//! Which addresses outside a guest may reach.

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    net::{Ipv4Addr, SocketAddrV4},
    str::FromStr,
};

/// Networks that no guest may reach, whatever its rules say: this network, loopback, link-local, those for tests of
/// devices, of which one is the guest's own, multicast, and what is reserved (RFC 6890), broadcast included. And where
/// three clouds have what they tell their machines, at addresses that look public or like an operator's own: Alibaba,
/// Azure and Oracle.
const NEVER: [Ipv4Net; 9] = [
    network([0, 0, 0, 0], 8),
    network([100, 100, 100, 200], 32),
    network([127, 0, 0, 0], 8),
    network([169, 254, 0, 0], 16),
    network([168, 63, 129, 16], 32),
    network([192, 0, 0, 0], 24),
    network([198, 18, 0, 0], 15),
    network([224, 0, 0, 0], 4),
    network([240, 0, 0, 0], 4),
];

/// Networks that a guest may reach only if its rules say so: those of RFC 1918, and the one that providers share
/// (RFC 6598).
const PRIVATE: [Ipv4Net; 4] = [
    network([10, 0, 0, 0], 8),
    network([172, 16, 0, 0], 12),
    network([192, 168, 0, 0], 16),
    network([100, 64, 0, 0], 10),
];

/// The length of the longest text of a [`Destination`], `255.255.255.255/32:65535`.
const LONGEST: usize = 24;

const fn network([a, b, c, d]: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

/// Addresses that a rule is about, such as `10.0.0.0/8`, `10.1.2.3` or `10.1.2.3:5432`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Destination {
    network: Ipv4Net,
    /// The only port, if there is one.
    port: Option<u16>,
}

/// Why a text is no [`Destination`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a network such as 10.0.0.0/8, 10.1.2.3 or 10.1.2.3:5432")]
pub struct InvalidDestination(String);

impl FromStr for Destination {
    type Err = InvalidDestination;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidDestination(text.chars().take(64).collect());
        if text.len() > LONGEST {
            return Err(invalid());
        }
        let (network, port) = match text.split_once(':') {
            Some((network, port)) => (network, Some(port.parse().map_err(|_| invalid())?)),
            None => (text, None),
        };
        let network: Ipv4Net = match network.contains('/') {
            true => network.parse().map_err(|_| invalid())?,
            false => network.parse::<Ipv4Addr>().map_err(|_| invalid())?.into(),
        };
        // Whoever writes 10.1.2.3/8 has made a mistake somewhere.
        let is_network = network.addr() == network.network();
        if is_network && port != Some(0) { Ok(Self { network, port }) } else { Err(invalid()) }
    }
}

impl TryFrom<String> for Destination {
    type Error = InvalidDestination;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Destination> for String {
    fn from(destination: Destination) -> Self {
        destination.to_string()
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.network.prefix_len() {
            32 => write!(f, "{}", self.network.addr())?,
            _ => write!(f, "{}", self.network)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl Destination {
    /// Whether all that it covers is in a private network, which only a rule opens.
    pub fn is_private(&self) -> bool {
        PRIVATE.iter().any(|private| private.contains(&self.network))
    }

    /// Whether the other one covers all that it covers.
    pub fn is_within(&self, other: &Self) -> bool {
        other.network.contains(&self.network) && (other.port.is_none() || other.port == self.port)
    }

    /// How specific it is, if it covers this address.
    fn covers(&self, to: SocketAddrV4) -> Option<Specificity> {
        let covers = self.network.contains(to.ip()) && self.port.is_none_or(|p| p == to.port());
        let source = if self.port.is_some() { Source::RuleForPort } else { Source::Rule };
        covers.then_some((self.network.prefix_len(), source))
    }
}

/// The length of a prefix, and between equal ones, where it is from.
type Specificity = (u8, Source);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Default,
    Rule,
    RuleForPort,
}

/// What a guest may reach beyond the defaults. The most specific rule decides; between equal ones, `deny`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// What it may reach, of private networks or of those that it is denied.
    pub allow: Vec<Destination>,
    /// What it may not reach.
    pub deny: Vec<Destination>,
}

/// Why a guest may not reach an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody may: it is a loopback, link-local, multicast or reserved address, or not an IPv4 address.
    Reserved,
    /// It is the host's own.
    Host,
    /// It is private, and no rule allows it.
    Private,
    /// A rule denies it.
    Denied,
    /// The guest has opened too many connections in the last second.
    TooMany,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Reserved, Self::Host, Self::Private, Self::Denied, Self::TooMany];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Host => "host",
            Self::Private => "private",
            Self::Denied => "denied",
            Self::TooMany => "too_many",
        }
    }
}

impl Rules {
    /// Whether a guest with these rules may reach this address, which is not the host's.
    pub fn judge(&self, to: SocketAddrV4) -> Result<(), Refusal> {
        if NEVER.iter().any(|network| network.contains(to.ip())) {
            return Err(Refusal::Reserved);
        }
        let private = PRIVATE.iter().find(|network| network.contains(to.ip()));
        let private = private.map(|network| (network.prefix_len(), Source::Default));
        let (allowed, denied) = self.most_specific(to);
        match (allowed, denied.max(private)) {
            (allowed, Some(denied)) if allowed.is_none_or(|allowed| allowed <= denied) => {
                Err(if Some(denied) == private { Refusal::Private } else { Refusal::Denied })
            }
            _ => Ok(()),
        }
    }

    /// As [`Self::judge`], with the rules of a function's owner within these. What he denies is denied, whatever these
    /// allow. What he allows opens what is private, unless these deny it, and nothing else.
    pub fn judge_within(&self, to: SocketAddrV4, own: &Self) -> Result<(), Refusal> {
        match self.judge(to) {
            Err(Refusal::Private) if !self.denies(to) => own.judge(to),
            Ok(()) if own.denies(to) => Err(Refusal::Denied),
            verdict => verdict,
        }
    }

    /// Whether a rule denies this address and none allows it. What is private is not denied by a rule.
    fn denies(&self, to: SocketAddrV4) -> bool {
        let (allowed, denied) = self.most_specific(to);
        denied.is_some() && allowed <= denied
    }

    /// The most specific of the rules that allow an address, and of those that deny it.
    fn most_specific(&self, to: SocketAddrV4) -> (Option<Specificity>, Option<Specificity>) {
        let of = |rules: &[Destination]| rules.iter().filter_map(|rule| rule.covers(to)).max();
        (of(&self.allow), of(&self.deny))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rules(allow: &[&str], deny: &[&str]) -> Rules {
        let all = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Rules { allow: all(allow), deny: all(deny) }
    }

    fn judge(rules: &Rules, to: &str) -> Result<(), Refusal> {
        rules.judge(to.parse().unwrap())
    }

    #[test]
    fn what_is_public_may_be_reached_and_what_is_private_may_not() {
        let rules = Rules::default();
        assert_eq!(judge(&rules, "93.184.216.34:443"), Ok(()));
        assert_eq!(judge(&rules, "172.32.0.1:80"), Ok(()));
        for private in ["10.0.0.1:22", "172.31.255.255:80", "192.168.1.1:80", "100.127.0.1:53"] {
            assert_eq!(judge(&rules, private), Err(Refusal::Private), "{private}");
        }
    }

    #[test]
    fn the_most_specific_rule_decides() {
        let some = rules(&["10.1.0.0/16", "10.2.3.4:5432"], &["10.1.9.0/24", "8.8.8.8:53"]);
        assert_eq!(judge(&some, "10.1.2.3:80"), Ok(()));
        assert_eq!(judge(&some, "10.1.9.3:80"), Err(Refusal::Denied));
        assert_eq!(judge(&some, "10.2.3.4:5432"), Ok(()));
        assert_eq!(judge(&some, "10.2.3.4:22"), Err(Refusal::Private));
        assert_eq!(judge(&some, "8.8.8.8:53"), Err(Refusal::Denied));
        assert_eq!(judge(&some, "8.8.8.8:443"), Ok(()));
    }

    #[test]
    fn a_list_of_all_that_is_allowed_is_possible() {
        let only = rules(&["192.168.7.0/24", "1.1.1.1"], &["0.0.0.0/0"]);
        assert_eq!(judge(&only, "1.1.1.1:443"), Ok(()));
        assert_eq!(judge(&only, "192.168.7.9:443"), Ok(()));
        assert_eq!(judge(&only, "1.1.1.2:443"), Err(Refusal::Denied));
        // Everything is less specific than what is private.
        assert_eq!(judge(&rules(&["0.0.0.0/0"], &[]), "10.0.0.1:1"), Err(Refusal::Private));
        assert_eq!(judge(&rules(&["10.0.0.0/8"], &[]), "10.0.0.1:1"), Ok(()));
        assert_eq!(judge(&rules(&["1.2.3.4"], &["1.2.3.4"]), "1.2.3.4:1"), Err(Refusal::Denied));
    }

    #[test]
    fn what_is_no_network_is_refused_in_one_line() {
        for text in [
            "",
            "10.0.0.0/33",
            "10.1.2.3/8",
            "example.com",
            "::1",
            "10.0.0.1:",
            "1.2.3.4:0",
            "1.2.3.4:00000000000000443",
        ] {
            let error = text.parse::<Destination>().unwrap_err().to_string();
            assert!(error.contains("is not a network such as"), "{error}");
        }
        for text in ["10.0.0.0/8", "10.1.2.3", "10.1.2.3:5432", "0.0.0.0/0", "10.0.0.0/8:443"] {
            assert_eq!(text.parse::<Destination>().unwrap().to_string(), text);
        }
        assert!("255.255.255.255/32:65535".parse::<Destination>().is_ok());
    }

    #[test]
    fn an_owner_denies_what_he_likes_and_opens_what_is_private() {
        let judge =
            |rules: &Rules, own: &Rules, to: &str| rules.judge_within(to.parse().unwrap(), own);
        let image = rules(&["10.1.0.0/16"], &["10.2.0.0/16", "8.8.8.8"]);
        // More specific than what he denies, but not his to allow.
        let closed = rules(&[], &["0.0.0.0/0"]);
        assert_eq!(judge(&image, &closed, "10.1.0.1:80"), Err(Refusal::Denied));
        assert_eq!(judge(&image, &closed, "1.1.1.1:80"), Err(Refusal::Denied));
        let only = rules(&["1.1.1.1", "10.1.0.1", "10.3.0.1:80"], &["0.0.0.0/0"]);
        for to in ["1.1.1.1:80", "10.1.0.1:80", "10.3.0.1:80"] {
            assert_eq!(judge(&image, &only, to), Ok(()), "{to}");
        }
        for to in ["1.1.1.2:80", "10.1.0.2:80"] {
            assert_eq!(judge(&image, &only, to), Err(Refusal::Denied), "{to}");
        }
        assert_eq!(judge(&image, &only, "10.3.0.1:81"), Err(Refusal::Private));
        // What the image denies, nobody opens; nor what everybody is denied.
        let all = rules(&["0.0.0.0/0", "10.0.0.0/8", "10.2.0.1", "8.8.8.8:53", "127.0.0.1"], &[]);
        assert_eq!(judge(&image, &all, "10.2.0.1:80"), Err(Refusal::Denied));
        assert_eq!(judge(&image, &all, "8.8.8.8:53"), Err(Refusal::Denied));
        assert_eq!(judge(&image, &all, "127.0.0.1:80"), Err(Refusal::Reserved));
        assert_eq!(judge(&image, &all, "10.3.0.1:80"), Ok(()));
        assert_eq!(judge(&image, &all, "192.168.0.1:80"), Err(Refusal::Private));
        // A list of all that is allowed stays one.
        let listed = rules(&["192.168.7.0/24"], &["0.0.0.0/0"]);
        assert_eq!(judge(&listed, &all, "192.168.7.1:80"), Ok(()));
        assert!(judge(&listed, &all, "10.3.0.1:80").is_err());
    }

    #[test]
    fn a_destination_is_within_those_that_cover_all_of_it() {
        let within = |one: &str, other: &str| {
            one.parse::<Destination>().unwrap().is_within(&other.parse().unwrap())
        };
        for (one, other) in [
            ("10.1.2.3", "10.0.0.0/8"),
            ("10.1.2.3:80", "10.1.2.3"),
            ("10.1.0.0/16:80", "10.0.0.0/8:80"),
            ("10.0.0.0/8", "10.0.0.0/8"),
        ] {
            assert!(within(one, other), "{one} {other}");
        }
        for (one, other) in [
            ("10.0.0.0/8", "10.1.2.3"),
            ("10.1.2.3", "10.1.2.3:80"),
            ("10.1.2.3:81", "10.1.2.3:80"),
            ("11.1.2.3", "10.0.0.0/8"),
        ] {
            assert!(!within(one, other), "{one} {other}");
        }
        let is_private = |text: &str| text.parse::<Destination>().unwrap().is_private();
        assert!(["10.0.0.0/8", "172.20.1.0/24", "192.168.0.1:443"].into_iter().all(is_private));
        assert!(!["0.0.0.0/0", "172.0.0.0/8", "1.1.1.1", "127.0.0.1"].into_iter().any(is_private));
    }

    /// Rules about a few addresses, so that they meet.
    fn some_rules() -> impl Strategy<Value = Rules> {
        let networks = ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "8.0.0.0/8"];
        let network = prop::sample::select(networks.to_vec());
        let network = network.prop_map(|text| text.parse::<Ipv4Net>().unwrap());
        let port = prop::sample::select(vec![None, Some(1), Some(2)]);
        let rule = (network, port).prop_map(|(network, port)| Destination { network, port });
        let list = || prop::collection::vec(rule.clone(), 0..4);
        (list(), list()).prop_map(|(allow, deny)| Rules { allow, deny })
    }

    fn some_address() -> impl Strategy<Value = SocketAddrV4> {
        let all = ["10.1.0.1:1", "10.1.0.1:2", "10.2.0.1:1", "8.0.0.1:1", "8.0.0.1:3", "1.1.1.1:1"];
        prop::sample::select(all.to_vec()).prop_map(|text| text.parse::<SocketAddrV4>().unwrap())
    }

    proptest! {
        #[test]
        fn an_owner_never_opens_more_than_he_allows_of_what_is_private(
            rules in some_rules(),
            own in some_rules(),
            more in some_rules(),
            to in some_address(),
        ) {
            let verdict = rules.judge_within(to, &own);
            prop_assert_eq!(rules.judge_within(to, &Rules::default()), rules.judge(to));
            let narrow = Rules { allow: Vec::new(), deny: own.deny.clone() };
            prop_assert!(rules.judge_within(to, &narrow).is_err() || rules.judge(to).is_ok());
            if verdict.is_ok() && rules.judge(to).is_err() {
                let opens = |rule: &Destination| rule.is_private() && rule.covers(to).is_some();
                prop_assert!(own.allow.iter().any(opens));
                prop_assert!(!rules.denies(to));
            }
            let deny = own.deny.iter().chain(&more.deny).copied().collect();
            let narrower = Rules { allow: own.allow.clone(), deny };
            prop_assert!(rules.judge_within(to, &narrower).is_err() || verdict.is_ok());
        }

        #[test]
        fn no_rule_opens_what_nobody_may_reach(
            allow in prop::collection::vec((any::<u32>(), 0u8..=32), 0..8),
            first in prop::sample::select(vec![0u8, 127, 224, 239, 240, 255]),
            rest: [u8; 3],
            port: u16,
        ) {
            let allow = allow.into_iter().map(|(address, prefix)| {
                let network = Ipv4Net::new(address.into(), prefix).unwrap().trunc();
                Destination { network, port: None }
            });
            let to = Ipv4Addr::new(first, rest[0], rest[1], rest[2]);
            let exactly = Destination { network: to.into(), port: Some(port) };
            let rules = Rules { allow: allow.chain([exactly]).collect(), deny: Vec::new() };
            prop_assert_eq!(rules.judge(SocketAddrV4::new(to, port)), Err(Refusal::Reserved));
            let metadata = SocketAddrV4::new(Ipv4Addr::new(169, 254, rest[1], rest[2]), port);
            prop_assert_eq!(rules.judge(metadata), Err(Refusal::Reserved));
        }

        #[test]
        fn what_is_denied_alone_is_never_reached(address: u32, port: u16, prefix in 0u8..=32) {
            let network = Ipv4Net::new(address.into(), prefix).unwrap().trunc();
            let allow = vec![Destination { network, port: None }];
            let denied = Destination { network: Ipv4Addr::from(address).into(), port: None };
            let rules = Rules { allow, deny: vec![denied] };
            prop_assert!(rules.judge(SocketAddrV4::new(address.into(), port)).is_err());
        }
    }
}
