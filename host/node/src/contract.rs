//! How a node talks to an instance's server.

use crate::{Call, function::Function};
use bytes::Bytes;
use http::{Request, Response};
use squeezy_vmm::BoxFuture;
use std::time::Duration;

/// The requests to an instance's server, from its start on. What the answers to calls mean is left to the
/// caller.
pub trait Contract: Send + Sync {
    /// The first request of an instance, or why it cannot be made. It is sent again until the server listens.
    fn start<'a>(&'a self, function: &'a Function)
    -> BoxFuture<'a, Result<Request<Bytes>, String>>;
    /// Whether an instance whose server gave this response to its first request can take calls; if not, why,
    /// as text to follow "/path: ".
    fn started(&self, response: &Response<Bytes>) -> Result<(), String>;
    /// The request for a call, to be answered within `limit` from now.
    fn call(&self, function: &Function, call: &Call, limit: Duration) -> Request<Bytes>;
    /// The line that the server writes to its standard output and to its standard error when it is done with
    /// a call; `None` if it writes none.
    fn end_of_output(&self) -> Option<&'static str>;
}
