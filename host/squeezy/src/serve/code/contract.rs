//! The contract with instances of an action that is made from code.

use super::{ActionCode, CodeError, blocking, write_as_json};
use axum::body::Bytes;
use axum::http::{Request, Response};
use squeezy_node::{Call, Contract, function::Function};
use squeezy_openwhisk::{OpenWhisk, contract};
use squeezy_protocol::CODE_DIRECTORY;
use squeezy_vmm::BoxFuture;
use std::{
    sync::{Arc, Weak},
    time::Duration,
};

/// OpenWhisk's contract, with code in the first request, or where that is.
pub struct RunsCode {
    code: ActionCode,
    /// The body of that request while instances are being started, which share it: the only memory that code
    /// takes here.
    sending: tokio::sync::Mutex<Weak<Bytes>>,
}

impl RunsCode {
    /// The contract with instances that run this code.
    pub fn new(code: ActionCode) -> Self {
        Self { code, sending: tokio::sync::Mutex::default() }
    }

    async fn body(&self, name: &str) -> Result<Bytes, String> {
        /// The body as it is sent.
        struct Shared(Arc<Bytes>);
        impl AsRef<[u8]> for Shared {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        let mut sending = self.sending.lock().await;
        if let Some(body) = sending.upgrade() {
            return Ok(Bytes::from_owner(Shared(body)));
        }
        let (name, code) = (name.to_owned(), self.code.clone());
        let body = blocking(move || {
            let mut body = Vec::new();
            let write = |to: &mut Vec<u8>| write_as_json(&code, to);
            contract::write_init(&name, code.binary, code.main.as_deref(), &mut body, write)?;
            Ok::<_, CodeError>(body.into())
        });
        let body = Arc::new(body.await.map_err(|error| error.to_string())?);
        *sending = Arc::downgrade(&body);
        Ok(Bytes::from_owner(Shared(body)))
    }
}

impl Contract for RunsCode {
    fn start<'a>(
        &'a self,
        function: &'a Function,
    ) -> BoxFuture<'a, Result<Request<Bytes>, String>> {
        Box::pin(async {
            let ActionCode { main, drive, .. } = &self.code;
            let body = match drive {
                Some(_) => {
                    contract::init_in_directory(&function.name, main.as_deref(), CODE_DIRECTORY)
                }
                None => self.body(&function.name).await?,
            };
            Ok(contract::init_request(body))
        })
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
