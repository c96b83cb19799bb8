//! How containerd and a shim find each other: what `start` reads from stdin and answers on stdout.
//!
//! containerd 2.3 and newer write [`BootstrapParams`] and expect [`BootstrapResult`]. Older ones write an `Any` with
//! the runtime's options, or nothing, and tell the rest by the environment; a bare address as the answer means "ttrpc,
//! task API v2" to each of them from 1.2 on.

use crate::{
    Id,
    error::{Error, Result},
};
use containerd_shim_protos::{
    bootstrap_api::{BootstrapParams, BootstrapResult},
    protobuf::Message,
};
use std::io::Read;

/// The most that is read from stdin, in bytes. Options and extensions are a few hundred.
const MAX_BYTES: u64 = 4 << 20;
/// The longest address of containerd, in bytes: a socket's path is at most 107.
const MAX_ADDRESS_BYTES: usize = 256;

/// What `start` was told.
#[derive(Debug, PartialEq, Eq)]
pub struct Bootstrap {
    /// The socket that takes events, without `unix://`.
    pub events: String,
    answer: Answer,
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// [`BootstrapResult`].
    Message,
    /// The address alone.
    Address,
}

impl Bootstrap {
    /// Reads what containerd says of the task `id` of `namespace`. `address` is that of its gRPC API, `ttrpc_address`
    /// what the environment has as `TTRPC_ADDRESS`.
    ///
    /// # Errors
    /// An input that is too long, or no address for events.
    pub fn read(
        stdin: impl Read,
        namespace: &Id,
        id: &Id,
        address: &str,
        ttrpc_address: Option<String>,
    ) -> Result<Self> {
        let mut input = Vec::new();
        stdin
            .take(MAX_BYTES + 1)
            .read_to_end(&mut input)
            .map_err(|error| Error::failed(format_args!("cannot read from containerd: {error}")))?;
        if input.len() as u64 > MAX_BYTES {
            return Err(Error::invalid(format_args!(
                "containerd wrote more than {} MiB to stdin",
                MAX_BYTES >> 20
            )));
        }
        // An `Any` is a valid message of parameters, too: its two fields have the same numbers. But it does not name
        // this task.
        let parameters = BootstrapParams::parse_from_bytes(&input).ok().filter(|parameters| {
            parameters.instance_id == id.as_str() && parameters.namespace == namespace.as_str()
        });
        let (events, answer) = match parameters {
            Some(parameters) => (parameters.containerd_ttrpc_address, Answer::Message),
            None => (ttrpc_address.unwrap_or_else(|| format!("{address}.ttrpc")), Answer::Address),
        };
        let events = events.strip_prefix("unix://").unwrap_or(&events);
        if !events.starts_with('/') || events.len() > MAX_ADDRESS_BYTES {
            let shown: String = events.chars().take(80).collect();
            return Err(Error::invalid(format_args!(
                "containerd's address for events, {shown:?}, is no path of at most {MAX_ADDRESS_BYTES} bytes"
            )));
        }
        Ok(Self { events: events.to_owned(), answer })
    }

    /// What is printed when the server listens at `address` (with `unix://`).
    pub fn answer(&self, address: &str) -> Vec<u8> {
        match self.answer {
            Answer::Address => address.as_bytes().to_vec(),
            Answer::Message => {
                let result = BootstrapResult {
                    version: containerd_shim_protos::TASK_API_VERSION,
                    address: address.to_owned(),
                    protocol: "ttrpc".to_owned(),
                    ..Default::default()
                };
                result.write_to_bytes().expect("a message of three fields can be written to memory")
            }
        }
    }
}

#[cfg(test)]
mod tests;
