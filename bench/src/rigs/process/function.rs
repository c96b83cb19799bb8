//! Functions of `functions/java` and `functions/javascript`, and how they are started as processes.

use crate::error::{BenchError, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use squeezy_node::function::Function;
use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

/// A language whose runtime has a squeezer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Language {
    Java,
    JavaScript,
}

impl Language {
    pub(crate) const ALL: [Self; 2] = [Self::Java, Self::JavaScript];

    /// Its folder in `functions`.
    pub(super) fn folder(self) -> &'static str {
        match self {
            Self::Java => "java",
            Self::JavaScript => "javascript",
        }
    }

    /// The Desiccant paper's functions, which experiments call by default.
    pub(super) fn functions(self) -> &'static [&'static str] {
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

    /// Files that its instances need, relative to the build directory.
    pub(super) fn built(self) -> &'static [&'static str] {
        match self {
            Self::Java => {
                &["squeezers/hotspot/libsqueezer.so", "functions/java.jar", "functions/gson.jar"]
            }
            Self::JavaScript => &["squeezers/v8/preload.js"],
        }
    }

    /// The squeezer among them.
    fn squeezer(self) -> &'static str {
        self.built()[0]
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

/// A function, and what is needed to start an instance.
#[derive(Clone, Debug)]
pub(crate) struct NativeFunction {
    pub(crate) language: Language,
    /// The name of its folder; its definition may use another.
    pub(crate) name: String,
    pub(crate) function: Function,
    /// The `value` of its requests.
    pub(crate) value: Value,
    /// The script that executes the instance's runtime.
    script: PathBuf,
    squeezer: PathBuf,
}

/// Finds a function by name.
pub(crate) fn find(
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
    let absolute = |path: PathBuf| path.canonicalize().map_err(|e| BenchError::file(&path, e));
    Ok(Arc::new(NativeFunction {
        language,
        name: name.to_owned(),
        value,
        script: absolute(folder.join("run.sh"))?,
        squeezer: absolute(build.join(language.squeezer()))?,
        function,
    }))
}

impl NativeFunction {
    /// The command that executes the runtime, with the squeezer in it.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.script);
        command.arg(&self.name);
        let (name, option) = match self.language {
            Language::Java => ("JAVA_TOOL_OPTIONS", "-agentpath:"),
            Language::JavaScript => ("NODE_OPTIONS", "--require "),
        };
        let squeezer = format!("{option}{}", self.squeezer.display());
        // After what the user has set, such as another JVM or flags to try.
        command.env(
            name,
            match std::env::var(name) {
                Ok(given) => format!("{given} {squeezer}"),
                Err(_) => squeezer,
            },
        );
        command
    }
}
