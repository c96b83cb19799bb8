//! What the lines say: table, bounds and plot.

use super::{EAGER, IDEAL, LIBRARIES, Line, RECLAIM, VANILLA};
use crate::common::{
    bound::{Bound, Limit, number},
    chart::{BLUE, Chart, ORANGE, Panel, Series},
    error::Result,
    estimate::{Estimate, Sample},
    native::{Language, functions_in, of_size, sizes_of},
    record::describe_run,
    size::{self, mib},
    stats::{Spread, median},
    table::Table,
};

const VARIANTS: [&str; 5] = [VANILLA, EAGER, RECLAIM, LIBRARIES, IDEAL];

/// What is promised of a language.
struct Promise {
    language: Language,
    heap_over_live: f64,
    vanilla_over_squeezed: f64,
    eager_over_squeezed: f64,
}

const PROMISES: [Promise; 2] = [
    Promise {
        language: Language::Java,
        heap_over_live: 1.01,
        vanilla_over_squeezed: 2.8,
        eager_over_squeezed: 1.4,
    },
    Promise {
        language: Language::JavaScript,
        heap_over_live: 1.10,
        vanilla_over_squeezed: 4.0,
        eager_over_squeezed: 1.6,
    },
];

pub(super) fn table(records: &[Line]) -> Table {
    let mut table = Table::new(&[
        "function",
        "memory",
        "variant",
        "n",
        "calls",
        "USS MiB",
        "RSS MiB",
        "PSS MiB",
        "heap MiB",
        "live MiB",
        "vanilla's USS over it",
    ]);
    for language in Language::ALL {
        for function in functions_in(records, language) {
            for memory in sizes_of(records) {
                for variant in VARIANTS {
                    let lines = || of_size(records, variant, &function, memory);
                    let of = |value: fn(&Line) -> u64| {
                        median(lines().map(|line| mib(value(line)))).map_or(String::new(), number)
                    };
                    if lines().next().is_none() {
                        continue;
                    }
                    table.row([
                        function.clone(),
                        size::show(memory),
                        variant.to_owned(),
                        lines().count().to_string(),
                        median(lines().map(|line| line.subject.calls_count.into()))
                            .map_or(String::new(), |calls| calls.to_string()),
                        of(|line| line.uss_bytes),
                        of(|line| line.rss_bytes),
                        of(|line| line.pss_bytes),
                        of(|line| line.heap_bytes),
                        of(|line| line.live_bytes),
                        ratio(records, VANILLA, variant, &function, memory)
                            .map_or(String::new(), number),
                    ]);
                }
            }
        }
    }
    table
}

pub(super) fn bounds(records: &[Line]) -> Vec<Bound> {
    let mut bounds = Vec::new();
    for promise in PROMISES {
        let Promise { language, .. } = promise;
        let functions = functions_in(records, language);
        let Some(&least) = sizes_of(records).first() else { continue };
        let at = format!("{language}, {}", size::show(least));
        let over_live = functions.iter().flat_map(|function| {
            sizes_of(records).into_iter().map(|memory| {
                let lines = of_size(records, RECLAIM, function, memory);
                Sample::Median(lines.map(heap_over_live).collect())
            })
        });
        bounds.extend(Estimate::mean(over_live).map(|measured| Bound {
            what: format!("heap resident after a reclaim over live bytes, {language}"),
            measured,
            limit: Limit::AtMost(promise.heap_over_live),
            unit: "x",
        }));
        let against = |over, under| {
            let uss = |variant, function| {
                let lines = of_size(records, variant, function, least);
                lines.map(|line| line.uss_bytes as f64).collect()
            };
            Estimate::mean(functions.iter().map(|f| Sample::Ratio(uss(over, f), uss(under, f))))
        };
        bounds.extend(against(RECLAIM, IDEAL).map(|measured| Bound {
            what: format!("the same of USS: {RECLAIM} over {IDEAL}, mean of {at}"),
            measured,
            limit: Limit::AtMost(promise.heap_over_live),
            unit: "x",
        }));
        for (variant, limit) in
            [(VANILLA, promise.vanilla_over_squeezed), (EAGER, promise.eager_over_squeezed)]
        {
            bounds.extend(against(variant, LIBRARIES).map(|measured| Bound {
                what: format!("USS of {variant} over {LIBRARIES}, mean of {at}"),
                measured,
                limit: Limit::AtLeast(limit),
                unit: "x",
            }));
        }
    }
    bounds
}

pub(super) fn plot(records: &[Line]) -> Result<String> {
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
        title: "Memory of a frozen instance that nobody else has (USS)".to_owned(),
        subtitle: describe_run(records),
        panels,
        foot: "ideal: vanilla's memory with the heap at what is live. On the right, quartiles are those over the functions."
            .to_owned(),
    }
    .svg()
}

/// How many times the memory of one variant that of another has, of the medians of a function.
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
    use crate::common::{
        bound::Verdict,
        native::example,
        record::{
            complaint,
            tests::{header, repeated},
        },
    };

    #[test]
    fn means_are_of_ratios_of_functions() {
        let line = |variant: &str, function: &str, uss: u64| Line {
            header: header("single", variant, 0),
            subject: example(Language::Java, function),
            variant: variant.to_owned(),
            uss_bytes: uss << 20,
            rss_bytes: uss << 20,
            pss_bytes: uss << 20,
            heap_bytes: 101 << 20,
            live_bytes: 100 << 20,
            shared_bytes: 0,
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
        let [heap, over_ideal, vanilla, eager] = &bounds(&repeated(&records))[..] else { panic!() };
        assert_eq!((heap.measured.value, over_ideal.measured.value), (1.01, 1.25));
        assert_eq!((vanilla.measured.value, eager.measured.value), (3.0, 1.0));
        use Verdict::{Met, Missed, Unclear};
        assert_eq!([heap, vanilla, eager].map(Bound::verdict), [Met, Met, Missed]);
        assert_eq!(bounds(&records)[0].verdict(), Unclear);
        let text = table(&records).to_string();
        assert!(text.contains("reclaim+libraries") && text.contains("256 MiB"), "{text}");
        assert!(plot(&records).unwrap().contains("eager"));
    }
}
