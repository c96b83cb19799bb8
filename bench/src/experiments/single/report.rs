//! Table, verdicts and plot.

use super::{Arguments, EAGER, Figures, IDEAL, LIBRARIES, RECLAIM, VANILLA};
use crate::{
    harness::Report,
    record::{Measured, describe_run},
    report::{
        Assessments, Estimate, Sample, Spread, Table,
        chart::{BLUE, Chart, ORANGE, Panel, Series},
        median, number,
    },
    rigs::process::{Language, OfProcess, Subject, functions_in, of_size, sizes_of},
    size::{self, mib},
};

const VARIANTS: [&str; 5] = [VANILLA, EAGER, RECLAIM, LIBRARIES, IDEAL];

/// A record.
type Line = Measured<OfProcess<Figures>>;

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

impl Report for Arguments {
    type Figures = OfProcess<Figures>;

    fn table(records: &[Line]) -> Table {
        let in_mib = |head, value: fn(&Line) -> u64| {
            Column::median(head, move |line: &Line| mib(value(line)))
        };
        let vanilla_over_it = |line: &Line| {
            let Subject { function, memory_bytes, .. } = &line.subject;
            ratio(records, VANILLA, &line.variant, function, *memory_bytes)
                .map_or(String::new(), number)
        };
        Table::of(
            records,
            |line| {
                let Subject { language, function, memory_bytes, .. } = &line.subject;
                let variant = VARIANTS.iter().position(|variant| *variant == line.variant);
                (*language, function.clone(), *memory_bytes, variant)
            },
            &[
                Column::common("function", |line| line.subject.function.clone()),
                Column::common("memory", |line| size::show(line.subject.memory_bytes)),
                Column::common("variant", |line| line.variant.clone()),
                Column::count("n"),
                Column::new("calls", |lines: &[&Line]| {
                    median(lines.iter().map(|line| line.subject.calls_count.into()))
                        .map_or(String::new(), |calls| calls.to_string())
                }),
                in_mib("USS MiB", |line| line.uss_bytes),
                in_mib("RSS MiB", |line| line.rss_bytes),
                in_mib("PSS MiB", |line| line.pss_bytes),
                in_mib("heap MiB", |line| line.heap_bytes),
                in_mib("live MiB", |line| line.live_bytes),
                Column::common("vanilla's USS over it", vanilla_over_it),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        for language in Language::ALL {
            let functions = functions_in(records, language);
            let Some(&least) = sizes_of(records).first() else { continue };
            let at = format!("{language}, {}", size::show(least));
            let target = |name: &str| format!("{name}-{}", language.to_string().to_lowercase());
            let over_live = functions.iter().flat_map(|function| {
                sizes_of(records).into_iter().map(|memory| {
                    let lines = of_size(records, RECLAIM, function, memory);
                    Sample::Median(lines.map(heap_over_live).collect())
                })
            });
            assessments.add(
                &target("heap-over-live"),
                format!("heap resident after a squeeze over live bytes, {language}"),
                Estimate::mean(over_live),
            );
            let against = |over, under| {
                let uss = |variant, function| {
                    let lines = of_size(records, variant, function, least);
                    lines.map(|line| line.uss_bytes as f64).collect()
                };
                Estimate::mean(functions.iter().map(|f| Sample::Ratio(uss(over, f), uss(under, f))))
            };
            assessments.add(
                &target("over-ideal"),
                format!("the same of USS: {RECLAIM} over {IDEAL}, mean of {at}"),
                against(RECLAIM, IDEAL),
            );
            for variant in [VANILLA, EAGER] {
                assessments.add(
                    &target(variant),
                    format!("USS of {variant} over {LIBRARIES}, mean of {at}"),
                    against(variant, LIBRARIES),
                );
            }
        }
    }

    fn plot(records: &[Line]) -> Chart {
        let sizes = sizes_of(records);
        let mut panels = Vec::new();
        for language in Language::ALL {
            let functions = functions_in(records, language);
            let (Some(&least), false) = (sizes.first(), functions.is_empty()) else { continue };
            let variants = VARIANTS.map(str::to_owned);
            panels.push(Panel {
                title: format!("{language}, {}", size::show(least)),
                x: String::new(),
                y: "USS, MiB".to_owned(),
                series: Series::of_methods(&variants, |variant| {
                    let uss = |function: &String| {
                        let lines = of_size(records, variant, function, least);
                        Spread::of(lines.map(|line| mib(line.uss_bytes)))
                    };
                    functions.iter().map(uss).collect()
                }),
                categories: functions,
                joined: false,
                logarithmic: false,
            });
        }
        panels.push(Panel {
            title: format!("{VANILLA} over {LIBRARIES}: all functions"),
            x: "memory of an instance".to_owned(),
            y: "times the USS".to_owned(),
            categories: sizes.iter().map(|&bytes| size::show(bytes)).collect(),
            series: [(Language::Java, ORANGE), (Language::JavaScript, BLUE)]
                .map(|(language, colour)| Series {
                    name: language.to_string(),
                    colour,
                    variant: false,
                    points: sizes
                        .iter()
                        .map(|&memory| {
                            let ratios = functions_in(records, language);
                            Spread::of(ratios.iter().filter_map(|function| {
                                ratio(records, VANILLA, LIBRARIES, function, memory)
                            }))
                        })
                        .collect(),
                })
                .into(),
            joined: true,
            logarithmic: false,
        });
        Chart {
            title: "Private memory (USS) of a frozen instance".to_owned(),
            subtitle: describe_run(records),
            panels,
            foot: "ideal: vanilla's memory with only live data in the heap. On the right, quartiles over functions."
                .to_owned(),
        }
    }
}

/// The ratio of the medians of two variants' USS for a function.
fn ratio(records: &[Line], of: &str, over: &str, function: &str, memory: u64) -> Option<f64> {
    let uss = |variant| {
        median(of_size(records, variant, function, memory).map(|line| line.uss_bytes as f64))
    };
    Some(uss(of)? / uss(over)?)
}

fn heap_over_live(line: &Line) -> f64 {
    line.heap_bytes as f64 / line.live_bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::assess,
        record::{
            Measured, complaint,
            tests::{header, repeated},
        },
        report::{Assessment, Verdict},
        rigs::process::example,
    };

    #[test]
    fn means_are_of_ratios_of_functions() {
        let line = |variant: &str, function: &str, uss: u64| Measured {
            header: header("single", variant, 0),
            figures: OfProcess {
                subject: example(Language::Java, function),
                figures: Figures {
                    variant: variant.to_owned(),
                    uss_bytes: uss << 20,
                    rss_bytes: uss << 20,
                    pss_bytes: uss << 20,
                    heap_bytes: 101 << 20,
                    live_bytes: 100 << 20,
                    shared_bytes: 0,
                },
            },
        };
        let mut records = Vec::new();
        for (function, vanilla) in [("sort", 40), ("time", 80)] {
            records.extend([
                line(VANILLA, function, vanilla),
                line(EAGER, function, 20),
                line(RECLAIM, function, 20),
                line(LIBRARIES, function, 20),
                line(IDEAL, function, 16),
            ]);
        }
        assert_eq!(complaint(&records[0], &["live_bytes", "language", "variant"]), None);
        let [heap, over_ideal, vanilla, eager] = &assess::<Arguments>(&repeated(&records))[..]
        else {
            panic!()
        };
        assert_eq!((heap.measured.value, over_ideal.measured.value), (1.01, 1.25));
        assert_eq!((vanilla.measured.value, eager.measured.value), (3.0, 1.0));
        use Verdict::{Met, Missed, Unclear};
        assert_eq!([heap, vanilla, eager].map(Assessment::verdict), [Met, Met, Missed]);
        assert_eq!(assess::<Arguments>(&records)[0].verdict(), Unclear);
        let text = Arguments::table(&records).to_string();
        assert!(text.contains("reclaim+libraries") && text.contains("256 MiB"), "{text}");
        assert!(Arguments::plot(&records).svg().unwrap().contains("eager"));
    }
}
