//! Options of an experiment with plain processes: which functions to call, and how.

use super::{
    function::{Language, NativeFunction, find},
    group::missing,
    instance::{Instance, Setup},
    trial::{Trial, trials},
};
use crate::{
    error::{BenchError, Result},
    harness::Session,
    record::Recorded,
    rigs::prepare::prepare,
    size::parse_instance,
};
use squeezy_node::function::check_name;
use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

/// Builds what they need, in a checkout.
const BUILD_SCRIPT: &str = "bench/src/rigs/process/build.sh";

/// How long an instance is called under `--quick`.
const QUICK_WARM_UP: Duration = Duration::from_secs(4);

/// Selects functions.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FunctionChoice {
    /// The functions, separated by commas; the default is all of functions/java and functions/javascript
    #[arg(long = "functions", value_name = "LIST", value_delimiter = ',')]
    names: Vec<String>,
    /// The directory of functions
    #[arg(long, value_name = "DIR")]
    functions_directory: Option<PathBuf>,
}

/// Selects functions, and their share of a processor.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Functions {
    #[command(flatten)]
    choice: FunctionChoice,
    /// An instance's share of a processor [default: 0.14; with --quick 1]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    processors: Option<f64>,
    /// Calls of an instance before it is measured; with --quick fewer if they take too long
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    calls: u32,
}

/// The option for instances' memory.
#[derive(Clone, Debug, clap::Args)]
struct Sizes {
    /// Memory of an instance, several separated by commas [default: 256M,512M,1G; with --quick 256M,1G]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_instance)]
    sizes: Vec<u64>,
}

/// Selects functions, and the memory of their instances.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ProcessOptions {
    #[command(flatten)]
    pub(crate) functions: Functions,
    #[command(flatten)]
    sizes: Sizes,
}

impl ProcessOptions {
    /// This many trials of each function at each size, unmodified or (`eager`) with eager
    /// collection.
    pub(crate) async fn trials<F: Recorded>(
        &self,
        session: &Session<F>,
        count: u32,
        eager: &[bool],
    ) -> Result<Vec<Trial>> {
        let functions = self.functions.find(session).await?;
        Ok(trials(count, &functions, self.sizes.or_default(session.options.quick), eager))
    }
}

impl Sizes {
    /// The requested sizes in bytes, otherwise those of the Desiccant paper.
    fn or_default(&self, quick: bool) -> &[u64] {
        match (&self.sizes[..], quick) {
            ([], true) => &[256 << 20, 1 << 30],
            ([], false) => &[256 << 20, 512 << 20, 1 << 30],
            (named, _) => named,
        }
    }
}

impl Functions {
    /// An instance's share of a processor: as requested, otherwise what the Desiccant paper gives
    /// an instance of 256 MiB, for which `--quick` has no time.
    fn processors(&self, quick: bool) -> f64 {
        self.processors.unwrap_or(if quick { 1.0 } else { 0.14 })
    }

    /// Starts an instance of a trial and calls it as often as requested, inspecting it after each
    /// call; returns the instance and the number of calls.
    pub(crate) async fn warm(
        &self,
        trial: &Trial,
        quick: bool,
        mut look: impl AsyncFnMut(&Instance) -> Result,
    ) -> Result<(Instance, u32)> {
        let setup = Setup {
            memory_bytes: trial.memory_bytes,
            processors: self.processors(quick),
            eager: trial.eager,
        };
        let instance = Instance::start(&trial.function, setup).await?;
        let start = Instant::now();
        let mut calls = 0;
        while calls < self.calls && !(quick && start.elapsed() > QUICK_WARM_UP) {
            instance.call().await?;
            look(&instance).await?;
            calls += 1;
        }
        Ok((instance, calls))
    }

    /// The named functions, otherwise all that exist.
    pub(crate) async fn find<F: Recorded>(
        &self,
        session: &Session<F>,
    ) -> Result<Vec<Arc<NativeFunction>>> {
        self.choice.find(session).await
    }
}

impl FunctionChoice {
    /// The named functions, otherwise all that exist, after building what they need. Notes which
    /// limits this machine cannot set.
    pub(crate) async fn find<F: Recorded>(
        &self,
        session: &Session<F>,
    ) -> Result<Vec<Arc<NativeFunction>>> {
        let build = session.files.path();
        let beside = || build.with_file_name("functions");
        let directory = self.functions_directory.clone().unwrap_or_else(beside);
        let there = |language: Language, name: &str| {
            directory.join(language.folder()).join(name).join("function.toml").exists()
        };
        let mut chosen = Vec::new();
        for name in &self.names {
            check_name(name).map_err(|e| BenchError::Arguments(format!("`{name}`: {e}")))?;
            let language = Language::ALL.into_iter().find(|language| there(*language, name));
            let language = language.ok_or_else(|| {
                let path = directory.display();
                BenchError::Arguments(format!(
                    "`{name}` is not a function in {path}: see its folders"
                ))
            })?;
            chosen.push((language, name.as_str()));
        }
        if self.names.is_empty() {
            for language in Language::ALL {
                for name in language.functions() {
                    if there(language, name) {
                        chosen.push((language, name));
                    } else {
                        session.progress.note(&format!("left out: {name}, which does not exist"));
                    }
                }
            }
        }
        if chosen.is_empty() {
            return Err(BenchError::file(directory, "no function in it: --functions-directory"));
        }
        let files = chosen.iter().flat_map(|(language, _)| language.built());
        prepare(build, files.map(|file| build.join(file)), BUILD_SCRIPT, &session.progress).await?;
        let found = chosen.iter().map(|&(language, name)| find(&directory, build, language, name));
        let found = found.collect::<Result<_>>()?;
        if let Some(missing) = missing() {
            session.progress.note(&missing);
        }
        Ok(found)
    }
}

/// A share of a processor.
pub(crate) fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.01..=64.0).contains(&share) => Ok(share),
        _ => Err(format!("`{text}` is not a share of a processor: choose 0.01 to 64")),
    }
}

/// A share of a processor in percent, rounded: 0.14 is 14, not 14.000000000000002.
pub(crate) fn percent(share: f64) -> f64 {
    (share * 1e4).round() / 1e2
}
