//! What `monitoring/` has for Prometheus and Grafana, with a real Prometheus that scrapes a daemon. No VM.

mod common;

use common::{Daemon, NO_VM, empty_build, free_address, until};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

fn monitoring(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../monitoring").join(file)
}

/// The command line of a program of Prometheus.
fn prometheus(program: &str) -> Command {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/prometheus/run.sh"));
    command.arg(program);
    command
}

#[track_caller]
fn succeeds(output: Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

/// A Prometheus that scrapes a daemon and has our alerts.
struct Prometheus {
    process: Child,
    url: String,
}

impl Prometheus {
    fn start(daemon: &Daemon, directory: &Path) -> Self {
        let target = daemon.url.trim_start_matches("http://");
        let configuration = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
             rule_files: [{:?}]\n\
             scrape_configs:\n  - job_name: squeezy\n    static_configs: [{{ targets: [{target:?}] }}]\n",
            monitoring("alerts.yml").canonicalize().unwrap()
        );
        let file = directory.join("prometheus.yml");
        fs::write(&file, configuration).unwrap();
        let address = free_address();
        let process = prometheus("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { process, url: format!("http://{address}") }
    }

    /// What its API answers, once it does.
    fn ask(&self, path: &str, query: Option<&str>) -> Option<Value> {
        let mut request = ureq::get(format!("{}/api/v1/{path}", self.url));
        if let Some(query) = query {
            request = request.query("query", query);
        }
        let text = request.call().ok()?.body_mut().read_to_string().ok()?;
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["status"], "success", "{path} {query:?}: {answer}");
        Some(answer["data"].clone())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn dashboard() -> Value {
    serde_json::from_str(&fs::read_to_string(monitoring("dashboard.json")).unwrap()).unwrap()
}

/// The expressions of a dashboard's panels as Grafana would send them.
fn expressions(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let expression = |target: &Value| {
        let text = target["expr"].as_str().unwrap();
        let text = text.replace("$__rate_interval", "4s").replace("$instance", ".+");
        text.replace("$function", ".+")
    };
    targets.map(expression).collect()
}

/// The names of our metrics in a text.
fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("squeezy_")).collect()
}

#[test]
fn every_alert_comes_and_goes_as_its_example_says() {
    succeeds(
        prometheus("promtool")
            .args(["check", "rules"])
            .arg(monitoring("alerts.yml"))
            .output()
            .unwrap(),
    );
    let tests = monitoring("alerts.test.yml");
    succeeds(prometheus("promtool").args(["test", "rules"]).arg(&tests).output().unwrap());
    let (alerts, tests) =
        (fs::read_to_string(monitoring("alerts.yml")).unwrap(), fs::read_to_string(tests).unwrap());
    for alert in alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let example = format!("alertname: {alert}\n        exp_alerts:");
        assert!(tests.contains(&example), "{alert} has no example");
    }
}

#[test]
fn prometheus_has_what_alerts_and_dashboard_ask_for() {
    let directory = tempfile::tempdir().unwrap();
    let build = directory.path().join("build");
    empty_build(&build);
    let image = build.join("images/f.erofs");
    let daemon = Daemon::start_in(directory.path(), &build, NO_VM, &[&image]);
    let prometheus = Prometheus::start(&daemon, directory.path());
    until("a scrape", || {
        let up = prometheus.ask("query", Some("up{job=\"squeezy\"} == 1"))?;
        up["result"].get(0).is_some().then_some(())
    });

    // A scrape that takes longer than the second until the next one has failed: for that moment, an alert is pending, and
    // there are no series.
    let groups = until("all rules to be evaluated", || {
        let groups = prometheus.ask("rules", None)?["groups"].clone();
        let rules = groups[0]["rules"].as_array()?;
        let is_settled = |rule: &Value| rule["health"] != "unknown" && rule["state"] != "pending";
        rules.iter().all(is_settled).then_some(groups)
    });
    let first = |query: &str| {
        until(query, || prometheus.ask("query", Some(query))?["result"].get(0).cloned())
    };
    for rule in groups[0]["rules"].as_array().unwrap() {
        assert_eq!((&rule["health"], &rule["state"]), (&"ok".into(), &"inactive".into()), "{rule}");
    }

    // Another test compares the manual with what there is; calls and instances have no series yet.
    let manual = include_str!("../../../docs/operations.md");
    let alerts = fs::read_to_string(monitoring("alerts.yml")).unwrap();
    let dashboard = dashboard();
    let expressions = expressions(&dashboard);
    for text in [alerts].iter().chain(&expressions) {
        for metric in metrics(text) {
            let name = format!("`{}`", metric.trim_end_matches("_bucket"));
            assert!(manual.contains(&name), "docs/operations.md has no {name}");
        }
    }
    for expression in &expressions {
        prometheus.ask("query", Some(expression)).expect("an answer");
    }
    first(&expressions[0]);
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let Some(label) = variable["definition"].as_str() else { continue };
        let (metric, label) = label
            .trim_start_matches("label_values(")
            .trim_end_matches(')')
            .split_once(", ")
            .unwrap();
        let series = first(metric);
        assert!(series["metric"][label].is_string(), "{label} of {metric}: {series}");
    }
}

#[test]
fn panels_of_the_dashboard_are_told_apart_and_do_not_overlap() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut taken = BTreeSet::new();
    for panel in panels {
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{panel}");
        for (x, y) in (at("x")..at("x") + at("w"))
            .flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)))
        {
            assert!(taken.insert((x, y)), "{} is on another one", panel["title"]);
        }
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{panel}");
        for target in panel["targets"].as_array().unwrap() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{panel}");
        }
    }
    let unique = |key: &str| {
        panels.iter().map(|panel| panel[key].to_string()).collect::<BTreeSet<_>>().len()
    };
    assert_eq!((unique("id"), unique("title")), (panels.len(), panels.len()));
}
