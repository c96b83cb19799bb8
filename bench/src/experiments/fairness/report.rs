//! Table, verdicts and plot of `fairness`.

use super::{Arguments, Beside, Figures, Line, Sharing};
use crate::{
    harness::Report,
    record::describe_run,
    report::{
        Assessments, Estimate, Spread, Table, by_method,
        chart::{Chart, Panel, Series},
        methods, of_method,
    },
    size::mib,
};

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

impl Report for Arguments {
    type Figures = Figures;

    fn table(records: &[Line]) -> Table {
        let by_method = by_method(records);
        let count = |head, value: fn(&Line) -> u64| {
            Column::median(head, move |line: &Line| value(line) as f64)
        };
        Table::of(
            records,
            |line| (by_method(line), line.beside),
            &[
                Column::common("method", |line| line.header.method.clone()),
                Column::common("beside", |line| line.beside.name().to_owned()),
                Column::count("n"),
                count("calls", |line| line.calls_count),
                count("refused", |line| line.refused_count),
                count("failed", |line| line.failed_count),
                count("cold", |line| line.cold_count),
                Column::median("p50 ms", |line| line.p50_ns as f64 / 1e6),
                Column::median("p99 ms", p99_ms),
                Column::quartiles("quartiles", p99_ms),
                Column::median("over share", |line| over_share(records, line).unwrap_or(f64::NAN)),
                Column::median("new s", new_seconds),
                Column::median("processors", |line| line.processors(line.own_cpu_ns)),
                Column::median("others'", |line| line.processors(line.others_cpu_ns)),
                count("others' calls", |line| line.others_calls_count),
                count("refused", |line| line.others_refused_count),
                count("failed", |line| line.others_failed_count),
                Column::median("their MiB", |line| mib(line.others_memory_bytes)),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        // What else was recorded is only a comparison.
        let judged = Sharing::ALL.map(Sharing::name);
        for method in methods(records).into_iter().filter(|method| judged.contains(&&**method)) {
            for (beside, when) in
                [(Beside::Boots, "that boots"), (Beside::Flood, "whose VMs are up")]
            {
                assessments.add(
                    "p99",
                    format!("{method}: P99 beside a flood {when} relative to beside a neighbour within its share"),
                    Estimate::median(ratios(records, &method, beside)),
                );
                assessments.add_counts(
                    "lost-calls",
                    format!(
                        "{method}: maximum number of calls refused or failed beside a flood {when}"
                    ),
                    select(records, &method, beside)
                        .map(|line| line.refused_count + line.failed_count),
                );
            }
        }
    }

    fn plot(records: &[Line]) -> Chart {
        let methods = methods(records);
        let situations = || Beside::ALL.into_iter();
        let panel = |title: &str, y: &str, logarithmic, value: fn(&Line) -> f64| Panel {
            title: title.to_owned(),
            x: "what the other tenant does".to_owned(),
            y: y.to_owned(),
            categories: situations().map(|beside| beside.name().to_owned()).collect(),
            series: Series::of_methods(&methods, |method| {
                let point = |beside| Spread::of(select(records, method, beside).map(value));
                situations().map(point).collect()
            }),
            joined: false,
            logarithmic,
        };
        Chart {
            title: "A tenant's calls beside another tenant".to_owned(),
            subtitle: describe_run(records),
            panels: vec![
                panel("P99 of its calls", "milliseconds", true, p99_ms),
                panel("First call of a new action", "seconds", false, new_seconds),
                panel("Processors that the other one got", "processors", false, |line| {
                    line.processors(line.others_cpu_ns)
                }),
            ],
            foot: "nothing: there is no other tenant. share: it always has one call at work. boots: it begins \
                   to flood the node with calls of several actions. flood: their VMs are up."
                .to_owned(),
        }
    }
}

impl Figures {
    /// CPU time in processors.
    fn processors(&self, cpu_ns: u64) -> f64 {
        cpu_ns as f64 / self.elapsed_ns as f64
    }
}

fn p99_ms(line: &Line) -> f64 {
    line.p99_ns as f64 / 1e6
}

fn new_seconds(line: &Line) -> f64 {
    line.new_ns.map_or(f64::NAN, |ns| ns as f64 / 1e9)
}

/// P99 relative to that in the same daemon beside a neighbour within its share, for each trial.
fn ratios<'a>(
    records: &'a [Line],
    method: &'a str,
    beside: Beside,
) -> impl Iterator<Item = f64> + 'a {
    select(records, method, beside).filter_map(|line| over_share(records, line))
}

/// A line's P99 relative to that of its trial beside a neighbour within its share.
fn over_share(records: &[Line], line: &Line) -> Option<f64> {
    let mut shares = select(records, &line.header.method, Beside::Share);
    let share = shares.find(|share| share.header.trial == line.header.trial)?;
    Some(line.p99_ns as f64 / share.p99_ns as f64)
}

fn select<'a>(
    records: &'a [Line],
    method: &'a str,
    beside: Beside,
) -> impl Iterator<Item = &'a Line> {
    of_method(records, method).filter(move |line| line.beside == beside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        experiments::fairness::{
            load::Counts,
            tenant::{Called, Outcome},
        },
        harness::{Experiment, assess},
        record::{Measured, complaint, tests::header},
        report::Verdict,
    };
    use std::time::Duration;

    /// A hundred calls of one latency, the last one with this outcome.
    fn line(trial: u32, beside: Beside, latency_ms: u64, last: Outcome) -> Line {
        let call = |outcome| Called { latency: Duration::from_millis(latency_ms), outcome };
        let mut called = vec![call(Outcome::Warm); 99];
        called.push(call(last));
        let others = Counts { answered: 7, refused: 1, failed: 0 };
        let figures = Figures {
            elapsed_ns: 1_000_000_000,
            others_cpu_ns: 1_500_000_000,
            ..Figures::of(beside, &called, others)
        };
        Measured { header: header(Arguments::NAME, "squeezy", trial), figures }
    }

    fn verdicts(flood: impl Fn(u32) -> Line, trials: u32) -> Vec<Verdict> {
        let share =
            |trial: u32| line(trial, Beside::Share, 100 * u64::from(trial + 1), Outcome::Warm);
        let records: Vec<Line> =
            (0..trials).flat_map(|trial| [flood(trial), share(trial)]).collect();
        assess::<Arguments>(&records).iter().map(|one| one.verdict()).collect()
    }

    #[test]
    fn each_flood_is_compared_with_the_share_of_its_own_daemon() {
        let flood = |percent: u64| {
            move |trial: u32| {
                line(trial, Beside::Flood, u64::from(trial + 1) * percent, Outcome::Warm)
            }
        };
        assert_eq!(verdicts(flood(105), 5), [Verdict::Met, Verdict::Met]);
        assert_eq!(verdicts(flood(120), 5), [Verdict::Missed, Verdict::Met]);
        assert_eq!(verdicts(flood(105), 1), [Verdict::Unclear, Verdict::Met]);
    }

    #[test]
    fn a_call_that_is_lost_counts_and_is_infinitely_long() {
        for lost in [Outcome::Refused, Outcome::Failed] {
            let flood = |trial| line(trial, Beside::Flood, 100, lost);
            assert_eq!(verdicts(flood, 5), [Verdict::Missed, Verdict::Missed]);
            assert_eq!(flood(0).p99_ns, u64::MAX);
        }
        assert_eq!(line(0, Beside::Flood, 100, Outcome::Cold).cold_count, 1);
    }

    #[test]
    fn all_figures_are_shown() {
        let records = [
            line(0, Beside::Nothing, 80, Outcome::Warm),
            line(0, Beside::Share, 100, Outcome::Warm),
            line(0, Beside::Flood, 150, Outcome::Cold),
        ];
        assert_eq!(complaint(&records[2], &["p99_ns", "others_calls_count"]), None);
        let table = Arguments::table(&records).to_string();
        for shown in ["nothing", "flood", "150", "1.50"] {
            assert!(table.contains(shown), "{table}");
        }
        assert!(Arguments::plot(&records).svg().unwrap().contains("share"));
        assert!(assess::<Arguments>(&records[..2]).is_empty());
    }
}
