//! Two contracts with an instance's server: one like OpenWhisk's, and one that is as different as possible.

use crate::{Call, Contract, function::Function};
use bytes::Bytes;
use http::{Request, Response};
use squeezy_vmm::BoxFuture;
use std::time::Duration;

/// Ends the output of a call, in the contract that has such a mark.
pub(super) const END_OF_OUTPUT: &str = "== end of output ==";

/// A server that is started by one request, called by others, and marks where the output of a call ends.
pub(super) struct StartThenCall;

impl Contract for StartThenCall {
    fn start<'a>(&'a self, _: &'a Function) -> BoxFuture<'a, Result<Request<Bytes>, String>> {
        Box::pin(async { Ok(Request::post("/start").body(Bytes::new()).unwrap()) })
    }

    fn started(&self, response: &Response<Bytes>) -> Result<(), String> {
        let status = response.status();
        if status.is_success() { Ok(()) } else { Err(format!("status {status}")) }
    }

    fn call(&self, _: &Function, call: &Call, _: Duration) -> Request<Bytes> {
        run(call)
    }

    fn end_of_output(&self) -> Option<&'static str> {
        Some(END_OF_OUTPUT)
    }
}

/// Any HTTP server: it is up when it answers anything, and its output has no marks.
pub(super) struct PlainServer;

impl Contract for PlainServer {
    fn start<'a>(&'a self, _: &'a Function) -> BoxFuture<'a, Result<Request<Bytes>, String>> {
        Box::pin(async { Ok(Request::get("/").body(Bytes::new()).unwrap()) })
    }

    fn started(&self, _: &Response<Bytes>) -> Result<(), String> {
        Ok(())
    }

    fn call(&self, _: &Function, call: &Call, _: Duration) -> Request<Bytes> {
        run(call)
    }

    fn end_of_output(&self) -> Option<&'static str> {
        None
    }
}

/// The request for a call in both contracts.
fn run(call: &Call) -> Request<Bytes> {
    Request::post("/run").body(call.value.to_string().into()).unwrap()
}
