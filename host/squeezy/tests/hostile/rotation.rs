//! Which attacks come when. Each has to be alone once in a while: beside all others it hardly begins,
//! because one of them ends the instance after a fraction of a second.

use crate::image::{CONFINED, UNCONFINED};
use squeezy_load::Random;
use std::{fmt, time::Duration};

/// What is refused by the filter of system calls, and has to be stopped by something else without it.
const CLOSED: [&str; 1] = ["flow_labels"];

/// How many subsets are tried in a round, and of how many attacks, at least and at most.
const SUBSETS: usize = 10;
const LEAST: usize = 2;
const MOST: usize = 5;

/// How long a turn is. Who comes to an end sooner tries again.
const ALONE: Duration = Duration::from_secs(5);
const TOGETHER: Duration = Duration::from_secs(10);

/// Attacks that one function tries at once, for so long.
#[derive(Clone)]
pub struct Step {
    pub function: &'static str,
    pub attacks: Vec<String>,
    pub length: Duration,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attacks.len() {
            0..=MOST => write!(f, "{}: {}", self.function, self.attacks.join(" ")),
            count => write!(f, "{}: {count} attacks at once", self.function),
        }
    }
}

/// Each of them alone.
pub fn alone(attacks: &[String]) -> Vec<Step> {
    let step = |function| {
        move |attack: &String| Step { function, attacks: vec![attack.clone()], length: ALONE }
    };
    let closed = attacks.iter().filter(|attack| CLOSED.contains(&attack.as_str()));
    attacks.iter().map(step(CONFINED)).chain(closed.map(step(UNCONFINED))).collect()
}

/// All of them at once, by either function. Who is started first comes farthest.
pub fn at_once(attacks: &[String], random: &mut Random) -> Vec<Step> {
    let step = |function| Step { function, attacks: shuffled(attacks, random), length: TOGETHER };
    [CONFINED, UNCONFINED].map(step).to_vec()
}

/// Each alone, some subsets, all at once.
pub fn round(attacks: &[String], random: &mut Random) -> Vec<Step> {
    let mut steps = alone(attacks);
    for number in 0..SUBSETS {
        let mut subset = shuffled(attacks, random);
        subset.truncate(LEAST + random.below(MOST - LEAST + 1));
        let function = [CONFINED, UNCONFINED][number % 2];
        steps.push(Step { function, attacks: subset, length: TOGETHER });
    }
    steps.extend(at_once(attacks, random));
    steps
}

fn shuffled(attacks: &[String], random: &mut Random) -> Vec<String> {
    let mut shuffled = attacks.to_vec();
    random.shuffle(&mut shuffled);
    shuffled
}
