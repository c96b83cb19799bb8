//! Which addresses the daemon connects to for a pull.

use super::{Failure, target::Target};
use crate::serve::config::RegistryEntry;
use squeezy_vmm::network::{Refusal, Rules};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV4};

/// How many addresses of a name are looked at.
const MOST_ADDRESSES: usize = 16;

/// What whoever asked for the image hears of it. Where it leads is only in the log: it says what there is inside.
const PRIVATE: &str = "its registry leads to an address to which the daemon does not connect for an image, a private \
                       one or the machine's own; the daemon's log says more";
const PLAIN: &str = "its registry leads to plain HTTP, which its entry in the daemon's configuration does not allow; \
                     the daemon's log says more";

/// What pulls from a registry may reach.
pub struct Judge {
    /// Where the operator sends them, whatever addresses that has.
    listed: Vec<Target>,
    plain_http: bool,
}

impl Judge {
    /// For pulls from this registry.
    pub fn new(entry: &RegistryEntry) -> Self {
        let https = Some(443);
        let ports = if entry.plain_http { vec![https, Some(80)] } else { vec![https] };
        let mut listed = Vec::new();
        for host in [&entry.host].into_iter().chain(&entry.private_hosts) {
            for target in ports.iter().filter_map(|port| Target::parse(host, *port)) {
                // One with a port of its own is the same with either.
                if !listed.contains(&target) {
                    listed.push(target);
                }
            }
        }
        Self { listed, plain_http: entry.plain_http }
    }

    /// Those that skopeo will not ask a proxy for.
    pub fn on_loopback(&self) -> impl Iterator<Item = &Target> {
        self.listed.iter().filter(|target| target.is_loopback())
    }

    /// Whether anything may be sent in clear.
    pub fn plain(&self, target: &Target) -> Result<(), Failure> {
        if self.plain_http {
            return Ok(());
        }
        Err(Failure::refused(PLAIN, format!("it leads to http://{target}, without `plain_http`")))
    }

    /// Those of a host's addresses that may be connected to. Each is the address that is judged, in its only form.
    pub fn permitted(
        &self,
        target: &Target,
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<Vec<SocketAddr>, Failure> {
        let (mut permitted, mut refused) = (Vec::new(), None);
        let canonical =
            |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        let mut addresses: Vec<_> = addresses.into_iter().map(canonical).collect();
        // Those of IPv4 first, which more networks lead to.
        addresses.sort_by_key(|address| !address.is_ipv4());
        for address in addresses.into_iter().take(MOST_ADDRESSES) {
            let is_listed = self.listed.contains(target)
                && (target.address().is_some() || !is_of_the_link(address.ip()));
            match judge(address) {
                Err(what) if !is_listed => {
                    refused = refused.or(Some((address.ip(), what)));
                }
                _ => permitted.push(address),
            }
        }
        if !permitted.is_empty() {
            return Ok(permitted);
        }
        Err(match refused {
            Some((address, what)) => Failure::refused(
                PRIVATE,
                format!(
                    "it leads to {target} ({address}), {what}: \
                     `private_hosts = [\"{target}\"]` of the registry allows that"
                ),
            ),
            None => Failure::unreachable(format!("{target} has no address")),
        })
    }

    /// Whether the operator's proxy may be asked for it. What a name means is up to that.
    pub fn through_proxy(&self, target: &Target) -> Result<(), Failure> {
        match target.address() {
            Some(address) => {
                self.permitted(target, [SocketAddr::new(address, target.port)]).map(drop)
            }
            None if self.listed.contains(target) => Ok(()),
            None if target.is_disguised() => Err(Failure::refused(
                PRIVATE,
                format!("it leads to {target}, an address in disguise"),
            )),
            None if target.is_localhost() => {
                Err(Failure::refused(PRIVATE, format!("it leads to {target}, the proxy's machine")))
            }
            None => Ok(()),
        }
    }
}

/// Whether it is where clouds tell machines their secrets, among others: no registry's name leads there, whoever may change
/// what it means. The operator can list such an address itself.
fn is_of_the_link(ip: IpAddr) -> bool {
    /// Of Amazon's service for IPv6.
    const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    // Not all that `Rules` reserve but loopback: a listed name may be in 198.18.0.0/15 or 240.0.0.0/4.
    match ip {
        IpAddr::V4(ip) => {
            ip.is_link_local() || ip.is_multicast() || ip.is_broadcast() || ip.octets()[0] == 0
        }
        IpAddr::V6(ip) => {
            ip.is_unicast_link_local() || ip.is_multicast() || ip.is_unspecified() || ip == METADATA
        }
    }
}

/// Decides by the rules that functions have if nothing is said; fails with what an address is.
fn judge(address: SocketAddr) -> Result<(), &'static str> {
    let IpAddr::V4(ip) = address.ip() else {
        // What leads where in IPv6 is not known: ADR 0050.
        return Err("an address of IPv6");
    };
    let rules = Rules::default();
    rules.judge_all(SocketAddrV4::new(ip, address.port()), &rules).map_err(|refusal| match refusal {
        Refusal::Host => {
            "an address of this machine, which all seem to be while net.ipv4.ip_nonlocal_bind is 1"
        }
        Refusal::Private => "a private address",
        _ => "an address that is not public",
    })
}

#[cfg(test)]
mod tests {
    use super::{super::tests::entry, *};

    fn judge(text: &str) -> Judge {
        Judge::new(&entry(text))
    }

    fn target(text: &str) -> Target {
        Target::parse(text, Some(443)).unwrap()
    }

    /// The addresses that remain.
    fn permitted(judge: &Judge, host: &str, addresses: &[&str]) -> Vec<String> {
        let addresses = addresses.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 443));
        let permitted = judge.permitted(&target(host), addresses).unwrap_or_default();
        permitted.iter().map(|address| address.ip().to_string()).collect()
    }

    #[test]
    fn each_address_of_a_name_is_judged() {
        let judge = judge("'r.example'");
        let of = |addresses: &[&str]| permitted(&judge, "cdn.example", addresses);
        let public = ["93.184.216.34", "1.1.1.1"];
        assert_eq!(of(&public), public);
        let private = [
            "10.0.0.1",
            "172.16.9.9",
            "192.168.1.1",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a00:1",
            "fe80::1",
            "fd00:ec2::254",
            "2606:4700::1",
        ];
        for one in private {
            assert!(of(&[one]).is_empty(), "{one}");
        }
        assert!(of(&private).is_empty());
        let between: Vec<_> = private[..3].iter().copied().chain(public).chain(["::1"]).collect();
        assert_eq!(of(&between), public);
        assert_eq!(of(&["::ffff:1.1.1.1"]), ["1.1.1.1"]);
        let many = vec!["10.0.0.1"; MOST_ADDRESSES];
        assert!(of(&[&many[..], &public].concat()).is_empty());
        // Those of IPv6 are in nobody's way.
        assert_eq!(of(&[&["2606:4700::1"; 20][..], &public].concat()), public);
        assert!(of(&[]).is_empty());
    }

    #[test]
    fn what_is_listed_may_be_anywhere() {
        let judge =
            judge("{ host = 'R.example', private_hosts = ['tokens.example:8443', '[fd00::1]'] }");
        let private = ["10.0.0.1", "::1"];
        let secret = ["169.254.169.254", "fd00:ec2::254", "fe80::1", "0.0.0.0"];
        assert!(permitted(&judge, "r.example", &secret).is_empty());
        for listed in ["r.example", "r.example:443", "tokens.example:8443", "[fd00::1]:443"] {
            assert_eq!(permitted(&judge, listed, &private), private, "{listed}");
        }
        for other in ["r.example:80", "tokens.example", "x.r.example", "r.example.x", "10.0.0.1"] {
            assert!(permitted(&judge, other, &private).is_empty(), "{other}");
        }
        assert!(judge.plain(&target("r.example")).is_err());
        assert_eq!(judge.on_loopback().count(), 0);
    }

    #[test]
    fn a_registry_of_the_machine_itself_has_a_port_for_each_way_to_ask_it() {
        let on_loopback =
            |entry: &str| judge(entry).on_loopback().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(on_loopback("'localhost'"), ["localhost:443"]);
        let both = "{ host = 'localhost', plain_http = true }";
        assert_eq!(on_loopback(both), ["localhost:443", "localhost:80"]);
        let port =
            "{ host = '127.0.0.1:5000', plain_http = true, private_hosts = ['[::1]:1', 'a'] }";
        assert_eq!(on_loopback(port), ["127.0.0.1:5000", "[::1]:1"]);
    }

    #[test]
    fn what_the_operators_proxy_is_asked_for_is_judged_as_far_as_it_is_known() {
        let judge = judge("{ host = '10.0.0.1:5000', private_hosts = ['r.localhost'] }");
        for allowed in ["cdn.example", "1.1.1.1", "10.0.0.1:5000", "r.localhost"] {
            assert!(judge.through_proxy(&target(allowed)).is_ok(), "{allowed}");
        }
        let addresses = ["10.0.0.1", "169.254.169.254", "127.1", "2130706433", "[::1]", "0x7f.1"];
        for refused in addresses.into_iter().chain(["localhost", "x.localhost", "r.localhost:80"]) {
            assert!(judge.through_proxy(&target(refused)).is_err(), "{refused}");
        }
    }

    #[test]
    fn the_log_says_how_it_is_allowed_and_nobody_else_hears_where_it_leads() {
        let failure = judge("'r.example'")
            .permitted(&target("git.example:5050"), ["10.1.2.3:5050".parse().unwrap()])
            .unwrap_err();
        let way_out = "`private_hosts = [\"git.example:5050\"]`";
        let (log, reason) = (failure.noted.log, failure.noted.reason.unwrap());
        assert!(log.contains(way_out) && log.contains("10.1.2.3"), "{log}");
        assert!(!reason.contains("git") && !reason.contains("10.1"), "{reason}");
    }
}
