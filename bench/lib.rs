//! The experiments: one folder each, with what it found, and an entry in the list below.
//!
//! `squeezy bench NAME` runs one of them: [`Bench`] is its command line, [`Bench::run`] does it.
//! Every measurement becomes a line of JSON (see [`common::record`]); a table, the bounds of
//! SPECIFICATION.md and a plot are made from these lines, of this run or of an earlier one.

mod after;
mod cache;
mod coldstart;
mod common;
mod cpu;
mod elasticity;
mod faults;
mod footprint;
#[path = "frozen-garbage/mod.rs"]
mod frozen_garbage;
mod interference;
mod overhead;
mod plug;
mod pressure;
mod reclaim;
mod scale;
mod simulate;
mod single;
#[cfg(test)]
#[path = "../scripts/skip.rs"]
mod skip;
mod squeeze;
mod throughput;
mod utilisation;

pub use common::error::BenchError;

/// Runs one experiment.
#[derive(Debug, clap::Args)]
pub struct Bench {
    #[command(subcommand)]
    experiment: Experiment,
}

/// The list of experiments: each one's variant and command, and the module that it is in.
macro_rules! experiments {
    ($($(#[$about:meta])+ $variant:ident = $module:ident,)+) => {
        /// The experiments.
        #[derive(Debug, clap::Subcommand)]
        enum Experiment {
            $($(#[$about])+ $variant($module::Arguments),)+
        }

        impl Experiment {
            async fn run(self) -> Result<(), BenchError> {
                match self {
                    $(Self::$variant(arguments) => common::run(arguments).await,)+
                }
            }
        }
    };
}

experiments! {
    /// Latency of taking an instance's memory back while the rest of the VM is full, by size.
    Reclaim = reclaim,
    /// Latency of taking an instance's memory back, by how full the rest of the VM is.
    Utilisation = utilisation,
    /// CPU time, of the guest and of the host, that taking memory back takes.
    Cpu = cpu,
    /// Latency of giving an instance memory, and of its first touch.
    Plug = plug,
    /// Latency and memory of functions on a host with too little memory for all their instances.
    Pressure = pressure,
    /// What the first answer of an instance takes, part by part, in VMs of their own and in one.
    Coldstart = coldstart,
    /// Host memory that an instance takes, in VMs of their own and in one.
    Footprint = footprint,
    /// Instances and memory over time under a bursty load.
    Elasticity = elasticity,
    /// How fast memory comes back while instances are ended under load.
    Throughput = throughput,
    /// Latency of a function while instances of another one in its VM end.
    Interference = interference,
    /// How plugging and reclaiming grow with the instances that come and go at once.
    Scale = scale,
    /// What the daemon itself takes for a call of an instance that is there.
    Overhead = overhead,
    /// A whole day of many functions, decided by the runtime's own code and with measured costs.
    Simulate = simulate,
    /// What page faults, new processes and calls cost in a partition, and in a kernel that could have some.
    Faults = faults,
    /// Memory of a frozen Java or JavaScript instance: as it is, and squeezed.
    Single = single,
    /// Memory of a frozen Java or JavaScript instance inside its VM, before and after it is squeezed.
    Squeeze = squeeze,
    /// What a frozen Java or JavaScript instance holds over what it needs, by its memory.
    FrozenGarbage = frozen_garbage,
    /// What the requests just after a reclaim take, against those before it.
    After = after,
    /// Cold boots and latency of functions whose instances share a cache, squeezed and not.
    Cache = cache,
}

impl Bench {
    /// Runs the experiment: progress goes to standard error, the table to standard output, lines
    /// and plot to the files that were asked for. Ctrl-C or SIGTERM end it with
    /// [`BenchError::Interrupted`]; what was measured until then is kept, and no VM is left.
    pub async fn run(self) -> Result<(), BenchError> {
        // Dropping an experiment drops its VMs, and with them their processes.
        tokio::select! {
            result = self.experiment.run() => result,
            result = common::interrupt::wait() => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        bench: Bench,
    }

    fn parse(line: &str) -> Result<Bench, clap::Error> {
        Cli::try_parse_from(std::iter::once("bench").chain(line.split(' '))).map(|cli| cli.bench)
    }

    #[test]
    fn nonsense_is_refused_before_anything_starts() {
        for line in [
            "nonsense",
            "reclaim --methods nonsense",
            "reclaim --sizes 1T",
            "reclaim --sizes 512M,,1G",
            "reclaim --init-on-alloc 2",
            "reclaim --trials 0",
            "reclaim --vcpus 65",
            "reclaim --memory-backend disk",
            "reclaim --from a --json b",
            "utilisation --fill 101",
            "utilisation --size 130001K",
            "cpu --accelerator xen",
            "plug --sizes -1",
            "faults --methods floor",
            "faults --duration 1",
            "overhead --calls 0",
            "single --calls 0",
            "single --processors 0",
            "after --size 1M",
            "frozen-garbage --sizes 256M,",
            "cache --variants nonsense",
            "cache --scale-factors 0",
            "cache --threshold 101",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[tokio::test]
    async fn a_method_that_makes_no_sense_is_named() {
        for line in ["reclaim --methods static", "utilisation --methods floor"] {
            let error = parse(line).unwrap().run().await.unwrap_err().to_string();
            assert!(error.contains("cannot be measured here") && !error.contains('\n'), "{error}");
        }
        let error = parse("cpu --build /nonexistent").unwrap().run().await.unwrap_err().to_string();
        assert!(error.contains("/nonexistent") && !error.contains('\n'), "{error}");
    }

    #[tokio::test]
    async fn a_function_that_is_not_there_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().display();
        for name in ["nonsense", "../java"] {
            let line = format!(
                "single --functions {name} --functions-directory {path} --accelerator tcg --build {path}"
            );
            let error = parse(&line).unwrap().run().await.unwrap_err().to_string();
            assert!(error.contains(&format!("`{name}`")) && !error.contains('\n'), "{error}");
        }
    }

    /// What README.md of an experiment shows is made of the lines beside it.
    #[tokio::test]
    async fn recorded_plots_are_those_of_the_recorded_lines() {
        let directory = tempfile::tempdir().unwrap();
        let mut stale = Vec::new();
        for folder in std::fs::read_dir(env!("CARGO_MANIFEST_DIR")).unwrap() {
            let folder = folder.unwrap().path();
            let (lines, plot) = (folder.join("results.jsonl"), folder.join("plot.svg"));
            if !lines.exists() {
                continue;
            }
            let name = folder.file_name().unwrap().to_str().unwrap();
            let new = directory.path().join(name);
            println!("--- {name}");
            let line = format!("{name} --from {} --plot {}", lines.display(), new.display());
            parse(&line).unwrap().run().await.unwrap();
            if std::fs::read(&new).unwrap() != std::fs::read(&plot).unwrap() {
                stale.push(format!(
                    "squeezy bench {name} --from {0}/results.jsonl --plot {0}/plot.svg",
                    folder.display()
                ));
            }
        }
        assert!(stale.is_empty(), "draw these anew:\n{}", stale.join("\n"));
    }

    /// There is no kernel in the directory.
    #[tokio::test]
    async fn one_method_that_fails_leaves_the_others_their_lines() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let (json, plot) = (path("lines"), path("plot.svg"));
        let line = format!(
            "plug --methods squeezy,floor --sizes 32M --trials 3 --accelerator tcg --build {} --json {json} --plot {plot}",
            path("")
        );
        let error = parse(&line).unwrap().run().await.unwrap_err().to_string();
        assert!(
            error.starts_with("not everything could be measured: squeezy, 32 MiB: "),
            "{error}"
        );
        assert_eq!(std::fs::read_to_string(&json).unwrap().lines().count(), 4);
        assert!(std::path::Path::new(&plot).exists());
    }

    /// From the command line to the plot, with the one method that needs no VM.
    #[tokio::test]
    async fn the_floor_can_be_measured_anywhere() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let common = format!("--methods floor --accelerator tcg --build {}", path(""));
        for (name, more, lines) in [
            ("reclaim", "--sizes 32M,64M", 6),
            ("cpu", "--size 32M", 3),
            ("plug", "--sizes 32M", 4),
        ] {
            let (json, plot) = (path(&format!("{name}.jsonl")), path(&format!("{name}.svg")));
            let line = format!("{name} {common} {more} --trials 3 --json {json}");
            parse(&line).unwrap().run().await.unwrap();
            assert_eq!(std::fs::read_to_string(&json).unwrap().lines().count(), lines, "{name}");
            parse(&format!("{name} --from {json} --plot {plot}")).unwrap().run().await.unwrap();
            assert!(std::fs::read_to_string(&plot).unwrap().contains("floor"), "{name}");
        }
    }
}
