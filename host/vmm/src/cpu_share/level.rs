//! How nice each tenant has to be.
//!
//! A step of niceness is a factor of 1.25 in a thread's weight. Each period in which the processors are short, who uses more
//! than his part of them becomes nicer by as many steps as bring him there if the others want it, and who uses less becomes
//! less nice; as these are steps from where each is, what is left of the difference goes away with the next ones.

/// The nicest that a thread can be.
pub(super) const NICEST: u8 = 19;

/// What one step of niceness divides a thread's weight by (`sched_prio_to_weight` of Linux).
const STEP: f64 = 1.25;

/// The most steps in a period.
const MOST_STEPS: f64 = 5.0;

/// Who uses more than this many times his part goes as many steps as there may be: how much more he wants cannot be seen
/// while the processors are short.
const FAR_MORE: f64 = 1.5;

/// Who uses less of a processor than this uses none.
const IDLE: f64 = 0.01;

/// How much more than his part somebody has before he becomes nicer while nobody wants more, and how much less before he
/// becomes less nice. What is between is as much as a step is worth, or he would go back and forth.
const MORE: f64 = 1.05;
const LESS: f64 = 0.85;

/// Nobody has to be nice while more of the processors than this is idle.
const SPARE: f64 = 0.1;

/// A tenant at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    /// Its part in proportion to that of others.
    pub(super) weight: u32,
    /// Processors that it uses.
    pub(super) used: f64,
    /// How nice it is.
    pub(super) niceness: u8,
}

/// How nice each is to be from now on, in the same order; `idle` of all `processors` are idle.
pub(super) fn next(all: &[Usage], idle: f64, processors: f64) -> Vec<u8> {
    let at_work = |usage: &&Usage| usage.used >= IDLE;
    let total: f64 = all.iter().filter(at_work).map(|usage| usage.used).sum();
    let weights: f64 = all.iter().filter(at_work).map(|usage| f64::from(usage.weight)).sum();
    let is_short = all.iter().filter(at_work).count() > 1 && idle < SPARE * processors;
    if !is_short {
        return all.iter().map(|usage| usage.niceness.saturating_sub(1)).collect();
    }
    // What the host itself uses is nobody's.
    let excess = |usage: &Usage| usage.used / ((total + idle) * f64::from(usage.weight) / weights);
    // It may want more, and many who have hardly too much together have a lot.
    let may_want = |usage: &Usage| usage.niceness == 0 && excess(usage) < LESS;
    let most = if all.iter().filter(at_work).any(may_want) { 1.0 } else { MORE };
    let steps = |usage: &Usage| {
        let excess = excess(usage);
        let steps = (excess.ln() / STEP.ln()).abs().round().clamp(1.0, MOST_STEPS);
        match excess {
            _ if usage.used < IDLE => -f64::from(NICEST),
            excess if excess > FAR_MORE => MOST_STEPS,
            excess if excess > most => steps,
            excess if excess < LESS => -steps,
            _ => 0.0,
        }
    };
    let levels = all.iter().map(|usage| f64::from(usage.niceness) + steps(usage));
    // Only the difference counts, and somebody is not nice at all.
    let levels: Vec<f64> = levels.map(|level| level.max(0.0)).collect();
    let at_work = all.iter().zip(&levels).filter(|(usage, _)| usage.used >= IDLE);
    let least = at_work.map(|(_, level)| *level).fold(f64::from(NICEST), f64::min);
    let level = |level: &f64| (level - least).clamp(0.0, f64::from(NICEST)) as u8;
    levels.iter().map(level).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A tenant as a model of Linux has it.
    #[derive(Clone, Copy, Debug)]
    struct Model {
        weight: u32,
        threads: u32,
        /// Processors that its threads would use altogether if they were alone.
        wants: f64,
    }

    /// What each gets of the processors, by the weights of threads; nobody gets more than he wants, and nothing lies idle.
    fn shared(all: &[Model], levels: &[u8], processors: f64) -> Vec<f64> {
        let weight = |i: usize| f64::from(all[i].threads) * STEP.powi(-i32::from(levels[i]));
        let mut got = vec![0.0; all.len()];
        let mut left = processors;
        let mut open: Vec<usize> = (0..all.len()).collect();
        while !open.is_empty() {
            let weights: f64 = open.iter().map(|&i| weight(i)).sum();
            let (full, rest): (Vec<_>, Vec<_>) =
                open.iter().partition(|&&i| all[i].wants <= left * weight(i) / weights);
            if full.is_empty() {
                rest.iter().for_each(|&i| got[i] = left * weight(i) / weights);
                break;
            }
            for i in full {
                got[i] = all[i].wants;
                left -= all[i].wants;
            }
            open = rest;
        }
        got
    }

    /// What each gets on average at the end of a minute.
    fn settled(all: &[Model], processors: f64) -> Vec<f64> {
        let mut levels = vec![0; all.len()];
        let mut sums = vec![0.0; all.len()];
        for period in 0..240 {
            let got = shared(all, &levels, processors);
            if period >= 160 {
                got.iter().zip(&mut sums).for_each(|(got, sum)| *sum += got / 80.0);
            }
            let usage = |((model, &used), &niceness): ((&Model, &f64), &u8)| Usage {
                weight: model.weight,
                used,
                niceness,
            };
            let usages: Vec<_> = all.iter().zip(&got).zip(&levels).map(usage).collect();
            levels = next(&usages, processors - got.iter().sum::<f64>(), processors);
        }
        sums
    }

    #[test]
    fn a_flood_leaves_a_tenant_its_share() {
        let flood = Model { weight: 1, threads: 16, wants: 16.0 };
        let busy = Model { weight: 1, threads: 1, wants: 1.0 };
        let small = Model { weight: 1, threads: 1, wants: 0.2 };
        let got = settled(&[flood, busy], 2.0);
        assert!(got[1] > 0.85, "{got:?}");
        let got = settled(&[flood, small], 2.0);
        assert!(
            got[1] > 0.199 && got[0] > 1.79,
            "it gets all that it wants, and nothing is idle: {got:?}"
        );
        let heavy = Model { weight: 3, ..flood };
        let got = settled(&[flood, heavy], 2.0);
        assert!((2.4..3.6).contains(&(got[1] / got[0])), "{got:?}");
    }

    #[test]
    fn who_is_alone_or_among_idle_ones_is_not_nice() {
        let usage = |used, niceness| Usage { weight: 1, used, niceness };
        assert_eq!(next(&[usage(2.0, 3)], 0.0, 2.0), [2]);
        assert_eq!(next(&[usage(2.0, 1), usage(0.0, 1)], 0.0, 2.0), [0, 0]);
        // There is enough for all, though one uses more than his part.
        assert_eq!(next(&[usage(1.4, 0), usage(0.1, 0)], 0.5, 2.0), [0, 0]);
        // One within his share beside one who does not want his.
        assert_eq!(next(&[usage(1.0, 0), usage(0.9, 0)], 0.1, 2.0), [0, 0]);
        assert!(next(&[], 0.0, 2.0).is_empty());
    }

    proptest! {
        /// Whoever wants his share or more gets most of it, and whoever wants less gets most of that, as far as 68
        /// times the weight can give it to him.
        #[test]
        fn nobody_is_left_without_his_share(
            all in prop::collection::vec((1..5_u32, 1..17_u32, 0.05..1.0_f64), 2..6),
        ) {
            let processors = 4.0;
            let model = |&(weight, threads, each): &(u32, u32, f64)| {
                Model { weight, threads, wants: f64::from(threads) * each }
            };
            let all: Vec<_> = all.iter().map(model).collect();
            let got = settled(&all, processors);
            let weights: f64 = all.iter().map(|model| f64::from(model.weight)).sum();
            for (model, got) in all.iter().zip(&got) {
                let share = processors * f64::from(model.weight) / weights;
                prop_assert!(*got >= 0.7 * model.wants.min(share), "{model:?} {got} {share}");
            }
            let wants: f64 = all.iter().map(|model| model.wants).sum();
            let sum: f64 = got.iter().sum();
            prop_assert!(sum > 0.999 * wants.min(processors), "something is idle");
        }
    }
}
