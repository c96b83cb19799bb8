//! The functions, each of which is there twice.

use super::{CODE, IMAGE, contract::WithCode};
use crate::error::{BenchError, Result};
use squeezy_node::{Contract, FunctionImage, function::Function};
use squeezy_openwhisk::OpenWhisk;
use squeezy_vmm::Artifacts;
use std::{path::PathBuf, sync::Arc};

/// A function that is there in an image of its own and as code.
#[derive(Debug)]
pub(super) struct TwiceGiven {
    name: &'static str,
    /// The image of its own.
    image: &'static str,
    /// The image that runs its code.
    runtime: &'static str,
    /// The file of its code.
    code: &'static str,
    /// The drive that the daemon makes of that, if it is large.
    drive: Option<&'static str>,
}

/// All of them: three that greet, of which the code is a text or a program, and one with packages, of which it is an
/// archive.
pub(super) const FUNCTIONS: &[TwiceGiven] = &[
    TwiceGiven {
        name: "python",
        image: "greet-python",
        runtime: "runtime-python",
        code: "python.py",
        drive: None,
    },
    TwiceGiven {
        name: "node",
        image: "greet-node",
        runtime: "runtime-node",
        code: "node.js",
        drive: None,
    },
    TwiceGiven {
        name: "native",
        image: "go-hello",
        runtime: "runtime-native",
        code: "native",
        drive: Some("native.erofs"),
    },
    TwiceGiven {
        name: "html",
        image: "html",
        runtime: "runtime-python",
        code: "html.zip",
        drive: Some("html.erofs"),
    },
];

/// A function as it is given to a node.
pub(super) struct Given {
    /// [`IMAGE`] or [`CODE`].
    pub(super) method: &'static str,
    pub(super) image: FunctionImage,
    pub(super) contract: Arc<dyn Contract>,
}

/// The function with this name.
pub(super) fn find(name: &str) -> Result<&'static TwiceGiven, String> {
    let found = FUNCTIONS.iter().find(|function| function.name == name);
    found.ok_or_else(|| format!("there is no function `{name}` here"))
}

impl TwiceGiven {
    fn code(&self, files: &Artifacts) -> PathBuf {
        files.path().join("code").join(self.code)
    }

    fn drive(&self, files: &Artifacts) -> Option<PathBuf> {
        self.drive.map(|drive| files.path().join("code").join(drive))
    }

    /// All files that it takes.
    pub(super) fn files(&self, files: &Artifacts) -> Vec<PathBuf> {
        let mut all = vec![files.image(self.image), files.image(self.runtime), self.code(files)];
        all.extend(self.drive(files));
        all
    }

    /// Both ways to give it.
    pub(super) fn ways(&self, files: &Artifacts) -> Result<[Given; 2]> {
        let of_image = |name| {
            let found = FunctionImage::at(&files.image(name));
            found.map_err(|e| BenchError::Arguments(e.to_string()))
        };
        let (mut own, mut runtime) = (of_image(self.image)?, of_image(self.runtime)?);
        own.function.name = self.name.to_owned();
        runtime.code = self.drive(files);
        let code = match runtime.code {
            Some(_) => WithCode::on_drive(self.name),
            None => WithCode::read(self.name, &self.code(files))?,
        };
        Ok([
            Given {
                method: CODE,
                image: in_runtime(own.function.clone(), runtime),
                contract: Arc::new(code),
            },
            Given { method: IMAGE, image: own, contract: Arc::new(OpenWhisk) },
        ])
    }
}

/// A function whose code a runtime runs: limits, request and check are its own.
fn in_runtime(own: Function, runtime: FunctionImage) -> FunctionImage {
    let FunctionImage { function, image, code } = runtime;
    let Function { command, working_directory, environment, port, seccomp, .. } = function;
    let function = Function { command, working_directory, environment, port, seccomp, ..own };
    FunctionImage { function, image, code }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squeezy_openwhisk::kind::KINDS;

    #[test]
    fn the_code_of_each_function_has_a_runtime() {
        for TwiceGiven { name, runtime, .. } in FUNCTIONS {
            assert!(KINDS.iter().any(|kind| kind.image == *runtime), "{name}");
            assert_eq!(find(name).unwrap().name, *name);
        }
        assert!(find("nonsense").unwrap_err().contains("`nonsense`"));
    }

    #[test]
    fn code_has_the_limits_of_the_function_and_the_server_of_the_runtime() {
        let parse = |text| Function::parse(text).unwrap();
        let html = parse(include_str!("../../../../functions/html/function.toml"));
        let runtime = FunctionImage {
            function: parse(include_str!("../../../../runtimes/python/function.toml")),
            image: PathBuf::from("runtime.erofs"),
            code: None,
        };
        let FunctionImage { function, image, .. } = in_runtime(html.clone(), runtime.clone());
        assert_eq!(image, runtime.image);
        assert_eq!(function.command, runtime.function.command);
        assert_eq!(function.environment, runtime.function.environment);
        assert_eq!((function.memory_bytes, function.cpu_millis), (768 << 20, html.cpu_millis));
        assert_eq!((function.request, function.check), (html.request, html.check));
    }
}
