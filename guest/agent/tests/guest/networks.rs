//! Networks that instances are in together. Nobody is at the other end of their devices.

use super::company::beside;
use super::*;
use squeezy_protocol::network::{GATEWAY, Network};

fn in_network(id: &str, script: &str) -> Value {
    let mut spec = shell(id, script);
    spec["in_network"] = 1.into();
    spec
}

async fn asked(client: &Client, method: &str, number: u32, address: &str) -> Result<(), ErrorCode> {
    let body = json!({"address": address, "mtu": 1400}).to_string();
    let answer = client.call(method, &format!("/v1/networks/{number}"), body).await;
    if answer.status == StatusCode::NO_CONTENT { Ok(()) } else { Err(answer.error().code) }
}

/// What an instance sees of its network, with one space between words.
const LOOK: &str = "(busybox ip -o -4 address | busybox awk '{ print $2, $4 }'
    busybox ip link | grep -o 'mtu 1400'; busybox ip route
    busybox ip neigh | busybox awk '{ print $1, $5, $NF }'
    cat /proc/sys/net/ipv4/conf/net0/route_localnet 2>/dev/null) | busybox awk '{ $1 = $1; print }'";

pub(super) async fn a_network_is_shared_and_has_a_device_to_itself(client: &Client) {
    let address = "10.1.2.3";
    let absent = client.start(in_network("early", "true")).await.unwrap_err();
    assert_eq!(absent.code, ErrorCode::NotFound);
    assert_eq!(asked(client, "POST", 1, "127.0.0.1").await, Err(ErrorCode::Invalid));
    assert_eq!(asked(client, "POST", 7, address).await, Err(ErrorCode::Invalid));
    // Its device comes and goes with it.
    for round in 0..3 {
        asked(client, "POST", 1, address).await.unwrap();
        assert_eq!(asked(client, "POST", 1, address).await, Err(ErrorCode::Exists));
        let (_, seen) = run(client, in_network("looks", LOOK)).await;
        let gateway = Network::gateway_address(1);
        let expected = format!(
            "lo 127.0.0.1/8\nnet0 {address}/32\nmtu 1400\ndefault via {GATEWAY} dev net0\n\
             {GATEWAY} dev net0 scope link\n{GATEWAY} {gateway} PERMANENT\n1\n"
        );
        assert_eq!(seen, expected, "round {round}");
        assert_eq!(run(client, shell("alone", LOOK)).await.1, "lo 127.0.0.1/8\n");
        asked(client, "DELETE", 1, address).await.unwrap();
        assert_eq!(asked(client, "DELETE", 1, address).await, Err(ErrorCode::NotFound));
    }
}

pub(super) async fn a_network_stays_while_somebody_is_in_it(client: &Client) {
    let address = "10.1.2.4";
    asked(client, "POST", 1, address).await.unwrap();
    // Anybody has port 80.
    let mut spec = in_network("serves", "exec busybox httpd -f -p 80 -h /www");
    spec["user"] = json!({"user": 1000, "group": 1000});
    client.start(spec).await.unwrap();
    client.start(beside("stays", "serves", "sleep 1000")).await.unwrap();
    assert_eq!(asked(client, "DELETE", 1, address).await, Err(ErrorCode::Unavailable));
    for address in [address, "127.0.0.1"] {
        let script = format!(
            "until busybox wget -q -O - http://{address}/hello 2>/dev/null; do sleep 0.1; done"
        );
        assert_eq!(run(client, beside("asks", "serves", &script)).await.1, "hello");
    }
    client.delete("serves", 0).await;
    assert_eq!(asked(client, "DELETE", 1, address).await, Err(ErrorCode::Unavailable));
    let (_, seen) = run(client, in_network("joins", "busybox ip -o -4 address")).await;
    assert!(seen.contains(address), "{seen}");
    client.delete("stays", 0).await;
    asked(client, "DELETE", 1, address).await.unwrap();
}
