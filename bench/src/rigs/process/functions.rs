//! What an experiment with plain processes is told on its command line: what to call, and how.

use super::{
    function::{Language, NativeFunction, find},
    group::missing,
    instance::{Instance, Setup},
    prepare::prepare,
    trial::{Trial, trials},
};
use crate::{
    error::{BenchError, Result},
    harness::Session,
    record::Recorded,
    size::parse_instance,
};
use squeezy_node::function::check_name;
use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

/// How long an instance is called under `--quick`.
const QUICK_WARM_UP: Duration = Duration::from_secs(4);

/// Which functions are called.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FunctionChoice {
    /// The functions, with commas; all of functions/java and functions/javascript without it
    #[arg(long = "functions", value_name = "LIST", value_delimiter = ',')]
    names: Vec<String>,
    /// The directory of functions
    #[arg(long, value_name = "DIR")]
    functions_directory: Option<PathBuf>,
}

/// Which functions are called, and how much of a processor each has.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Functions {
    #[command(flatten)]
    choice: FunctionChoice,
    /// An instance's share of a processor [default: 0.14; with --quick 1]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    processors: Option<f64>,
    /// Calls of an instance before it is looked at; with --quick fewer where they take too long
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    calls: u32,
}

/// Which memory instances have.
#[derive(Clone, Debug, clap::Args)]
struct Sizes {
    /// Memory of an instance, with commas [default: 256M,512M,1G; with --quick 256M,1G]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_instance)]
    sizes: Vec<u64>,
}

/// Which functions are called, and which memory their instances have.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ProcessOptions {
    #[command(flatten)]
    pub(crate) functions: Functions,
    #[command(flatten)]
    sizes: Sizes,
}

impl ProcessOptions {
    /// So many trials of each function at each size, as it is or (`eager`) collecting all the time.
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
    /// Those that were asked for, in bytes; else those of the Desiccant paper.
    fn or_default(&self, quick: bool) -> &[u64] {
        match (&self.sizes[..], quick) {
            ([], true) => &[256 << 20, 1 << 30],
            ([], false) => &[256 << 20, 512 << 20, 1 << 30],
            (named, _) => named,
        }
    }
}

impl Functions {
    /// An instance's share of a processor: what was asked for, else what the Desiccant paper gives
    /// one of 256 MiB; `--quick` has no time for that.
    fn processors(&self, quick: bool) -> f64 {
        self.processors.unwrap_or(if quick { 1.0 } else { 0.14 })
    }

    /// Starts an instance of a trial and calls it as often as was asked for, with a look at it after
    /// each call; how often that was.
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

    /// Those that were named; else all there are.
    pub(crate) async fn find<F: Recorded>(
        &self,
        session: &Session<F>,
    ) -> Result<Vec<Arc<NativeFunction>>> {
        self.choice.find(session).await
    }
}

impl FunctionChoice {
    /// Those that were named; else all there are, with what they are started from built. Says what
    /// this machine has no limits for.
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
                BenchError::Arguments(format!("`{name}` is no function of {path}: see its folders"))
            })?;
            chosen.push((language, name.as_str()));
        }
        if self.names.is_empty() {
            for language in Language::ALL {
                for name in language.functions() {
                    if there(language, name) {
                        chosen.push((language, name));
                    } else {
                        session.progress.note(&format!("left out: {name}, which is not there"));
                    }
                }
            }
        }
        if chosen.is_empty() {
            return Err(BenchError::file(directory, "no function in it: --functions-directory"));
        }
        prepare(build, chosen.iter().map(|&(language, _)| language), &session.progress).await?;
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
        _ => Err(format!("`{text}` is no share of a processor: 0.01 to 64 are possible")),
    }
}

/// A share of a processor in percent: 0.14 is 14, not 14.000000000000002.
pub(crate) fn percent(share: f64) -> f64 {
    (share * 1e4).round() / 1e2
}
