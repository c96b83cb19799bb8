//! Which functions an experiment calls.

use super::{
    error::{BenchError, Result},
    lab::Lab,
    record::Record,
};
use squeezy_node::FunctionImage;

/// Instances of a VM under `--quick`, which has to end soon without KVM too.
const QUICK_CONCURRENCY: u16 = 4;

/// Which functions.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Functions {
    /// The functions, by the names of their images, with commas; one that comes twice is two
    /// functions
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    functions: Vec<String>,
    /// Most instances of each function
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=255))]
    concurrency: Option<u16>,
}

impl Functions {
    /// What is called unless functions are named: all, or under `--quick` the one that starts soon.
    pub(crate) fn default(quick: bool) -> &'static [&'static str] {
        if quick { &["html"] } else { &["html", "bfs", "cnn", "bert"] }
    }

    /// Those that were named; without names those of `default` whose images are there.
    pub(crate) fn find<R: Record>(
        &self,
        lab: &Lab<R>,
        default: &[&str],
        quick: bool,
    ) -> Result<Vec<FunctionImage>> {
        let mut found: Vec<FunctionImage> = Vec::new();
        let named = !self.functions.is_empty();
        let names: Vec<&str> = match named {
            true => self.functions.iter().map(String::as_str).collect(),
            false => default.to_vec(),
        };
        for &name in &names {
            let path = lab.files.image(name);
            if !named && !path.exists() {
                lab.progress.note(&format!("left out: {name}, for there is no {}", path.display()));
                continue;
            }
            let image = FunctionImage::find(&path, &lab.files);
            let mut image = image.map_err(|e| BenchError::Arguments(e.to_string()))?;
            let function = &mut image.function;
            let quick = if quick { QUICK_CONCURRENCY } else { function.concurrency };
            function.concurrency = self.concurrency.unwrap_or(quick);
            let twins = found.iter().filter(|other| other.image == image.image).count();
            if twins > 0 {
                function.name = format!("{}-{}", function.name, twins + 1);
            }
            found.push(image);
        }
        if found.is_empty() {
            return Err(BenchError::Arguments(format!(
                "no image of {} has been built: bench/README.md says how",
                names.join(" or ")
            )));
        }
        Ok(found)
    }
}
