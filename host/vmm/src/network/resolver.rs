//! The host's name servers, which guests may ask.

use std::{
    fs::File,
    io::Read,
    net::{Ipv4Addr, SocketAddrV4},
};

/// Where the host's name servers are listed, for QEMU too.
const FILE: &str = "/etc/resolv.conf";
/// The port of a name server.
const PORT: u16 = 53;
/// Bytes of the file that are read.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Whether this is the address of one of the host's name servers. QEMU passes what a guest asks its own resolver on to
/// the first of them, wherever that is: often on the loopback interface.
pub(super) fn is_resolver(address: SocketAddrV4) -> bool {
    let mut text = String::new();
    address.port() == PORT
        && File::open(FILE)
            .and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text))
            .is_ok_and(|_| servers(&text).any(|server| server == *address.ip()))
}

fn servers(text: &str) -> impl Iterator<Item = Ipv4Addr> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_those_of_the_file() {
        let text = "# nameserver 1.1.1.1\nsearch x\nnameserver 127.0.0.53 # local\nnameserver ::1\n\
                    nameserver\nnameserver  10.0.0.2\n";
        let servers: Vec<_> = servers(text).collect();
        assert_eq!(servers, [Ipv4Addr::new(127, 0, 0, 53), Ipv4Addr::new(10, 0, 0, 2)]);
    }

    #[test]
    fn only_the_port_of_a_name_server_counts() {
        assert!(!is_resolver("127.0.0.1:80".parse().unwrap()));
    }
}
