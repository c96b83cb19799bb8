//! A function that leaves much free memory behind: what an instance holds beyond what it needs is what the policies and
//! the host can give to others.

use crate::error::{BenchError, Result};
use squeezy_node::{FunctionImage, function::Function};

/// The function, beside another one whose image it uses and as many of whose instances there may be.
pub(super) fn wasteful(beside: &FunctionImage) -> Result<FunctionImage> {
    let mut function = Function::parse(include_str!("wasteful.toml"))
        .map_err(|error| BenchError::Arguments(error.to_string()))?;
    function.concurrency = beside.function.concurrency;
    Ok(FunctionImage { function, ..beside.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn it_is_a_function_of_its_own_in_the_image_of_another() {
        let definition = include_str!("../../../../functions/html/function.toml");
        let mut html = Function::parse(definition).unwrap();
        html.concurrency = 4;
        let html = FunctionImage { function: html, image: PathBuf::from("html.erofs"), code: None };
        let FunctionImage { function, image, .. } = wasteful(&html).unwrap();
        assert_eq!(
            (function.name.as_str(), function.concurrency, image),
            ("wasteful", 4, html.image)
        );
        assert_eq!(function.memory_bytes, html.function.memory_bytes);
    }
}
