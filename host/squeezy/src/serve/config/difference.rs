//! In which keys two configurations differ.

use super::{Collector, Config};
use serde::{Deserialize, Serialize};
use std::{path::Path, time::Duration};

/// A key whose value is not that which the daemon runs with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The key.
    pub key: String,
    /// The value that the daemon has.
    pub from: String,
    /// The value in the configuration.
    pub to: String,
}

/// A key of the configuration.
struct Key {
    name: &'static str,
    /// Whether it may change while the daemon runs, from one configuration to another.
    may_change: fn(&Config, &Config) -> bool,
    value: fn(&Config) -> String,
}

/// All keys, in the order of the manual. What may change is what [`Config::changed`] takes over.
const KEYS: &[Key] = &[
    fixed("listen", |config| config.listen.to_string()),
    of_tls("tls_certificate", |config| tls(config, |files| &files.certificate)),
    of_tls("tls_key", |config| tls(config, |files| &files.key)),
    fixed("state_directory", |config| config.state_directory.display().to_string()),
    fixed("memory", |config| size(config.memory_bytes)),
    fixed("policy", |config| config.policy.name().to_owned()),
    fixed("accelerator", |config| config.accelerator.to_string()),
    fixed("memory_backend", |config| config.memory_backend.to_string()),
    fixed("shared_memory", |config| size(config.shared_memory_bytes)),
    fixed("network", |config| config.network.to_string()),
    changing("vm_idle_seconds", |config| seconds(config.vm_idle)),
    changing("freeze_after_seconds", |config| seconds(config.freeze_after)),
    changing("queue", |config| config.queue.to_string()),
    changing("actions_disk", |config| size(config.actions_disk_bytes)),
    changing("registries", |config| list(&config.registries)),
    changing("registry_auth", |config| {
        config.registry_auth.as_ref().map_or("none".to_owned(), |path| path.display().to_string())
    }),
    changing("activations", |config| config.activations.to_string()),
    changing("activations_disk", |config| size(config.activations_disk_bytes)),
    changing("activations_keep_seconds", |config| seconds(config.activations_keep)),
    fixed("log_file", |config| {
        config.log_file.as_ref().map_or("none".to_owned(), |path| path.display().to_string())
    }),
    fixed("log_format", |config| config.log_format.to_string()),
    fixed("otlp_endpoint", |config| collector(config, |to| to.endpoint.to_string())),
    fixed("otlp_headers_file", |config| {
        collector(config, |to| match &to.headers_file {
            Some(path) => path.display().to_string(),
            None => "none".to_owned(),
        })
    }),
    fixed("otlp_sampling", |config| collector(config, |to| to.sampling.to_string())),
    fixed("otlp_metrics_seconds", |config| {
        collector(config, |to| seconds(to.metrics_interval.unwrap_or_default()))
    }),
    changing("functions", |config| list(&config.functions)),
];

const fn fixed(name: &'static str, value: fn(&Config) -> String) -> Key {
    Key { name, may_change: |_, _| false, value }
}

const fn changing(name: &'static str, value: fn(&Config) -> String) -> Key {
    Key { name, may_change: |_, _| true, value }
}

const fn of_tls(name: &'static str, value: fn(&Config) -> String) -> Key {
    Key { name, may_change: tls_stays, value }
}

/// Whether there is TLS at all is decided when the daemon starts.
fn tls_stays(running: &Config, new: &Config) -> bool {
    running.tls.is_some() == new.tls.is_some()
}

/// Compares a configuration with the one that the daemon has. First come the keys that may change while it runs,
/// then those that need a restart.
pub fn differences(running: &Config, new: &Config) -> (Vec<Difference>, Vec<Difference>) {
    let (mut now, mut later) = (Vec::new(), Vec::new());
    for Key { name, may_change, value } in KEYS {
        let (from, to) = (value(running), value(new));
        if from != to {
            let all = if may_change(running, new) { &mut now } else { &mut later };
            all.push(Difference { key: (*name).to_owned(), from, to });
        }
    }
    (now, later)
}

impl Config {
    /// This configuration with what may change while the daemon runs as it is in a new one.
    pub fn changed(&self, new: &Self) -> Self {
        Self {
            tls: if tls_stays(self, new) { new.tls.clone() } else { self.tls.clone() },
            vm_idle: new.vm_idle,
            freeze_after: new.freeze_after,
            queue: new.queue,
            actions_disk_bytes: new.actions_disk_bytes,
            registries: new.registries.clone(),
            registry_auth: new.registry_auth.clone(),
            activations: new.activations,
            activations_disk_bytes: new.activations_disk_bytes,
            activations_keep: new.activations_keep,
            functions: new.functions.clone(),
            ..self.clone()
        }
    }
}

fn tls(config: &Config, file: impl Fn(&super::TlsFiles) -> &Path) -> String {
    config.tls.as_ref().map_or("none".to_owned(), |files| file(files).display().to_string())
}

fn collector(config: &Config, value: impl Fn(&Collector) -> String) -> String {
    config.collector.as_ref().map_or("none".to_owned(), value)
}

/// A size exactly, as one would write it.
fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes > 0 && bytes % (1 << 30) == 0 => format!("{}G", bytes >> 30),
        bytes if bytes > 0 && bytes % (1 << 20) == 0 => format!("{}M", bytes >> 20),
        bytes => bytes.to_string(),
    }
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// Entries with all that is said of them.
fn list(entries: &[impl ToString]) -> String {
    let shown: Vec<_> = entries.iter().map(ToString::to_string).collect();
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::config::HELP;

    fn parsed(text: &str) -> Config {
        Config::parse(text, Path::new("/etc/squeezy")).unwrap()
    }

    #[test]
    fn every_key_is_compared() {
        let names: Vec<_> = KEYS.iter().map(|key| key.name).collect();
        let lines = HELP.lines().filter_map(|line| line.split_once(" = "));
        assert_eq!(names, lines.map(|(key, _)| key).collect::<Vec<_>>());
        let other = parsed(
            r#"
            listen = "127.0.0.1:1"
            tls_certificate = "c"
            tls_key = "k"
            state_directory = "s"
            memory = "5G"
            policy = "static"
            accelerator = "tcg"
            memory_backend = "ram"
            shared_memory = "64M"
            network = "outbound"
            vm_idle_seconds = 1.5
            freeze_after_seconds = 2.0
            queue = 3
            actions_disk = "1G"
            registries = ["r.example"]
            registry_auth = "a"
            activations = 4
            activations_disk = "64M"
            activations_keep_seconds = 5.0
            log_file = "l"
            log_format = "json"
            otlp_endpoint = "http://c:4318"
            otlp_headers_file = "h"
            otlp_sampling = 0.1
            otlp_metrics_seconds = 10.0
            functions = ["f"]
            "#,
        );
        let (now, later) = differences(&parsed(""), &other);
        let keys = |all: &[Difference]| all.iter().map(|one| one.key.clone()).collect::<Vec<_>>();
        assert_eq!(now.len() + later.len(), names.len(), "{now:?} {later:?}");
        assert!(
            ["tls_key", "memory"].iter().all(|key| keys(&later).iter().any(|k| k == key)),
            "{later:?}"
        );
        assert_eq!(
            (&*now[0].key, &*now[0].from, &*now[0].to),
            ("vm_idle_seconds", "600 s", "1.5 s")
        );
        assert_eq!(differences(&other, &other), (Vec::new(), Vec::new()));
        // What is said to have changed has, and the rest goes on to need a restart.
        assert_eq!(differences(&parsed("").changed(&other), &other), (Vec::new(), later));
    }

    #[test]
    fn files_of_a_certificate_may_change_but_not_whether_there_is_one() {
        let with = |name: &str| parsed(&format!("tls_certificate = \"{name}\"\ntls_key = \"k\""));
        let (now, later) = differences(&with("a"), &with("b"));
        assert_eq!((now.len(), later.len()), (1, 0));
        assert_eq!(with("a").changed(&with("b")), with("b"));
        let (now, later) = differences(&with("a"), &parsed(""));
        assert_eq!((now.len(), later.len()), (0, 2));
    }

    #[test]
    fn functions_differ_also_by_their_settings() {
        let with = |more: &str| parsed(&format!("[[functions]]\npath = \"/f\"\n{more}"));
        let (now, _) = differences(&with("concurrency = 2"), &with("concurrency = 3"));
        assert_eq!((&*now[0].from, &*now[0].to), ("/f (concurrency 2)", "/f (concurrency 3)"));
        let (now, _) = differences(&with(""), &with("vm = \"v\"\nmemory_limit = \"256M\""));
        assert_eq!((&*now[0].from, &*now[0].to), ("/f", "/f (vm v, memory_limit 256 MiB)"));
        let (now, _) = differences(
            &with(""),
            &with("keep_alive_seconds = 2.0\nvcpus = 0.5\ncommand = [\"/a\"]"),
        );
        assert_eq!(now[0].to, "/f (command /a, vcpus 0.5, keep_alive_seconds 2)");
    }
}
