//! The contract with an instance that gets its code with the first request.

use crate::error::{BenchError, Result};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use squeezy_node::{Call, Contract, function::Function};
use squeezy_openwhisk::{OpenWhisk, contract, kind::is_binary};
use squeezy_protocol::CODE_DIRECTORY;
use squeezy_vmm::BoxFuture;
use std::{fs, path::Path, time::Duration};

/// OpenWhisk's contract, with code in the first request, as the daemon sends it, or with where that is.
pub(super) struct WithCode {
    /// The body of that request, which all instances get.
    first: Bytes,
}

impl WithCode {
    /// The contract with instances of a function whose code is this file.
    pub(super) fn read(function: &str, path: &Path) -> Result<Self> {
        let code = fs::read(path).map_err(|e| BenchError::file(path, e))?;
        let binary = is_binary(&code);
        let text = match binary {
            true => BASE64_STANDARD.encode(&code),
            false => String::from_utf8(code).map_err(|e| BenchError::file(path, e))?,
        };
        let mut first = Vec::new();
        let write = |to: &mut Vec<u8>| serde_json::to_writer(to, &text);
        contract::write_init(function, binary, None, &mut first, write)
            .map_err(|e| BenchError::file(path, e))?;
        Ok(Self { first: first.into() })
    }

    /// The same of a function whose code is on a drive: as the daemon says it.
    pub(super) fn on_drive(function: &str) -> Self {
        Self { first: contract::init_in_directory(function, None, CODE_DIRECTORY) }
    }
}

impl Contract for WithCode {
    fn start<'a>(
        &'a self,
        _function: &'a Function,
    ) -> BoxFuture<'a, Result<Request<Bytes>, String>> {
        Box::pin(async { Ok(contract::init_request(self.first.clone())) })
    }

    fn started(&self, response: &Response<Bytes>) -> Result<(), String> {
        contract::init_problem(response).map_or(Ok(()), Err)
    }

    fn call(&self, function: &Function, call: &Call, limit: Duration) -> Request<Bytes> {
        OpenWhisk.call(function, call, limit)
    }

    fn end_of_output(&self) -> Option<&'static str> {
        OpenWhisk.end_of_output()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[tokio::test]
    async fn the_first_request_brings_the_code() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("code");
        let html = include_str!("../../../../functions/html/function.toml");
        let html = Function::parse(html).unwrap();
        for (code, binary, sent) in
            [(&b"a\n\"b\""[..], false, "a\n\"b\""), (b"PK\x03\x04", true, "UEsDBA==")]
        {
            fs::write(&path, code).unwrap();
            let first = WithCode::read("html", &path).unwrap().start(&html).await.unwrap();
            let body: Value = serde_json::from_slice(first.body()).unwrap();
            assert_eq!(first.uri(), "/init");
            assert_eq!(body["value"]["code"], json!(sent));
            assert_eq!(body["value"]["binary"], json!(binary));
        }
    }

    #[tokio::test]
    async fn code_on_a_drive_is_not_sent() {
        let html = include_str!("../../../../functions/html/function.toml");
        let html = Function::parse(html).unwrap();
        let first = WithCode::on_drive("html").start(&html).await.unwrap();
        let body: Value = serde_json::from_slice(first.body()).unwrap();
        assert_eq!(
            (&body["value"]["directory"], body["value"].get("code")),
            (&json!("/action"), None)
        );
    }

    #[test]
    fn code_that_is_missing_or_no_text_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("code");
        let error = || WithCode::read("html", &path).err().unwrap().to_string();
        assert!(error().contains(&path.display().to_string()));
        fs::write(&path, [0xff]).unwrap();
        assert!(error().contains(&path.display().to_string()));
    }
}
