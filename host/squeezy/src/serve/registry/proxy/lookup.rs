//! Looks names up. The resolver's thread goes on until the name servers have answered, whether anybody waits for it or not.

use super::target::Target;
use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::{Arc, LazyLock},
};
use tokio::{sync::Semaphore, task::spawn_blocking};

/// How many threads of the daemon may look names up at a time: for the operator's pulls, and for all others.
const MOST_THREADS: usize = 16;

static PLACES: LazyLock<[Arc<Semaphore>; 2]> =
    LazyLock::new(|| [(); 2].map(|()| Arc::new(Semaphore::new(MOST_THREADS))));

/// The addresses of a host.
///
/// # Errors
/// There is no such host, or its name servers do not say.
pub async fn addresses(target: &Target, is_guest: bool) -> io::Result<Vec<SocketAddr>> {
    if let Some(address) = target.address() {
        return Ok(vec![SocketAddr::new(address, target.port)]);
    }
    let place = PLACES[usize::from(is_guest)].clone().acquire_owned().await;
    let host = (target.host.clone(), target.port);
    let looking_up = spawn_blocking(move || {
        let _place = place;
        host.to_socket_addrs().map(Iterator::collect)
    });
    looking_up.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_needs_no_thread_and_a_name_has_its_addresses() {
        let _all = PLACES[0].clone().acquire_many_owned(MOST_THREADS as u32).await.unwrap();
        let of = async |host: &str, is_guest| {
            let target = Target::parse(host, Some(443)).unwrap();
            addresses(&target, is_guest).await.unwrap()
        };
        assert_eq!(of("192.0.2.1", false).await, ["192.0.2.1:443".parse().unwrap()]);
        assert_eq!(of("[2001:db8::1]:1", false).await, ["[2001:db8::1]:1".parse().unwrap()]);
        // The operator does not wait for others.
        assert!(of("localhost", true).await.contains(&"127.0.0.1:443".parse().unwrap()));
    }
}
