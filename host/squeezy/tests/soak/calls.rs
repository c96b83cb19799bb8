//! Calls of a client that waits for every result.

use crate::{
    exchange::Failure,
    ledger::{Kind, Outcome},
    world::World,
};
use serde_json::{Value, json};
use squeezy_load::Random;
use std::{
    fmt,
    time::{Duration, Instant},
};

/// How long the result of an accepted activation may take.
const LIMIT: Duration = Duration::from_secs(180);

/// The kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Requests a page, and waits for its activation.
    Page,
    /// Requests a page, and waits for its result alone.
    Result,
    /// Requests a page without blocking, and polls for the result.
    Later,
    /// Requests a page that takes seconds.
    Works,
    /// Makes the function raise an exception.
    Raises,
    /// Makes the instance exit.
    Ends,
    /// Makes the instance crash.
    Crashes,
    /// Takes more than the instance's memory.
    Hoards,
    /// Requests a page of the other function, which has its own VM.
    Contends,
    /// Requests a page of a sequence of the function alone.
    Chains,
    /// Fills /dev/shm, empties it, and requests a page.
    Floods,
    /// Takes more kernel memory than the instance's share.
    Exhausts,
    /// Ends the instance and leaves pages behind that no process owns.
    Clings,
    /// Never returns.
    Hangs,
    /// Reads lists, metrics and the page, without a call.
    Look,
    /// Creates, changes or deletes an action.
    Write,
    /// Reads the same action again.
    Read,
}

impl What {
    /// The expected outcome without faults.
    pub fn expects(self) -> Kind {
        match self {
            Self::Raises => Kind::Raised,
            Self::Ends | Self::Crashes | Self::Clings => Kind::Ended,
            Self::Hoards | Self::Exhausts => Kind::ExceededMemory,
            Self::Hangs => Kind::Late,
            _ => Kind::Right,
        }
    }

    /// What the function should do besides rendering its page.
    fn how(self) -> Option<&'static str> {
        match self {
            Self::Works => Some("works"),
            Self::Ends => Some("ends"),
            Self::Crashes => Some("crashes"),
            Self::Hoards => Some("hoards"),
            Self::Floods => Some("floods"),
            Self::Exhausts => Some("exhausts"),
            Self::Clings => Some("clings"),
            Self::Hangs => Some("hangs"),
            _ => None,
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Page => "page, activation",
            Self::Result => "page, result only",
            Self::Later => "page, not waited for",
            Self::Works => "page that takes seconds",
            Self::Raises => "function raises an exception",
            Self::Ends => "function ends its instance",
            Self::Crashes => "function crashes",
            Self::Hoards => "function exceeds its memory",
            Self::Contends => "page of the other function",
            Self::Chains => "page by a sequence",
            Self::Floods => "function fills /dev/shm",
            Self::Exhausts => "function exhausts the kernel",
            Self::Clings => "function leaves pages behind",
            Self::Hangs => "function hangs",
            Self::Look => "lists, metrics and page",
            Self::Write => "action made, changed, deleted",
            Self::Read => "action read",
        })
    }
}

impl World {
    /// Makes a call, and records its outcome.
    pub fn make(&self, what: What, random: &mut Random) -> Kind {
        let sent = Instant::now();
        let outcome = match what {
            What::Look => self.look(random),
            _ => self.invoke(what, random),
        };
        self.ledger.enter(what, sent, outcome)
    }

    fn invoke(&self, what: What, random: &mut Random) -> Outcome {
        let page = Page { username: self.new_name(), items: 1 + (random.unit() * 40.0) as u64 };
        let items = if what == What::Raises { json!("many") } else { json!(page.items) };
        let mut arguments = json!({ "username": page.username, "items": items });
        if let Some(how) = what.how() {
            arguments["how"] = how.into();
        }
        let options = match what {
            What::Later => "",
            What::Result => "?blocking=true&result=true",
            _ => "?blocking=true",
        };
        let endpoint = self.endpoint();
        let action = match what {
            What::Contends => self.other_action(),
            What::Chains => self.sequence(),
            _ => self.action(),
        };
        let path = format!("{action}{options}");
        let (status, body) = match endpoint.exchange("POST", &path, Some(&arguments)) {
            Ok(answer) => answer,
            Err(failure) => return failure.into(),
        };
        match status {
            // A blocking call that takes too long continues as a non-blocking one.
            202 => self.follow(&body["activationId"], &page),
            200 | 502 | 500 if body.get("code").is_none() => {
                let result = if what == What::Result { &body } else { &body["response"]["result"] };
                judge(status, result, &page)
            }
            429 => Outcome::new(Kind::Busy, body.to_string()),
            503 => Outcome::new(Kind::Ending, body.to_string()),
            _ => Outcome::new(Kind::Wrong, format!("{status}: {body}")),
        }
    }

    /// Waits for the result of an activation that was accepted, by the daemon that is there then.
    fn follow(&self, id: &Value, page: &Page) -> Outcome {
        let Some(id) = id.as_str() else { return Outcome::new(Kind::Wrong, "it has no id") };
        let path = format!("/api/v1/namespaces/_/activations/{id}");
        let begin = Instant::now();
        loop {
            match self.endpoint().exchange("GET", &path, None) {
                Ok((200, activation)) => {
                    let response = &activation["response"];
                    let status = match response["statusCode"].as_u64() {
                        Some(0) => 200,
                        Some(3) => 500,
                        _ => 502,
                    };
                    return judge(status, &response["result"], page);
                }
                // The call is running, or the daemon is gone, and the next one will know.
                Ok((404, _)) | Err(Failure::Refused(_) | Failure::Broken(_)) => {}
                Ok((status, body)) => {
                    return Outcome::new(Kind::Wrong, format!("{status}: {body}"));
                }
                Err(failure) => return failure.into(),
            }
            if begin.elapsed() > LIMIT {
                return Outcome::new(Kind::Wrong, format!("activation {id} never appeared"));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn look(&self, random: &mut Random) -> Outcome {
        let places = [
            "/metrics",
            "/ui/state.json",
            "/api/v1/namespaces/_/activations?limit=20&docs=true",
            "/api/v1/namespaces/_/actions",
            self.action(),
        ];
        let place = places[random.below(places.len())];
        match self.endpoint().exchange("GET", place, None) {
            Ok((200, _)) => Outcome::right(),
            Ok((status, body)) => Outcome::new(Kind::Wrong, format!("{place}: {status}: {body}")),
            Err(failure) => failure.into(),
        }
    }
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        let (kind, said) = match failure {
            Failure::Refused(said) => (Kind::Refused, said),
            Failure::Broken(said) => (Kind::Broken, said),
            Failure::Wrong(said) => (Kind::Wrong, said),
        };
        Self { kind, said }
    }
}

/// A page that was requested; its name is unique to the request.
struct Page {
    username: String,
    items: u64,
}

impl Page {
    /// What is wrong with the response, if anything.
    fn problem(&self, result: &Value) -> Option<String> {
        let Self { username, items } = self;
        let html = result["html"].as_str().unwrap_or_default();
        let cents = result["total_cents"].as_u64().unwrap_or_default();
        let total = format!("<td>{}.{:02}</td>", cents / 100, cents % 100);
        let right = html.contains(&format!("<title>{items} items for {username}</title>"))
            && html.matches("<tr class=\"item\">").count() as u64 == *items
            && html.contains(&total);
        (!right)
            .then(|| format!("{items} items for {username} were asked for: {}", beginning(result)))
    }
}

/// The outcome of a call, from the activation's HTTP status and result.
fn judge(status: u16, result: &Value, page: &Page) -> Outcome {
    if status == 200 {
        return match page.problem(result) {
            None => Outcome::right(),
            Some(problem) => Outcome::new(Kind::Wrong, problem),
        };
    }
    let said = result["error"].as_str().unwrap_or_default();
    let reasons = [
        (502, "has ended by itself with status 3", Kind::Ended),
        (502, "was killed by signal 11", Kind::Ended),
        (502, "exceeded its memory", Kind::ExceededMemory),
        (502, "was not answered within its limit of 12 s", Kind::Late),
        (502, "the guest's agent cannot be reached", Kind::AgentLost),
        (502, "The action raised ValueError", Kind::Raised),
        (500, "the VM for it could not be booted", Kind::VmFailed),
        (500, "the instance for it could not be started", Kind::StartFailed),
        (500, "the node is shutting down", Kind::Ending),
        (500, "the daemon was ended while this call ran", Kind::EndedWithDaemon),
        // What refuses an action ends a sequence that has begun.
        (500, "Sequence failed. The daemon is shutting down", Kind::Ending),
        (500, "Sequence failed. Too many requests are waiting", Kind::Busy),
        (500, "", Kind::VmEnded),
    ];
    let is_reason = |&(with, part, _): &(u16, &str, Kind)| {
        with == status && said.contains(part) && !said.is_empty()
    };
    let kind = reasons.into_iter().find(is_reason).map_or(Kind::Wrong, |(.., kind)| kind);
    Outcome::new(kind, format!("{status}: {}", beginning(result)))
}

fn beginning(value: &Value) -> String {
    value.to_string().chars().take(300).collect()
}
