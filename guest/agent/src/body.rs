//! The type of all response bodies.

use hyper::body::Bytes;
use std::pin::Pin;

/// Any error of a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// The body of a response. It stays on the agent's only thread.
pub type Body = Pin<Box<dyn hyper::body::Body<Data = Bytes, Error = BoxError>>>;
