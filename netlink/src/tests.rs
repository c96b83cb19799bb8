use super::*;
use crate::skip::skip;
use std::{fs, net::UdpSocket};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 3);

/// Runs `work` in a new network namespace, if one can be made here: that takes privileges.
fn in_new_namespace(work: impl FnOnce(&Netlink, InterfaceIndex) -> io::Result<()> + Send) {
    let done = apart(|| {
        match Namespace::unshare() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                skip("no network namespace can be made here");
                return Ok(());
            }
            made => made?,
        }
        let netlink = Netlink::open()?;
        let loopback = InterfaceIndex::of("lo")?;
        netlink.turn_on(loopback)?;
        work(&netlink, loopback)
    });
    done.unwrap();
}

#[test]
fn addresses_are_listed_with_their_interfaces() {
    in_new_namespace(|netlink, loopback| {
        // That of the loopback interface is known to nobody else.
        assert_eq!(netlink.addresses()?, []);
        for last in 0..200 {
            netlink.add_address(loopback, Ipv4Addr::new(10, 1, 2, last))?;
        }
        let found = netlink.addresses()?;
        assert_eq!(found.len(), 200);
        assert!(found.contains(&(loopback, ADDRESS)));
        assert_eq!((loopback.name()?.as_str(), netlink.mtu(loopback)?), ("lo", 65536));
        netlink.set_mtu(loopback, 1400)?;
        assert_eq!(netlink.mtu(loopback)?, 1400);
        Ok(())
    });
}

#[test]
fn an_address_is_local_until_it_is_not_and_again() {
    in_new_namespace(|netlink, loopback| {
        netlink.add_address(loopback, ADDRESS)?;
        let bound = || UdpSocket::bind((ADDRESS, 0)).map(drop).map_err(|error| error.kind());
        assert_eq!(bound(), Ok(()));
        netlink.remove_local(loopback, ADDRESS)?;
        assert_eq!(bound(), Err(io::ErrorKind::AddrNotAvailable));
        netlink.remove_local(loopback, ADDRESS)?;
        assert_eq!(netlink.addresses()?.len(), 1);
        netlink.add_local(loopback, ADDRESS)?;
        assert_eq!(bound(), Ok(()));
        Ok(())
    });
}

#[test]
fn rules_and_neighbours_are_the_kernels() {
    in_new_namespace(|netlink, loopback| {
        let networks = [None, Some((ADDRESS, 32)), Some((Ipv4Addr::new(10, 0, 0, 0), 8))];
        for senders in networks {
            netlink.add_drop("lo", senders)?;
            netlink.add_drop("lo", senders)?;
        }
        for senders in networks.into_iter().rev() {
            netlink.remove_drop("lo", senders)?;
            assert!(netlink.remove_drop("lo", senders).is_err(), "{senders:?}");
        }
        netlink.add_first_route(loopback, ADDRESS)?;
        assert!(fs::read_to_string("/proc/thread-self/net/fib_trie")?.contains("10.1.2.3"));
        Ok(())
    });
}
