//! The metrics of `/metrics` as OTLP has them, made from their text, so that both have the same names and values.

use super::span::attribute;
use opentelemetry_proto::tonic::{
    common::v1::KeyValue,
    metrics::v1::{
        AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
        metric::Data, number_data_point::Value,
    },
};
use std::sync::Arc;

/// When the counters began, and now, in nanoseconds since 1970.
#[derive(Clone, Copy)]
pub struct Times {
    /// When the counters began.
    pub start: u64,
    /// Now.
    pub now: u64,
}

/// The metrics in a text in the OpenMetrics format, as `prometheus-client` writes it. What has no series yet is left
/// out.
pub fn metrics(text: &str, times: Times) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    let mut kind = "";
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), help) => metrics.push(Metric {
                name: name.to_owned(),
                description: help.unwrap_or_default().to_owned(),
                ..Metric::default()
            }),
            (Some("#"), Some("TYPE"), Some(_), Some(is)) => kind = is,
            (Some("#"), Some("UNIT"), Some(_), Some(unit)) => {
                let Some(metric) = metrics.last_mut() else { continue };
                // As UCUM has them.
                metric.unit = match unit {
                    "bytes" => "By".to_owned(),
                    "seconds" => "s".to_owned(),
                    unit => unit.to_owned(),
                };
            }
            (Some("#"), ..) => {}
            _ => {
                if let (Some(metric), Some(sample)) = (metrics.last_mut(), Sample::parse(line)) {
                    add(metric, kind, sample, times);
                }
            }
        }
    }
    metrics.retain(|metric| metric.data.is_some());
    metrics
}

/// A line with a value.
#[derive(Debug, PartialEq)]
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: &'a str,
}

impl<'a> Sample<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let end = line.find(['{', ' '])?;
        let (name, mut rest) = line.split_at(end);
        let mut labels = Vec::new();
        if let Some(inner) = rest.strip_prefix('{') {
            rest = inner;
            while !rest.starts_with('}') {
                let (label, value) = rest.trim_start_matches(',').split_once("=\"")?;
                let (text, after) = unescaped(value)?;
                labels.push((label, text));
                rest = after;
            }
            rest = &rest[1..];
        }
        let value = rest.split_whitespace().next()?;
        Some(Self { name, labels, value })
    }

    fn attributes(&self) -> Vec<KeyValue> {
        let others = self.labels.iter().filter(|(label, _)| *label != "le");
        others.map(|(label, value)| attribute(label, Arc::<str>::from(value.as_str()))).collect()
    }
}

/// A text up to the quotation mark at its end, and what follows that.
fn unescaped(text: &str) -> Option<(String, &str)> {
    let (mut plain, mut characters) = (String::new(), text.char_indices());
    loop {
        match characters.next()? {
            (at, '"') => return Some((plain, &text[at + 1..])),
            (_, '\\') => plain.push(match characters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            (_, other) => plain.push(other),
        }
    }
}

fn add(metric: &mut Metric, kind: &str, sample: Sample<'_>, times: Times) {
    let number = |start_time_unix_nano| NumberDataPoint {
        attributes: sample.attributes(),
        start_time_unix_nano,
        time_unix_nano: times.now,
        value: value(sample.value),
        ..NumberDataPoint::default()
    };
    match kind {
        "counter" => {
            let data = metric.data.get_or_insert_with(|| {
                Data::Sum(Sum {
                    data_points: Vec::new(),
                    aggregation_temporality: AggregationTemporality::Cumulative.into(),
                    is_monotonic: true,
                })
            });
            if let Data::Sum(sum) = data {
                sum.data_points.push(number(times.start));
            }
        }
        "histogram" => {
            let data = metric.data.get_or_insert_with(|| {
                Data::Histogram(Histogram {
                    data_points: Vec::new(),
                    aggregation_temporality: AggregationTemporality::Cumulative.into(),
                })
            });
            if let Data::Histogram(histogram) = data {
                add_to_histogram(&mut histogram.data_points, &sample, times);
            }
        }
        _ => {
            if kind == "info" {
                metric.name = sample.name.to_owned();
            }
            let data = metric.data.get_or_insert_with(|| Data::Gauge(Gauge::default()));
            if let Data::Gauge(gauge) = data {
                gauge.data_points.push(number(0));
            }
        }
    }
}

/// Adds a line of a histogram. The lines of a series follow each other, and its buckets are sorted.
fn add_to_histogram(points: &mut Vec<HistogramDataPoint>, sample: &Sample<'_>, times: Times) {
    let attributes = sample.attributes();
    if points.last().is_none_or(|point| point.attributes != attributes) {
        points.push(HistogramDataPoint {
            attributes,
            start_time_unix_nano: times.start,
            time_unix_nano: times.now,
            ..HistogramDataPoint::default()
        });
    }
    let Some(point) = points.last_mut() else { return };
    let count = || sample.value.parse().unwrap_or(0);
    if sample.name.ends_with("_sum") {
        point.sum = sample.value.parse().ok();
    } else if sample.name.ends_with("_count") {
        point.count = count();
    } else if let Some((_, bound)) = sample.labels.iter().find(|(label, _)| *label == "le") {
        // There each bucket has the ones below it, too.
        let below: u64 = point.bucket_counts.iter().sum();
        point.bucket_counts.push(count().saturating_sub(below));
        if bound != "+Inf" {
            point.explicit_bounds.push(bound.parse().unwrap_or_default());
        }
    }
}

fn value(text: &str) -> Option<Value> {
    let whole = text.parse().map(Value::AsInt).ok();
    whole.or_else(|| text.parse().map(Value::AsDouble).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::metrics::Watch;
    use std::collections::BTreeSet;

    const TIMES: Times = Times { start: 1, now: 2 };

    #[test]
    fn lines_become_points() {
        let text = "# HELP q Waits.\n# TYPE q histogram\n# UNIT q seconds\n\
                    q_sum{f=\"a\"} 3.5\nq_count{f=\"a\"} 6\nq_bucket{le=\"1.0\",f=\"a\"} 1\n\
                    q_bucket{le=\"2.0\",f=\"a\"} 4\nq_bucket{le=\"+Inf\",f=\"a\"} 6\n\
                    q_sum{f=\"b\"} 0.0\nq_count{f=\"b\"} 0\nq_bucket{le=\"1.0\",f=\"b\"} 0\n\
                    q_bucket{le=\"+Inf\",f=\"b\"} 0\n\
                    # HELP c Bytes.\n# TYPE c counter\n# UNIT c bytes\nc_total{f=\"x\\\"\\\\\\n}\",g=\"\"} 7\n\
                    # HELP none N.\n# TYPE none gauge\n\
                    # HELP g G.\n# TYPE g gauge\ng 2.5\n# EOF\n";
        let all = metrics(text, TIMES);
        let names: Vec<_> = all.iter().map(|m| (m.name.as_str(), m.unit.as_str())).collect();
        assert_eq!(names, [("q", "s"), ("c", "By"), ("g", "")]);
        let Some(Data::Histogram(histogram)) = &all[0].data else { panic!("{all:?}") };
        let [a, b] = &histogram.data_points[..] else { panic!("{histogram:?}") };
        assert_eq!((a.count, a.sum, &a.bucket_counts[..]), (6, Some(3.5), &[1, 3, 2][..]));
        assert_eq!((&a.explicit_bounds[..], a.start_time_unix_nano), (&[1.0, 2.0][..], 1));
        assert_eq!((&b.bucket_counts[..], &b.explicit_bounds[..]), (&[0, 0][..], &[1.0][..]));
        let Some(Data::Sum(sum)) = &all[1].data else { panic!("{all:?}") };
        assert!(sum.is_monotonic);
        let [point] = &sum.data_points[..] else { panic!("{sum:?}") };
        let label = |key: &str, value: &str| attribute(key, Arc::<str>::from(value));
        assert_eq!(point.attributes, [label("f", "x\"\\\n}"), label("g", "")]);
        assert_eq!((&point.value, point.time_unix_nano), (&Some(Value::AsInt(7)), 2));
        let Some(Data::Gauge(gauge)) = &all[2].data else { panic!("{all:?}") };
        assert_eq!(gauge.data_points[0].value, Some(Value::AsDouble(2.5)));
    }

    #[test]
    fn every_series_of_the_registry_is_there() {
        let watch = Watch::new(1 << 30);
        watch.metrics.expect(&crate::serve::metrics::Name("f".into()));
        let text = watch.metrics.text();
        let sent: BTreeSet<String> =
            metrics(&text, TIMES).into_iter().map(|metric| metric.name).collect();
        let series = text.lines().filter(|line| !line.starts_with('#'));
        let suffixes = ["_total", "_bucket", "_sum", "_count", ""];
        for line in series {
            let name = line.split(['{', ' ']).next().unwrap();
            let mut bare = suffixes.iter().filter_map(|suffix| name.strip_suffix(suffix));
            assert!(bare.any(|bare| sent.contains(bare)), "{line}");
        }
        assert!(sent.contains("squeezy_build_info") && sent.len() > 20, "{sent:?}");
    }
}
