//! Clients that call continuously, and clients that disappear.

use crate::{calls::What, world::World};
use serde_json::json;
use squeezy_load::Random;
use std::{io::Write, net::TcpStream, time::Duration};

/// Mean time between the calls of a client; now and then it makes several in a row.
const GAP: Duration = Duration::from_millis(1500);
const MOST_IN_A_ROW: f64 = 6.0;

/// Makes every kind of call, and waits for each result.
pub fn call_all_the_time(world: &World, mut random: Random) {
    const MIX: [(f64, What); 6] = [
        (0.30, What::Page),
        (0.40, What::Chains),
        (0.55, What::Result),
        (0.75, What::Later),
        (0.85, What::Raises),
        (1.00, What::Look),
    ];
    while world.pause(random.gap(GAP)) {
        let in_a_row = if random.unit() < 0.2 { random.unit() * MOST_IN_A_ROW } else { 0.0 };
        for _ in 0..=in_a_row as usize {
            let drawn = random.unit();
            let what = MIX.into_iter().find(|&(until, _)| drawn < until);
            let Some(_calling) = world.calling() else { return };
            world.make(what.map_or(What::Page, |(_, what)| what), &mut random);
        }
    }
}

/// Makes a call whose response is not read.
pub fn send(world: &World, how: &str) -> TcpStream {
    begin(world, &request(world, how))
}

/// Opens connections that end at every point of a request, some after the response has not been
/// read for a while.
pub fn vanish(world: &World) {
    let whole = request(world, "works");
    let body = whole.find("\r\n\r\n").expect("a request has a head") + 4;
    for _ in 0..40 {
        for length in [0, 20, body, body + 10] {
            drop(begin(world, &whole[..length]));
        }
    }
    let unheard: Vec<_> = (0..4).map(|_| send(world, "works")).collect();
    let unread: Vec<_> = (0..4).map(|_| send(world, "fills")).collect();
    // Long enough for instances to have taken some.
    std::thread::sleep(Duration::from_secs(1));
    drop(unheard);
    std::thread::sleep(Duration::from_secs(4));
    drop(unread);
}

fn request(world: &World, how: &str) -> String {
    let arguments = json!({ "username": "nobody", "items": 1, "how": how });
    let path = format!("{}?blocking=true", world.action());
    world.endpoint().request("POST", &path, Some(&arguments))
}

fn begin(world: &World, text: &str) -> TcpStream {
    let mut stream = world.endpoint().connect().expect("the daemon listens");
    stream.write_all(text.as_bytes()).expect("the daemon reads");
    stream
}
