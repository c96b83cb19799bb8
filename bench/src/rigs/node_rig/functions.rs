//! Which functions an experiment calls.

use crate::{
    error::{BenchError, Result},
    harness::Session,
    record::Recorded,
};
use squeezy_node::FunctionImage;

/// Instances per VM under `--quick`, which must end soon even without KVM.
const QUICK_CONCURRENCY: u16 = 4;

/// Options that select functions.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Functions {
    /// The functions, by the names of their images, separated by commas; a name given twice is two
    /// functions
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    functions: Vec<String>,
    /// Maximum number of instances of each function
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=255))]
    concurrency: Option<u16>,
}

/// The functions that are called by default.
pub(crate) struct Usual {
    pub(crate) full: &'static [&'static str],
    /// Under `--quick`: functions that start quickly.
    pub(crate) quick: &'static [&'static str],
}

impl Usual {
    /// All of them.
    pub(crate) const EVERY: Self = Self { full: &["html", "bfs", "cnn", "bert"], quick: &["html"] };

    /// The names of the functions' images.
    pub(super) fn names(&self, quick: bool) -> &'static [&'static str] {
        if quick { self.quick } else { self.full }
    }
}

impl Functions {
    /// Whether none is named.
    pub(crate) fn are_usual(&self) -> bool {
        self.functions.is_empty()
    }

    /// The named functions, otherwise those of `default` whose images exist.
    pub(crate) fn find<F: Recorded>(
        &self,
        session: &Session<F>,
        default: &[&str],
    ) -> Result<Vec<FunctionImage>> {
        let mut found: Vec<FunctionImage> = Vec::new();
        let named = !self.functions.is_empty();
        let names: Vec<&str> = match named {
            true => self.functions.iter().map(String::as_str).collect(),
            false => default.to_vec(),
        };
        for &name in &names {
            let path = session.files.image(name);
            if !named && !path.exists() {
                session
                    .progress
                    .note(&format!("left out: {name}, because there is no {}", path.display()));
                continue;
            }
            let image = FunctionImage::find(&path, &session.files);
            let mut image = image.map_err(|e| BenchError::Arguments(e.to_string()))?;
            let function = &mut image.function;
            let quick =
                if session.options.quick { QUICK_CONCURRENCY } else { function.concurrency };
            function.concurrency = self.concurrency.unwrap_or(quick);
            let twins = found.iter().filter(|other| other.image == image.image).count();
            if twins > 0 {
                function.name = format!("{}-{}", function.name, twins + 1);
            }
            found.push(image);
        }
        if found.is_empty() {
            return Err(BenchError::Arguments(format!(
                "no image of {} has been built: see bench/README.md",
                names.join(" or ")
            )));
        }
        Ok(found)
    }
}
