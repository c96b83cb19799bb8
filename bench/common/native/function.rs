//! Functions of `functions/java` and `functions/javascript`, and how they are started as processes.

use super::{
    cases::Case,
    instance::{Instance, Setup},
};
use crate::common::{
    error::{BenchError, Result},
    lab::Lab,
    record::Record,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use squeezy_runtime::function::{Function, check_name};
use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

/// Builds what is started.
const BUILD: &str = "bench/common/native/build.sh";

/// How long an instance is called under `--quick`.
const QUICK_WARM_UP: Duration = Duration::from_secs(4);

/// A language whose runtime has an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Language {
    Java,
    JavaScript,
}

impl Language {
    pub(crate) const ALL: [Self; 2] = [Self::Java, Self::JavaScript];

    /// Its folder in `functions`.
    fn folder(self) -> &'static str {
        match self {
            Self::Java => "java",
            Self::JavaScript => "javascript",
        }
    }

    /// The functions that the experiments call unless others are named, the shortest first.
    fn functions(self) -> &'static [&'static str] {
        match self {
            Self::Java => &[
                "time",
                "sort",
                "file-hash",
                "image-resize",
                "image-pipeline",
                "hotel-searching",
                "mapreduce",
                "transactions",
            ],
            Self::JavaScript => &[
                "clock",
                "dynamic-html",
                "factor",
                "fft",
                "fibonacci",
                "filesystem",
                "matrix",
                "pi",
                "unionfind",
                "web-server",
                "data-analysis",
                "alexa",
            ],
        }
    }

    /// The agent's file, below the directory of what has been built.
    fn agent(self) -> &'static str {
        match self {
            Self::Java => "reclaim/hotspot/libsqueezy_reclaim.so",
            Self::JavaScript => "reclaim/v8/preload.js",
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Java => "Java",
            Self::JavaScript => "JavaScript",
        })
    }
}

/// A function, and what it takes to start an instance of it.
#[derive(Clone, Debug)]
pub(crate) struct NativeFunction {
    pub(crate) language: Language,
    /// That of its folder; its definition may call it otherwise.
    pub(crate) name: String,
    pub(crate) function: Function,
    /// The `value` of its requests.
    pub(crate) value: Value,
    /// Becomes the instance's runtime.
    script: PathBuf,
    agent: PathBuf,
}

/// A function by its name, with what it takes to start it.
pub(super) fn find(
    functions: &Path,
    build: &Path,
    language: Language,
    name: &str,
) -> Result<Arc<NativeFunction>> {
    let folder = functions.join(language.folder());
    let path = folder.join(name).join("function.toml");
    let text = fs::read_to_string(&path).map_err(|e| BenchError::file(&path, e))?;
    let function = Function::parse(&text).map_err(|e| BenchError::file(&path, e))?;
    let value = serde_json::to_value(&function.request).map_err(|e| BenchError::file(&path, e))?;
    let absolute = |path: PathBuf| {
        path.canonicalize().map_err(|e| BenchError::file(&path, format!("{e}: `{BUILD}`")))
    };
    Ok(Arc::new(NativeFunction {
        language,
        name: name.to_owned(),
        value,
        script: absolute(folder.join("run.sh"))?,
        agent: absolute(build.join(language.agent()))?,
        function,
    }))
}

impl NativeFunction {
    /// The command that becomes the runtime, with the agent in it.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.script);
        command.arg(&self.name);
        let (name, option) = match self.language {
            Language::Java => ("JAVA_TOOL_OPTIONS", "-agentpath:"),
            Language::JavaScript => ("NODE_OPTIONS", "--require "),
        };
        let agent = format!("{option}{}", self.agent.display());
        // After what the user has set: a JVM of his, flags that are to be tried.
        command.env(
            name,
            match std::env::var(name) {
                Ok(given) => format!("{given} {agent}"),
                Err(_) => agent,
            },
        );
        command
    }
}

/// Which functions are called, and how much of a processor each has.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Functions {
    /// The functions, with commas; all of functions/java and functions/javascript without it
    #[arg(long = "functions", value_name = "LIST", value_delimiter = ',')]
    names: Vec<String>,
    /// The directory of functions
    #[arg(long, value_name = "DIR")]
    functions_directory: Option<PathBuf>,
    /// An instance's share of a processor [default: 0.14; with --quick 1]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    processors: Option<f64>,
    /// Calls of an instance before it is looked at; with --quick fewer where they take too long
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    calls: u32,
}

impl Functions {
    /// An instance's share of a processor: what was asked for, else what the Desiccant paper gives
    /// one of 256 MiB; `--quick` has no time for that.
    fn processors(&self, quick: bool) -> f64 {
        self.processors.unwrap_or(if quick { 1.0 } else { 0.14 })
    }

    /// Starts an instance of a case and calls it as often as was asked for, with a look at it after
    /// each call; how often that was.
    pub(crate) async fn warm(
        &self,
        case: &Case,
        quick: bool,
        mut look: impl AsyncFnMut(&Instance) -> Result,
    ) -> Result<(Instance, u32)> {
        let setup = Setup {
            memory_bytes: case.memory_bytes,
            processors: self.processors(quick),
            eager: case.eager,
        };
        let instance = Instance::start(&case.function, setup).await?;
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
    pub(crate) fn find<R: Record>(&self, lab: &Lab<R>) -> Result<Vec<Arc<NativeFunction>>> {
        let build = lab.files.path();
        let beside = || build.with_file_name("functions");
        let directory = self.functions_directory.clone().unwrap_or_else(beside);
        let find = |language, name: &str| find(&directory, build, language, name);
        let there = |language: Language, name: &str| {
            directory.join(language.folder()).join(name).join("function.toml").exists()
        };
        let mut found = Vec::new();
        for name in &self.names {
            check_name(name).map_err(|e| BenchError::Arguments(format!("`{name}`: {e}")))?;
            let language = Language::ALL.into_iter().find(|language| there(*language, name));
            let language = language.ok_or_else(|| {
                let path = directory.display();
                BenchError::Arguments(format!("`{name}` is no function of {path}: see its folders"))
            })?;
            found.push(find(language, name)?);
        }
        if self.names.is_empty() {
            for language in Language::ALL {
                for name in language.functions() {
                    if there(language, name) {
                        found.push(find(language, name)?);
                    } else {
                        lab.progress.note(&format!("left out: {name}, which is not there"));
                    }
                }
            }
        }
        match found.is_empty() {
            false => Ok(found),
            true => Err(BenchError::file(directory, "no function in it: --functions-directory")),
        }
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.01..=64.0).contains(&share) => Ok(share),
        _ => Err(format!("`{text}` is no share of a processor: 0.01 to 64 are possible")),
    }
}
