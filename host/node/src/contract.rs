//! How a node and the server of an instance talk.

use crate::{Call, function::Function};
use bytes::Bytes;
use http::{Request, Response};
use std::time::Duration;

/// What an instance's server is asked, from its start on. It says nothing of what answers to calls mean:
/// those go to whoever made the call.
pub trait Contract: Send + Sync {
    /// The first request of an instance. It is sent again until the server listens.
    fn start(&self, function: &Function) -> Request<Bytes>;
    /// Whether an instance whose server has answered that like this takes calls; why not, in words that
    /// go after "/path: ".
    fn started(&self, response: &Response<Bytes>) -> Result<(), String>;
    /// The request for a call that is to be answered within `limit` from now.
    fn call(&self, function: &Function, call: &Call, limit: Duration) -> Request<Bytes>;
    /// The line that the server writes to its standard output and to its standard error when it is done
    /// with a call; nothing where it does not say so.
    fn end_of_output(&self) -> Option<&'static str>;
}
