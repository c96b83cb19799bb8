//! The command line of `squeezy run`.

use clap::{
    Args as ClapArgs,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use squeezy_node::{
    PolicyName,
    function::{parse_memory, parse_size},
};
use squeezy_vmm::{AcceleratorChoice, MemoryBackendChoice};
use std::{path::PathBuf, time::Duration};

/// Replays a load against a function in a VM, and shows instances and memory over time.
///
/// Boots a VM for the function, replays the load with real HTTP requests, starts instances as
/// requests arrive, and gives their memory back to the host as they end; once for each policy.
///
/// Ctrl-C ends the run early and still prints the summary. The exit status is 0 when every request
/// was answered correctly, 1 when not, and 130 after Ctrl-C.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// The function: a directory with a function.toml, or an erofs image NAME.erofs with
    /// NAME.toml beside it.
    #[arg(value_name = "FUNCTION")]
    pub function: PathBuf,

    /// How instances get their memory and give it back; several run one after the other.
    #[arg(
        long = "policy",
        value_parser = policies(),
        value_delimiter = ',',
        value_name = "POLICY",
        default_value = "squeezy,virtio-mem,static"
    )]
    pub policies: Vec<PolicyName>,

    /// A trace in the Azure 2019 (invocations) or 2021 format. Without one the load is a synthetic
    /// burst, and labelled so.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,

    /// The function of the trace to replay, by the start of its hash. The default is the burstiest
    /// one with at most 120 invocations in its busiest minute.
    #[arg(long = "function", value_name = "HASH", requires = "trace")]
    pub trace_function: Option<String>,

    /// Where in the trace to begin, in seconds; the default is its busiest part.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, requires = "trace")]
    pub from: Option<Duration>,

    /// How many times as fast as recorded to replay the trace.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = factor, requires = "trace")]
    pub speed: f64,

    /// How long to send requests, for each policy. The default is a minute of a trace; for the
    /// synthetic load it depends on the machine: 14 times as long as the first instance took to
    /// answer, from 20 to 120 s.
    #[arg(long, value_name = "SECONDS", value_parser = positive_seconds)]
    pub duration: Option<Duration>,

    /// Requests in the largest burst of the synthetic load; the default is the number of instances
    /// that the VM may hold.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=10_000),
        conflicts_with = "trace"
    )]
    pub burst: Option<u32>,

    /// How long an instance without a request is kept, in seconds. The default is that of
    /// function.toml with a trace, and a sixth of the load's length with the synthetic load.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub keep_alive: Option<Duration>,

    /// Instances that the VM may hold; the default is in function.toml.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=255))]
    pub concurrency: Option<u16>,

    /// An instance's memory, such as 768M; the default is in function.toml.
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    pub memory: Option<u64>,

    /// Memory shared by the instances, mainly page cache.
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = size)]
    pub shared_memory: u64,

    /// The VM's processors; the default is the sum of the instances' shares, at most the host's
    /// processors.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub vcpus: Option<u32>,

    /// Requests that may wait for an instance; further ones are refused.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub queue: u32,

    /// Seed of all random choices.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,

    /// The accelerator: auto, kvm or tcg.
    #[arg(long, value_name = "NAME", default_value_t)]
    pub accelerator: AcceleratorChoice,

    /// The memory backend of the guest: ram (private), memfd (shared), or auto: memfd where the host has huge pages for
    /// shared memory, and with hyperalloc, which needs it.
    #[arg(long, value_name = "NAME", default_value_t)]
    pub memory_backend: MemoryBackendChoice,

    /// Writes all measurements to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Writes the plot to this file, as SVG.
    #[arg(long, value_name = "FILE", value_parser = svg_file)]
    pub plot: Option<PathBuf>,

    /// The directory of kernels and images; the default is $SQUEEZY_BUILD, else `build` of the checkout, else
    /// /usr/lib/squeezy.
    #[arg(long, value_name = "DIRECTORY")]
    pub build: Option<PathBuf>,

    /// Prints lines instead of the live view, as when the output is not a terminal.
    #[arg(long)]
    pub plain: bool,
}

fn policies() -> impl TypedValueParser<Value = PolicyName> {
    // A run has plenty of memory, so there is nothing to overcommit.
    let policies = PolicyName::ALL.into_iter().filter(|policy| *policy != PolicyName::Overcommit);
    let values = policies.map(|p| PossibleValue::new(p.name()).help(p.meaning()));
    PossibleValuesParser::new(values.collect::<Vec<_>>()).try_map(|name| name.parse::<PolicyName>())
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.0..=1e7).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "expected a number of seconds from 0 to 10000000".to_owned())
}

fn positive_seconds(text: &str) -> Result<Duration, String> {
    let duration = seconds(text)?;
    if (1..=86_400).contains(&duration.as_secs()) {
        Ok(duration)
    } else {
        Err("expected a number of seconds from 1 to 86400".to_owned())
    }
}

fn factor(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|factor| (0.001..=1000.0).contains(factor))
        .ok_or_else(|| "expected a number from 0.001 to 1000".to_owned())
}

fn size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if (1 << 20..=1 << 40).contains(&bytes) {
        Ok(bytes)
    } else {
        Err("expected a size from 1M to 1024G".to_owned())
    }
}

fn svg_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg")) {
        Ok(path)
    } else {
        Err("the plot is an SVG file: its name must end with .svg".to_owned())
    }
}
