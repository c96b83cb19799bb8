//! The order of attacks. Each has to run alone once in a while: together with all others it hardly
//! gets started, because one of them ends the instance after a fraction of a second.

use crate::image::{CONFINED, UNCONFINED};
use squeezy_load::Random;
use std::{fmt, time::Duration};

/// Refused by the filter of system calls; without it, something else has to stop it.
const CLOSED: [&str; 1] = ["flow_labels"];

/// The number of subsets in a round, and the minimum and maximum number of attacks in each.
const SUBSETS: usize = 10;
const LEAST: usize = 2;
const MOST: usize = 5;

/// The length of a turn. An attack that ends sooner is repeated.
const ALONE: Duration = Duration::from_secs(5);
const TOGETHER: Duration = Duration::from_secs(10);

/// Attacks that one function tries at once, and for how long.
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

/// Each attack alone.
pub fn alone(attacks: &[String]) -> Vec<Step> {
    let step = |function| {
        move |attack: &String| Step { function, attacks: vec![attack.clone()], length: ALONE }
    };
    let closed = attacks.iter().filter(|attack| CLOSED.contains(&attack.as_str()));
    attacks.iter().map(step(CONFINED)).chain(closed.map(step(UNCONFINED))).collect()
}

/// All attacks at once, with either function. Those that start first get furthest.
pub fn at_once(attacks: &[String], random: &mut Random) -> Vec<Step> {
    let step = |function| Step { function, attacks: shuffled(attacks, random), length: TOGETHER };
    [CONFINED, UNCONFINED].map(step).to_vec()
}

/// Each alone, some subsets, then all at once.
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
