//! A function's definition, `function.toml`.

use crate::{ByteRate, TomlError, parse_toml};
use serde::Deserialize;
use squeezy_protocol::NetworkAccess;
use squeezy_vmm::network::{Destination, Network, TapName};
use std::{collections::BTreeMap, num::NonZeroU16, time::Duration};

/// Maximum length of a function's name.
const MAX_NAME: usize = 63;

/// Most networks that a list of what is reached may have; each is looked at for each connection.
pub const MAX_RULES: usize = 64;

/// Most connections of a VM, and most that it may open in a second.
const MAX_CONNECTIONS: u32 = 10_000;

/// Minimum memory of an instance, in bytes. A server in compiled code or a small interpreter needs 10 to 20
/// MiB with its runtime, of which half may be files. With less, an instance is killed before it listens, or
/// thrashes until its timeout.
pub const MIN_MEMORY_BYTES: u64 = 32 << 20;
/// Maximum memory of an instance, in bytes.
pub const MAX_MEMORY_BYTES: u64 = 1 << 40;

/// The most calls that an instance may serve at a time.
pub const MAX_CALLS_PER_INSTANCE: u16 = 100;

/// A function's definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name: 1 to 63 of `a-z`, `0-9` and `-`, not starting with `-`.
    pub name: String,
    /// What it does, in one line.
    pub description: String,
    /// The program of an instance and its arguments.
    pub command: Vec<String>,
    /// Its working directory in the image.
    pub working_directory: String,
    /// Its environment variables.
    pub environment: BTreeMap<String, String>,
    /// The TCP port of its server.
    pub port: u16,
    /// Which system calls its instances may make.
    pub seccomp: Seccomp,
    /// What network its instances have; `None` if it does not say, which means none.
    pub network: Option<NetworkAccess>,
    /// What they reach if they have one, all those of a VM together.
    pub reach: Network,
    /// The tap device that their network is instead, where nothing is limited. Only the operator sets it.
    pub tap: Option<TapName>,
    /// An instance's memory, in bytes.
    pub memory_bytes: u64,
    /// An instance's share of a processor, in thousandths.
    pub cpu_millis: u32,
    /// Maximum number of instances in one VM.
    pub concurrency: u16,
    /// How many calls an instance serves at a time.
    pub calls_per_instance: NonZeroU16,
    /// How many instances are kept up, whether or not it is called, while calls leave memory for them.
    pub minimum_instances: u16,
    /// How long an idle instance is kept.
    pub keep_alive: Duration,
    /// How long the server of a new instance may take until it has answered its first request.
    pub init_timeout: Duration,
    /// How long the server may take to answer a call.
    pub run_timeout: Duration,
    /// The `value` sent in requests when a load is replayed.
    pub request: toml::Table,
    /// What their answers must look like; if absent, any JSON object is accepted.
    pub check: Option<Check>,
}

/// Which system calls the instances of a function may make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seccomp {
    /// The ones that containers may make by default.
    #[default]
    Default,
    /// All that need no privilege.
    Unconfined,
}

/// What a correct answer looks like.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The field of the answer, a string, that is checked.
    pub field: String,
    /// Texts that must occur.
    #[serde(default)]
    pub contains: Vec<String>,
    /// Texts that must occur a given number of times.
    #[serde(default)]
    pub occurrences: Vec<Occurrences>,
}

/// A text that must occur a given number of times.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Occurrences {
    /// The text.
    pub text: String,
    /// How often.
    pub count: usize,
}

impl Check {
    /// What is wrong with the field's `text`, if anything.
    pub fn problem(&self, text: &str) -> Option<String> {
        if let Some(missing) = self.contains.iter().find(|part| !text.contains(part.as_str())) {
            return Some(format!("{:?} does not contain {missing:?}", self.field));
        }
        self.occurrences.iter().find_map(|Occurrences { text: part, count }| {
            let found = text.matches(part.as_str()).count();
            (found != *count)
                .then(|| format!("{:?} contains {part:?} {found} times, not {count}", self.field))
        })
    }
}

/// What is wrong with a definition, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FunctionError {
    /// It is not TOML, or does not have the right keys.
    #[error("{0}")]
    Syntax(#[from] TomlError),
    /// A value is not valid.
    #[error("{key}: {problem}")]
    Value {
        /// Its key.
        key: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

/// The file as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    #[serde(default)]
    description: String,
    command: Vec<String>,
    #[serde(default = "root")]
    working_directory: String,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    port: u16,
    #[serde(default)]
    seccomp: Seccomp,
    network: Option<NetworkAccess>,
    network_allow: Option<Vec<Destination>>,
    network_deny: Option<Vec<Destination>>,
    network_connections: Option<u32>,
    network_connections_per_second: Option<u32>,
    network_rate: Option<ByteRate>,
    memory_limit: String,
    vcpus: f64,
    concurrency: u16,
    #[serde(default = "one")]
    calls_per_instance: u16,
    #[serde(default)]
    minimum_instances: u16,
    keep_alive_seconds: f64,
    init_timeout_seconds: f64,
    run_timeout_seconds: f64,
    #[serde(default)]
    request: toml::Table,
    check: Option<Check>,
    /// How the image is built; read by `guest/image/build.sh`.
    #[serde(default, rename = "image")]
    _image: toml::Table,
}

fn one() -> u16 {
    1
}

fn root() -> String {
    "/".to_owned()
}

impl Function {
    /// Reads `function.toml`.
    pub fn parse(text: &str) -> Result<Self, FunctionError> {
        let file: File = parse_toml(text)?;
        check_name(&file.name)?;
        if !file.working_directory.starts_with('/') {
            return value("working_directory", "must be an absolute path");
        }
        if file.port == 0 {
            return value("port", "must be from 1 to 65535");
        }
        let mut reach = Network::default();
        let settings = ReachSettings {
            allow: file.network_allow,
            deny: file.network_deny,
            connections: file.network_connections,
            connections_per_second: file.network_connections_per_second,
            rate: file.network_rate,
        };
        settings.check()?.apply(&mut reach);
        Ok(Self {
            name: file.name,
            description: file.description,
            command: command(file.command)?,
            working_directory: file.working_directory,
            environment: file.environment,
            port: file.port,
            seccomp: file.seccomp,
            network: file.network,
            reach,
            tap: None,
            memory_bytes: memory_bytes(&file.memory_limit)?,
            cpu_millis: cpu_millis(file.vcpus)?,
            concurrency: concurrency(file.concurrency)?,
            calls_per_instance: calls_per_instance(file.calls_per_instance)?,
            minimum_instances: file.minimum_instances,
            keep_alive: keep_alive(file.keep_alive_seconds)?,
            init_timeout: seconds("init_timeout_seconds", file.init_timeout_seconds, 0.001)?,
            run_timeout: seconds("run_timeout_seconds", file.run_timeout_seconds, 0.001)?,
            request: file.request,
            check: file.check,
        })
    }
}

/// Checks the name of a function, which is also its image's.
pub fn check_name(name: &str) -> Result<(), FunctionError> {
    let valid = (1..=MAX_NAME).contains(&name.len())
        && !name.starts_with('-')
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if valid { Ok(()) } else { value("name", "must be 1 to 63 of a-z, 0-9 and '-'") }
}

pub(crate) fn command(command: Vec<String>) -> Result<Vec<String>, FunctionError> {
    match command.first() {
        Some(program) if program.starts_with('/') => Ok(command),
        _ => value("command", "must begin with the absolute path of a program"),
    }
}

/// What instances of a function reach, as far as a definition or a setting says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReachSettings {
    /// What they may reach, of private networks or of those that they are denied.
    pub allow: Option<Vec<Destination>>,
    /// What they may not reach.
    pub deny: Option<Vec<Destination>>,
    /// The most connections of a VM at a time.
    pub connections: Option<u32>,
    /// The most connections that a VM may open in a second.
    pub connections_per_second: Option<u32>,
    /// The most that a VM may send in a second.
    pub rate: Option<ByteRate>,
}

impl ReachSettings {
    pub(crate) fn check(self) -> Result<Self, FunctionError> {
        for (key, list) in [("network_allow", &self.allow), ("network_deny", &self.deny)] {
            if list.as_ref().is_some_and(|list| list.len() > MAX_RULES) {
                return value(key, &format!("must be at most {MAX_RULES} networks"));
            }
        }
        for (key, most) in [
            ("network_connections", self.connections),
            ("network_connections_per_second", self.connections_per_second),
        ] {
            if most.is_some_and(|most| !(1..=MAX_CONNECTIONS).contains(&most)) {
                return value(key, &format!("must be from 1 to {MAX_CONNECTIONS}"));
            }
        }
        Ok(self)
    }

    pub(crate) fn apply(&self, network: &mut Network) {
        let Self { allow, deny, connections, connections_per_second, rate } = self;
        set(&mut network.rules.allow, allow.as_ref());
        set(&mut network.rules.deny, deny.as_ref());
        set(&mut network.connections, connections.as_ref());
        set(&mut network.connections_per_second, connections_per_second.as_ref());
        set(&mut network.bytes_per_second, rate.map(ByteRate::bytes_per_second).as_ref());
    }

    /// The settings that there are, each as a key and its value.
    pub(crate) fn describe(&self) -> impl Iterator<Item = String> {
        let list = |key: &str, list: &Option<Vec<Destination>>| {
            let texts = |list: &Vec<_>| list.iter().map(Destination::to_string).collect::<Vec<_>>();
            list.as_ref().map(|list| format!("{key} {}", texts(list).join(" ")))
        };
        let number = |key: &str, most: Option<u32>| most.map(|most| format!("{key} {most}"));
        [
            list("network_allow", &self.allow),
            list("network_deny", &self.deny),
            number("network_connections", self.connections),
            number("network_connections_per_second", self.connections_per_second),
            self.rate.map(|rate| format!("network_rate {rate}")),
        ]
        .into_iter()
        .flatten()
    }
}

pub(crate) fn set<T: Clone>(value: &mut T, setting: Option<&T>) {
    if let Some(setting) = setting {
        value.clone_from(setting);
    }
}

pub(crate) fn memory_bytes(limit: &str) -> Result<u64, FunctionError> {
    parse_memory(limit).map_err(|problem| FunctionError::Value { key: "memory_limit", problem })
}

/// Parses an instance's memory, in bytes.
pub fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if bytes < MIN_MEMORY_BYTES {
        return Err(format!(
            "must be at least {}M, and {text} is too little for a server and its runtime: 128M is \
             enough for a small one",
            MIN_MEMORY_BYTES >> 20
        ));
    }
    if bytes > MAX_MEMORY_BYTES {
        return Err(format!("must be at most {}G", MAX_MEMORY_BYTES >> 30));
    }
    Ok(bytes)
}

pub(crate) fn cpu_millis(vcpus: f64) -> Result<u32, FunctionError> {
    match vcpus {
        0.01..=64.0 => Ok((vcpus * 1000.0).round() as u32),
        _ => value("vcpus", "must be from 0.01 to 64"),
    }
}

pub(crate) fn concurrency(concurrency: u16) -> Result<u16, FunctionError> {
    match concurrency {
        1..=255 => Ok(concurrency),
        _ => value("concurrency", "must be from 1 to 255"),
    }
}

pub(crate) fn calls_per_instance(calls: u16) -> Result<NonZeroU16, FunctionError> {
    match NonZeroU16::new(calls) {
        Some(calls) if calls.get() <= MAX_CALLS_PER_INSTANCE => Ok(calls),
        _ => value("calls_per_instance", &format!("must be from 1 to {MAX_CALLS_PER_INSTANCE}")),
    }
}

pub(crate) fn keep_alive(keep_alive_seconds: f64) -> Result<Duration, FunctionError> {
    seconds("keep_alive_seconds", keep_alive_seconds, 0.0)
}

fn seconds(key: &'static str, seconds: f64, min: f64) -> Result<Duration, FunctionError> {
    let max = 86_400.0;
    if (min..=max).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        value(key, &format!("must be from {min} to {max} s"))
    }
}

pub(crate) fn value<T>(key: &'static str, problem: &str) -> Result<T, FunctionError> {
    Err(FunctionError::Value { key, problem: problem.to_owned() })
}

/// Parses a size in bytes, with K, M, G or T for powers of 1,024.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let problem = || format!("{text:?} is not a size such as 768M or 2G");
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        _ => return Err(problem()),
    };
    let number: u64 = digits.parse().map_err(|_| problem())?;
    number.checked_mul(1 << shift).ok_or_else(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTML: &str = include_str!("../../../functions/html/function.toml");

    #[test]
    fn every_function_that_comes_along_is_understood() {
        let functions = concat!(env!("CARGO_MANIFEST_DIR"), "/../../functions");
        let mut names = Vec::new();
        let folders = ["", "java", "javascript"];
        let entries =
            folders.iter().flat_map(|f| std::fs::read_dir(format!("{functions}/{f}")).unwrap());
        for entry in entries {
            let path = entry.unwrap().path().join("function.toml");
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let function = Function::parse(&text).unwrap_or_else(|e| panic!("{path:?}: {e}"));
            assert_eq!(function.memory_bytes % (1 << 20), 0, "{path:?}");
            assert!(function.check.is_some_and(|check| !check.field.is_empty()), "{path:?}");
            assert!(!function.request.is_empty(), "{path:?}");
            names.push(function.name);
        }
        names.retain(|name| !name.starts_with("java-") && !name.starts_with("javascript-"));
        names.sort();
        assert_eq!(names, ["bert", "bfs", "cnn", "html"]);
    }

    #[test]
    fn a_bad_definition_is_refused_in_one_line_that_says_where() {
        let error = |from: &str, to: &str| {
            assert!(HTML.contains(from), "{from}");
            let error = Function::parse(&HTML.replacen(from, to, 1)).unwrap_err().to_string();
            assert_eq!(error.lines().count(), 1, "{error}");
            error
        };
        let line = 1 + HTML[..HTML.find("\nport = ").unwrap() + 1].matches('\n').count();
        assert!(error("port = ", "prot = ").starts_with(&format!("line {line}: unknown field")));
        assert!(error("port = ", "port = [").starts_with("line "));
        assert!(error("name = \"html\"", "name = \"Html\"").starts_with("name: "));
        assert!(error("command = [\"/usr", "command = [\"usr").starts_with("command: "));
        assert!(error("memory_limit = \"", "memory_limit = \"x").starts_with("memory_limit: "));
        let tiny = error("memory_limit = \"768M", "memory_limit = \"1M");
        assert!(tiny.starts_with("memory_limit: must be at least 32M, and 1M is too"), "{tiny}");
        let unknown = error("port = 8080", "port = 8080\nseccomp = \"off\"");
        assert!(unknown.contains("expected `default` or `unconfined`"), "{unknown}");
        assert!(error("vcpus = ", "vcpus = -").starts_with("vcpus: "));
        assert!(error("run_timeout_seconds = ", "run_timeout_seconds = -").starts_with("run_"));
        assert_eq!(Function::parse("").unwrap_err().to_string(), "line 1: missing field `name`");
    }

    #[test]
    fn every_key_is_in_the_manual() {
        let manual = include_str!("../../../docs/functions.md");
        let table = manual.split("### function.toml").nth(1).unwrap();
        let table = table.split("### Its image").next().unwrap();
        let cells: Vec<_> = table.lines().filter_map(|line| line.split('|').nth(1)).collect();
        let error = Function::parse("x = 1").unwrap_err().to_string();
        let keys: Vec<_> = error.split('`').skip(3).step_by(2).collect();
        assert!(keys.contains(&"name") && keys.contains(&"image"), "{error}");
        for key in keys {
            let (value, section) = (format!("`{key}`"), format!("`[{key}]`"));
            let described = |cell: &&str| cell.contains(&value) || cell.contains(&section);
            assert!(cells.iter().any(described), "docs/functions.md does not describe {key}");
        }
    }

    #[test]
    fn system_calls_are_filtered_unless_the_definition_says_otherwise() {
        assert_eq!(Function::parse(HTML).unwrap().seccomp, Seccomp::Default);
        let unconfined = HTML.replacen("port = ", "seccomp = \"unconfined\"\nport = ", 1);
        assert_eq!(Function::parse(&unconfined).unwrap().seccomp, Seccomp::Unconfined);
    }

    #[test]
    fn a_network_is_what_the_definition_says() {
        let function = Function::parse(HTML).unwrap();
        assert_eq!((function.network, function.reach), (None, Network::default()));
        let with = |lines: &str| {
            Function::parse(&HTML.replacen("port = ", &format!("{lines}\nport = "), 1))
        };
        let function = with(
            "network = \"outbound\"\nnetwork_allow = [\"10.0.0.0/8\", \"192.168.0.7:443\"]\n\
             network_deny = [\"0.0.0.0/0\"]\nnetwork_connections = 7\nnetwork_rate = \"2M\"",
        );
        let function = function.unwrap();
        assert_eq!(function.network, Some(NetworkAccess::Outbound));
        let Network { rules, connections, bytes_per_second, .. } = function.reach;
        assert_eq!(bytes_per_second, 2 << 20);
        assert_eq!((rules.allow.len(), rules.deny.len(), connections), (2, 1, 7));
        for (lines, expected) in [
            ("network = \"inbound\"", "expected `none` or `outbound`"),
            ("network_allow = [\"example.com\"]", "\"example.com\" is not a network such as"),
            ("network_connections = 0", "network_connections: must be from 1 to 10000"),
            ("network_rate = \"1K\"", "\"1K\" bytes per second: must be from 256K to 1T"),
        ] {
            let error = with(lines).unwrap_err().to_string();
            assert!(error.contains(expected) && error.lines().count() == 1, "{error}");
        }
    }

    #[test]
    fn a_function_need_not_say_what_right_answers_are() {
        let start = HTML.find("[check]").unwrap();
        assert_eq!(Function::parse(&HTML[..start]).unwrap().check, None);
    }

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!(parse_size("768M"), Ok(768 << 20));
        assert_eq!(parse_size("12"), Ok(12));
        assert_eq!(parse_size("2GiB"), Ok(2 << 30));
        for bad in ["", "M", "1.5G", "-1", "1X", "99999999999T", "1 G", "é"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_instance_has_memory_for_a_server() {
        assert_eq!(parse_memory("32M"), Ok(MIN_MEMORY_BYTES));
        assert_eq!(parse_memory("1024G"), Ok(MAX_MEMORY_BYTES));
        for (bad, part) in [("32767K", "least 32M"), ("1025G", "most 1024G"), ("x", "not a size")] {
            let error = parse_memory(bad).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn wrong_answers_are_found() {
        let check = Check {
            field: "html".into(),
            contains: vec!["<title>".into()],
            occurrences: vec![Occurrences { text: "<li>".into(), count: 2 }],
        };
        assert_eq!(check.problem("<title><li><li>"), None);
        assert_eq!(check.problem("<li><li>").unwrap(), "\"html\" does not contain \"<title>\"");
        assert_eq!(
            check.problem("<title><li>").unwrap(),
            "\"html\" contains \"<li>\" 1 times, not 2"
        );
    }
}
