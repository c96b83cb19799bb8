//! The configuration file of the daemon.

mod collector;
mod difference;
mod function;
mod listen;
mod registries;

use super::{bodies::Bodies, log::Format, registry::Reference};
use serde::Deserialize;
use squeezy_node::{PolicyName, TomlError, function::parse_size, parse_toml};
use squeezy_protocol::NetworkAccess;
use squeezy_store::Limits;
use squeezy_vmm::{AcceleratorChoice, MemoryBackendChoice};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::tls::TlsFiles;
pub use collector::{Collector, Endpoint};
pub use difference::{Difference, differences};
pub use function::FunctionEntry;
pub use listen::Listen;
pub use registries::RegistryEntry;

/// Every key with its default.
pub const HELP: &str = include_str!("help.toml");

/// The daemon's configuration. docs/operations.md describes every key.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where the API listens.
    pub listen: Listen,
    /// The certificate of the API; `None` for plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Where the key and the actions are stored.
    pub state_directory: PathBuf,
    /// Memory budget of all VMs and instances, in bytes.
    pub memory_bytes: u64,
    /// How instances get their memory and give it back.
    pub policy: PolicyName,
    /// Which accelerator runs the guests' code.
    pub accelerator: AcceleratorChoice,
    /// What backs the guests' memory on the host.
    pub memory_backend: MemoryBackendChoice,
    /// Shared memory of each VM, in bytes.
    pub shared_memory_bytes: u64,
    /// What network the instances of functions have that do not say.
    pub network: NetworkAccess,
    /// How long a VM without an instance is kept.
    pub vm_idle: Duration,
    /// How long an instance runs without a call before it is frozen.
    pub freeze_after: Duration,
    /// How many calls of one function may wait for an instance.
    pub queue: usize,
    /// What the code and the images of actions may take on the disk, in bytes.
    pub actions_disk_bytes: u64,
    /// The registries from which images may be pulled.
    pub registries: Vec<RegistryEntry>,
    /// The file with credentials for registries; `None` for the one in the state directory, if it is there.
    pub registry_auth: Option<PathBuf>,
    /// How many activations are kept.
    pub activations: usize,
    /// What they may take on the disk, in bytes.
    pub activations_disk_bytes: u64,
    /// How long they are kept.
    pub activations_keep: Duration,
    /// Where the log goes; `None` for standard output.
    pub log_file: Option<PathBuf>,
    /// The form of its lines.
    pub log_format: Format,
    /// Where traces and metrics are sent; `None` for nowhere.
    pub collector: Option<Collector>,
    /// Functions that exist from the start.
    pub functions: Vec<FunctionEntry>,
}

/// A value with its position, for error messages.
type Spanned<T> = toml::Spanned<T>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    listen: Spanned<String>,
    tls_certificate: Spanned<PathBuf>,
    tls_key: Spanned<PathBuf>,
    state_directory: PathBuf,
    memory: Spanned<String>,
    policy: Spanned<String>,
    accelerator: Spanned<String>,
    memory_backend: Spanned<String>,
    shared_memory: Spanned<String>,
    network: Spanned<String>,
    vm_idle_seconds: Spanned<f64>,
    freeze_after_seconds: Spanned<f64>,
    queue: Spanned<usize>,
    actions_disk: Spanned<String>,
    registries: Vec<RegistryEntry>,
    registry_auth: PathBuf,
    activations: Spanned<usize>,
    activations_disk: Spanned<String>,
    activations_keep_seconds: Spanned<f64>,
    log_file: PathBuf,
    log_format: Spanned<String>,
    otlp_endpoint: Spanned<String>,
    otlp_headers_file: PathBuf,
    otlp_sampling: Spanned<f64>,
    otlp_metrics_seconds: Spanned<f64>,
    functions: Vec<FunctionEntry>,
}

impl Default for File {
    fn default() -> Self {
        let text = |text: &str| Spanned::new(0..0, text.to_owned());
        Self {
            // OpenWhisk's port, on the loopback interface only.
            listen: text("127.0.0.1:3233"),
            tls_certificate: Spanned::new(0..0, PathBuf::new()),
            tls_key: Spanned::new(0..0, PathBuf::new()),
            state_directory: "/var/lib/squeezy".into(),
            memory: text("4G"),
            policy: text("overcommit"),
            accelerator: text("auto"),
            memory_backend: text("auto"),
            shared_memory: text("128M"),
            network: text("none"),
            vm_idle_seconds: Spanned::new(0..0, 600.0),
            freeze_after_seconds: Spanned::new(0..0, 10.0),
            queue: Spanned::new(0..0, 256),
            actions_disk: text("20G"),
            registries: Vec::new(),
            registry_auth: PathBuf::new(),
            activations: Spanned::new(0..0, 10_000),
            activations_disk: text("1G"),
            // As in OpenWhisk, a week.
            activations_keep_seconds: Spanned::new(0..0, 604_800.0),
            log_file: PathBuf::new(),
            log_format: text("text"),
            otlp_endpoint: text(""),
            otlp_headers_file: PathBuf::new(),
            otlp_sampling: Spanned::new(0..0, 1.0),
            otlp_metrics_seconds: Spanned::new(0..0, 60.0),
            functions: Vec::new(),
        }
    }
}

/// The smallest bound of the database in bytes: a few of the largest results fit.
const LEAST_DISK: u64 = 32 << 20;

impl Config {
    /// The bounds of the activations.
    pub fn store_limits(&self, bodies: &Bodies) -> Limits {
        Limits {
            most: self.activations,
            disk_bytes: self.activations_disk_bytes,
            keep: self.activations_keep,
            memory_bytes: bodies.kept_bytes,
        }
    }

    /// How the registry of an image is reached; an error says that it may not be asked.
    pub fn registry(&self, reference: &Reference) -> Result<RegistryEntry, String> {
        let host = &reference.registry;
        match self.registries.iter().find(|entry| entry.host == *host) {
            Some(entry) => Ok(entry.clone()),
            None if self.registries.is_empty() => Err(format!(
                "images of {host} may not be pulled: this daemon's configuration lists no registry; \
                 registries = [{host:?}] allows this one"
            )),
            None => Err(format!(
                "images of {host} may not be pulled: the registries of this daemon are {}",
                self.registries.iter().map(|entry| &*entry.host).collect::<Vec<_>>().join(", ")
            )),
        }
    }

    /// Parses a configuration. Relative paths in it are relative to `directory`.
    pub fn parse(text: &str, directory: &Path) -> Result<Self, TomlError> {
        let file: File = parse_toml(text)?;
        let wrong = |at: std::ops::Range<usize>, key: &str, problem: String| {
            TomlError::at(text, at.start, format!("{key}: {problem}"))
        };
        let size = |key, value: &Spanned<String>| {
            let bytes = parse_size(value.as_ref());
            bytes.map_err(|problem| wrong(value.span(), key, problem))
        };
        let within = |key, value: &Spanned<usize>, most: usize| match *value.as_ref() {
            count if (1..=most).contains(&count) => Ok(count),
            _ => Err(wrong(value.span(), key, format!("must be from 1 to {most}"))),
        };
        fn read<T: std::str::FromStr<Err: std::fmt::Display>>(
            value: &Spanned<String>,
        ) -> Result<T, String> {
            value.as_ref().parse().map_err(|error: T::Err| error.to_string())
        }
        let named = |key, value: &Spanned<String>, problem: String| {
            wrong(value.span(), key, format!("{:?}: {problem}", value.as_ref()))
        };
        let policy: PolicyName =
            read(&file.policy).map_err(|e| named("policy", &file.policy, e))?;
        let memory_backend = read(&file.memory_backend)
            .map_err(|e| named("memory_backend", &file.memory_backend, e))?;
        if let Some(problem) = policy.problem_with(memory_backend) {
            return Err(named("memory_backend", &file.memory_backend, problem));
        }
        let shared_memory_bytes = size("shared_memory", &file.shared_memory)?;
        if shared_memory_bytes > 1 << 40 {
            let problem = "must be at most 1024G".to_owned();
            return Err(wrong(file.shared_memory.span(), "shared_memory", problem));
        }
        let activations_disk_bytes = size("activations_disk", &file.activations_disk)?;
        if !(LEAST_DISK..=1 << 40).contains(&activations_disk_bytes) {
            let problem = format!("must be from {}M to 1024G", LEAST_DISK >> 20);
            return Err(wrong(file.activations_disk.span(), "activations_disk", problem));
        }
        let seconds = |key, value: &Spanned<f64>| match *value.as_ref() {
            seconds if (0.0..=1e7).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
            _ => Err(wrong(value.span(), key, "must be from 0 to 10000000 s".to_owned())),
        };
        let (certificate, key) = (file.tls_certificate, file.tls_key);
        let is_given = |path: &Spanned<PathBuf>| !path.as_ref().as_os_str().is_empty();
        let tls = match (is_given(&certificate), is_given(&key)) {
            (false, false) => None,
            (true, true) => Some(TlsFiles {
                certificate: directory.join(certificate.as_ref()),
                key: directory.join(key.as_ref()),
            }),
            (true, false) => {
                let problem = "needs a tls_key, too".to_owned();
                return Err(wrong(certificate.span(), "tls_certificate", problem));
            }
            (false, true) => {
                let problem = "needs a tls_certificate, too".to_owned();
                return Err(wrong(key.span(), "tls_key", problem));
            }
        };
        let sampling = match *file.otlp_sampling.as_ref() {
            part if (0.0..=1.0).contains(&part) => part,
            _ => {
                let problem = "must be from 0 to 1".to_owned();
                return Err(wrong(file.otlp_sampling.span(), "otlp_sampling", problem));
            }
        };
        let metrics_interval = match seconds("otlp_metrics_seconds", &file.otlp_metrics_seconds)? {
            Duration::ZERO => None,
            time if time >= Duration::from_secs(1) => Some(time),
            _ => {
                let (at, problem) = (file.otlp_metrics_seconds.span(), "must be 0 or at least 1 s");
                return Err(wrong(at, "otlp_metrics_seconds", problem.to_owned()));
            }
        };
        let collector = match file.otlp_endpoint.as_ref().as_str() {
            "" => None,
            _ => Some(Collector {
                endpoint: read(&file.otlp_endpoint).map_err(|problem| {
                    wrong(file.otlp_endpoint.span(), "otlp_endpoint", problem)
                })?,
                headers_file: (!file.otlp_headers_file.as_os_str().is_empty())
                    .then(|| directory.join(&file.otlp_headers_file)),
                sampling,
                metrics_interval,
            }),
        };
        Ok(Self {
            tls,
            collector,
            listen: read(&file.listen).map_err(|e| named("listen", &file.listen, e))?,
            state_directory: directory.join(file.state_directory),
            memory_bytes: size("memory", &file.memory)?,
            policy,
            accelerator: read(&file.accelerator)
                .map_err(|e| named("accelerator", &file.accelerator, e))?,
            memory_backend,
            shared_memory_bytes,
            network: read(&file.network).map_err(|e| named("network", &file.network, e))?,
            vm_idle: seconds("vm_idle_seconds", &file.vm_idle_seconds)?,
            freeze_after: seconds("freeze_after_seconds", &file.freeze_after_seconds)?,
            queue: within("queue", &file.queue, 1_000_000)?,
            actions_disk_bytes: size("actions_disk", &file.actions_disk)?,
            registries: file
                .registries
                .into_iter()
                .map(|entry| RegistryEntry {
                    ca_file: entry.ca_file.map(|file| directory.join(file)),
                    ..entry
                })
                .collect(),
            registry_auth: (!file.registry_auth.as_os_str().is_empty())
                .then(|| directory.join(&file.registry_auth)),
            activations: within("activations", &file.activations, 1_000_000)?,
            activations_disk_bytes,
            activations_keep: seconds("activations_keep_seconds", &file.activations_keep_seconds)?,
            log_file: (!file.log_file.as_os_str().is_empty())
                .then(|| directory.join(&file.log_file)),
            log_format: read(&file.log_format)
                .map_err(|e| named("log_format", &file.log_format, e))?,
            functions: file
                .functions
                .into_iter()
                .map(|entry| FunctionEntry { path: directory.join(&entry.path), ..entry })
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_a_default() {
        let config = Config::parse("", Path::new("/etc/squeezy")).unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:3233");
        assert_eq!(config.state_directory, Path::new("/var/lib/squeezy"));
        assert_eq!(config.policy.name(), "overcommit");
        assert_eq!(Config::parse(HELP, Path::new("/etc/squeezy")).unwrap(), config);
        let packaged = include_str!("../../../../../packaging/squeezy.toml");
        assert_eq!(Config::parse(packaged, Path::new("/etc/squeezy")).unwrap(), config);
    }

    #[test]
    fn every_key_is_in_the_manual() {
        let manual = include_str!("../../../../../docs/operations.md");
        let error = Config::parse("x = 1", Path::new("/")).unwrap_err().to_string();
        let keys: Vec<_> = error.split('`').skip(3).step_by(2).collect();
        assert!(keys.contains(&"listen") && keys.contains(&"functions"), "{error}");
        for key in keys {
            assert!(manual.contains(&format!("\n| `{key}` | `")), "{key}");
            assert!(HELP.contains(&format!("\n{key} = ")), "{key}");
        }
    }

    #[test]
    fn each_policy_has_every_memory_backend_that_it_can_work_with() {
        for policy in PolicyName::ALL {
            for choice in ["auto", "memfd", "ram"] {
                let text = format!("policy = \"{policy}\"\nmemory_backend = \"{choice}\"");
                let is_possible = policy.name() != "hyperalloc" || choice != "ram";
                let config = Config::parse(&text, Path::new("/"));
                assert_eq!(config.is_ok(), is_possible, "{text}: {config:?}");
            }
        }
        assert!(Config::parse("policy = \"hyperalloc\"", Path::new("/")).is_ok());
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let text = "state_directory = \"state\"\nfunctions = [\"html\", \"/opt/cnn\"]";
        let config = Config::parse(text, Path::new("/etc/squeezy")).unwrap();
        assert_eq!(config.state_directory, Path::new("/etc/squeezy/state"));
        let paths: Vec<_> = config.functions.iter().map(|entry| entry.path.as_path()).collect();
        assert_eq!(paths, [Path::new("/etc/squeezy/html"), Path::new("/opt/cnn")]);
    }

    #[test]
    fn a_function_may_be_told_more_than_its_path() {
        let text = r#"
            functions = ["bfs"]
        "#;
        let config = Config::parse(text, Path::new("/")).unwrap();
        assert_eq!(config.functions, [PathBuf::from("/bfs").into()]);
        let text = r#"
            [[functions]]
            path = "cnn"
            vm = "models"
            memory_limit = "1G"
            concurrency = 4
            calls_per_instance = 3
            minimum_instances = 2
            [[functions]]
            path = "bert"
            vm = "models"
        "#;
        let config = Config::parse(text, Path::new("/")).unwrap();
        let vms: Vec<_> = config.functions.iter().map(|entry| entry.vm.as_deref()).collect();
        assert_eq!(vms, [Some("models"), Some("models")]);
        let html = include_str!("../../../../../functions/html/function.toml");
        let mut function = squeezy_node::function::Function::parse(html).unwrap();
        config.functions[0].settings.apply(&mut function);
        assert_eq!((function.memory_bytes, function.concurrency), (1 << 30, 4));
        assert_eq!((function.calls_per_instance.get(), function.minimum_instances), (3, 2));
    }

    #[test]
    fn which_registries_may_be_asked_and_how() {
        let asked = |text: &str, image: &str| {
            let config = Config::parse(text, Path::new("/etc/squeezy")).unwrap();
            config.registry(&Reference::parse(image).unwrap())
        };
        for image in ["r.example/a", "127.0.0.1:5000/a", "localhost:5000/a", "alpine:3"] {
            let error = asked("", image).unwrap_err();
            assert!(error.contains("lists no registry; registries = [\""), "{error}");
        }
        let two = r#"
            registries = ["r.example", { host = "127.0.0.1:5000", ca_file = "ca.pem" }]
        "#;
        let local = asked(two, "127.0.0.1:5000/a").unwrap();
        assert_eq!((local.plain_http, local.ca_file), (false, Some("/etc/squeezy/ca.pem".into())));
        assert!(asked(two, "r.example/a").is_ok());
        let error = asked(two, "alpine:3").unwrap_err();
        assert!(error.contains("docker.io may not") && error.contains("r.example, 127"), "{error}");
    }

    #[test]
    fn every_key_of_a_registry_is_in_the_manual() {
        let manual = include_str!("../../../../../docs/operations.md");
        for key in ["host", "plain_http", "ca_file", "private_hosts"] {
            assert!(manual.contains(&format!("\n| `{key}` | ")), "{key}");
        }
    }

    #[test]
    fn every_key_of_a_function_is_in_the_manual() {
        let manual = include_str!("../../../../../docs/operations.md");
        let error = Config::parse("[[functions]]\nx = 1", Path::new("/")).unwrap_err().to_string();
        let keys: Vec<_> = error.split('`').skip(3).step_by(2).collect();
        assert!(keys.contains(&"vm"), "{error}");
        let of_functions = manual.split("**Functions that share").next().unwrap();
        let of_functions = of_functions.rsplit("key of `functions`").next().unwrap();
        for key in keys {
            assert!(of_functions.contains(&format!("`{key}`")), "{key}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, part) in [
            ("\nmemroy = \"4G\"", "line 2: unknown field `memroy`"),
            ("\n\nmemory = \"much\"", "line 3: memory: \"much\" is not a size"),
            ("memory = 4", "line 1: invalid type"),
            ("policy = \"floor\"", "line 1: policy: \"floor\": must be one of squeezy, "),
            ("policy = \"magic\"", "line 1: policy: \"magic\""),
            (
                "memory_backend = \"ram\"\npolicy = \"hyperalloc\"",
                "line 1: memory_backend: \"ram\": with the policy hyperalloc the host works on",
            ),
            ("listen = \"localhost\"", "line 1: listen: \"localhost\": must be "),
            ("vm_idle_seconds = -1.0", "line 1: vm_idle_seconds: must be"),
            ("\ntls_key = \"k\"", "line 2: tls_key: needs a tls_certificate"),
            ("tls_certificate = \"c\"", "line 1: tls_certificate: needs a tls_key"),
            ("queue = 0", "line 1: queue: must be from 1"),
            ("activations_disk = \"1M\"", "line 1: activations_disk: must be from 32M"),
            ("shared_memory = \"16777215T\"", "line 1: shared_memory: must be at most"),
            ("network = \"all\"", "line 1: network: \"all\": must be none or outbound"),
            ("accelerator = \"xen\"", "line 1: accelerator: \"xen\""),
            ("log_format = \"xml\"", "line 1: log_format: \"xml\": must be text or json"),
            ("registries = [\"https://r\"]", "line 1: host: must be "),
            ("\n[[registries]]\nhost = \"r\"\nplain = true", "line 4: unknown field `plain`"),
            (
                "\n[[registries]]\nhost = \"r\"\nprivate_hosts = [\"http://a\"]",
                "private_hosts: must be at most 8 host names",
            ),
            (
                "otlp_endpoint = \"http://u:p@a\"",
                "line 1: otlp_endpoint: must not have credentials",
            ),
            ("otlp_sampling = 1.5", "line 1: otlp_sampling: must be from 0 to 1"),
            ("otlp_metrics_seconds = 0.1", "line 1: otlp_metrics_seconds: must be 0 or"),
            ("functions = [", "line 1: "),
            ("\n[[functions]]\npath = \"f\"\nmemroy = 1", "line 4: unknown field `memroy`"),
            ("\n[[functions]]\nvm = \"v\"", "missing field `path`"),
            ("\n[[functions]]\npath = \"f\"\nvm = \"a b\"", "vm: name: must be"),
            (
                "\n[[functions]]\npath = \"f\"\nmemory_limit = \"1\"",
                "line 4: memory_limit: must be",
            ),
            ("\n[[functions]]\npath = \"f\"\n\nvcpus = 0.0", "line 5: vcpus: must be"),
            (
                "\n[[functions]]\npath = \"f\"\nnetwork_rate = \"1K\"",
                "line 4: \"1K\" bytes per second: must be from 256K to 1T",
            ),
            (
                "\n[[functions]]\npath = \"f\"\nnetwork_tap = \"a/b\"",
                "line 4: \"a/b\" is not the name of a network device",
            ),
            (
                "\n[[functions]]\npath = \"f\"\nnetwork_tap = \"t\"\nnetwork_rate = \"1M\"",
                "network_tap: what is reached by a tap device is up to the host's firewall",
            ),
            ("functions = [1]", "line 1: "),
        ] {
            let error = Config::parse(text, Path::new("/")).unwrap_err().to_string();
            assert!(error.contains(part) && error.lines().count() == 1, "{text}: {error}");
        }
    }
}
