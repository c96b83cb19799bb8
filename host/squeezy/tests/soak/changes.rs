//! Changes an action continuously, and checks that no change is lost.

use crate::{
    calls::What,
    ledger::{Kind, Outcome},
    world::World,
};
use serde_json::{Value, json};
use squeezy_load::Random;
use std::time::{Duration, Instant};

const PATH: &str = "/api/v1/namespaces/_/actions/changing";

/// Mean time between changes.
const GAP: Duration = Duration::from_secs(1);

/// Creates, changes and deletes the action, and checks that it then is as expected, including after
/// a restart of the daemon.
pub fn change_all_the_time(world: &World, mut random: Random) {
    let mut action = Action { world, possible: vec![None], number: 0 };
    while world.pause(random.gap(GAP)) {
        let Some(_calling) = world.calling() else { return };
        action.number += 1;
        let next = (random.unit() < 0.8).then_some(action.number);
        let sent = Instant::now();
        let outcome = action.change(next);
        world.ledger.enter(What::Write, sent, outcome);
        let sent = Instant::now();
        let outcome = action.read();
        world.ledger.enter(What::Read, sent, outcome);
    }
}

/// Makes the sequence.
pub fn make_sequence(world: &World) {
    let components = [format!("/_/{}", world.function)];
    let body = json!({ "exec": { "kind": "sequence", "components": components } });
    let made = world.endpoint().exchange("PUT", world.sequence(), Some(&body));
    assert!(matches!(made, Ok((200, _))), "{}", made.map_or_else(|_| Value::Null, |made| made.1));
}

struct Action<'a> {
    world: &'a World,
    /// The values its number may have; `None` if it was deleted. There are several after changes
    /// that got no response.
    possible: Vec<Option<u64>>,
    /// The last number used.
    number: u64,
}

impl Action<'_> {
    fn change(&mut self, next: Option<u64>) -> Outcome {
        let endpoint = self.world.endpoint();
        let answer = match next {
            Some(number) => {
                let body = json!({
                    "exec": { "kind": "blackbox", "image": self.world.function },
                    "annotations": [{ "key": "number", "value": number }],
                });
                endpoint.exchange("PUT", &format!("{PATH}?overwrite=true"), Some(&body))
            }
            None => endpoint.exchange("DELETE", PATH, None),
        };
        match answer {
            Ok((200, _)) => {
                self.possible = vec![next];
                Outcome::right()
            }
            Ok((404, _)) if next.is_none() && self.possible.contains(&None) => {
                self.possible = vec![None];
                Outcome::right()
            }
            Ok((507, body)) if is_full(&body) => Outcome::new(Kind::NotWritten, body.to_string()),
            Ok((status, body)) => Outcome::new(Kind::Wrong, format!("{status}: {body}")),
            Err(failure) => {
                self.possible.push(next);
                failure.into()
            }
        }
    }

    fn read(&mut self) -> Outcome {
        let found = match self.world.endpoint().exchange("GET", PATH, None) {
            Ok((200, action)) => action["annotations"][0]["value"].as_u64(),
            Ok((404, _)) => None,
            Ok((status, body)) => return Outcome::new(Kind::Wrong, format!("{status}: {body}")),
            Err(failure) => return failure.into(),
        };
        if self.possible.contains(&found) {
            self.possible = vec![found];
            return Outcome::right();
        }
        let said = format!("its number is {found:?}, expected one of {:?}", self.possible);
        Outcome::new(Kind::Wrong, said)
    }
}

/// Whether an error says that the action could not be written, and why.
fn is_full(body: &Value) -> bool {
    let error = body["error"].as_str().unwrap_or_default();
    error.starts_with("the disk of the state directory is full: ")
}
