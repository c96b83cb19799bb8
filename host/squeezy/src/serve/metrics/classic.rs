//! Converts OpenMetrics to Prometheus's text format (version 0.0.4), and chooses between them.

/// Whether a request's `Accept` prefers OpenMetrics, as Prometheus's does. Without a preference the
/// client gets the older format.
pub fn wants_open_metrics(accept: &str) -> bool {
    let quality = |kind: &str| {
        let ranges = accept.split(',').map(|range| range.split(';').map(str::trim));
        let qualities = ranges.filter_map(|mut range| {
            if !range.next()?.eq_ignore_ascii_case(kind) {
                return None;
            }
            let quality = range.find_map(|parameter| parameter.strip_prefix("q="));
            quality.map_or(Some(1.0), |quality| quality.parse::<f64>().ok())
        });
        qualities.fold(0.0, f64::max)
    };
    let open = quality("application/openmetrics-text");
    open > 0.0 && open >= quality("text/plain")
}

/// The same metrics in the older format: a counter is named like its series, there is no type
/// `info`, and there are no units and no end marker.
pub fn classic(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    // The help text precedes the type, which determines the metric's name here.
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map(|(_, help)| help);
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                _ => ("", kind),
            };
            if let Some(help) = help.take() {
                text += &format!("# HELP {name}{suffix} {help}\n");
            }
            text += &format!("# TYPE {name}{suffix} {kind}\n");
        } else if !line.starts_with('#') {
            text += line;
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_a_format_gets_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,\
                          application/openmetrics-text;version=0.0.1;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, open) in [
            (prometheus, true),
            ("application/openmetrics-text", true),
            ("text/plain;version=0.0.4;q=0.5, application/openmetrics-text; q=0.4", false),
            ("application/openmetrics-text;q=0", false),
            ("text/plain", false),
            ("*/*", false),
            ("", false),
        ] {
            assert_eq!(wants_open_metrics(accept), open, "{accept}");
        }
    }

    #[test]
    fn types_are_of_the_series_that_there_are() {
        let open = "# HELP a_bytes Some.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\na_bytes_total{f=\"x\"} 1\n\
                    # HELP build V.\n# TYPE build info\nbuild_info{version=\"1\"} 1\n\
                    # HELP g G.\n# TYPE g gauge\ng 2.0\n# EOF\n";
        let right = "# HELP a_bytes_total Some.\n# TYPE a_bytes_total counter\na_bytes_total{f=\"x\"} 1\n\
                     # HELP build_info V.\n# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n\
                     # HELP g G.\n# TYPE g gauge\ng 2.0\n";
        assert_eq!(classic(open), right);
    }
}
