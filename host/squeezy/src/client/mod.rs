//! Clients of a running daemon: `squeezy invoke`, `function`, `image`, `activations`, `logs`, `status`, `top`,
//! `reload`, `namespace`, `key`.

mod activations;
mod code;
mod connection;
mod create;
mod functions;
mod image;
mod invoke;
mod logs;
mod made;
mod networks;
mod parameters;
mod pulled;
mod reload;
mod state;
mod status;
mod table;
mod tenants;
mod top;

pub use activations::Activations;
use connection::{ClientError, Connection};
pub use functions::Functions;
pub use invoke::Invoke;
pub use logs::Logs;
pub use pulled::Images;
pub use reload::Reload;
use serde_json::Value;
pub use status::Status;
pub use tenants::{Keys, Namespaces};
pub use top::Top;

/// Checks that a name is a valid path segment.
fn segment(name: &str) -> Result<&str, ClientError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if !name.is_empty() && name.bytes().all(plain) && name != "." && name != ".." {
        Ok(name)
    } else {
        Err(ClientError::Name(name.to_owned()))
    }
}

/// Checks the name of an action, which may have a package's before it.
fn action(name: &str) -> Result<&str, ClientError> {
    let (package, own) = name.split_once('/').unwrap_or((name, name));
    let valid = segment(package).and(segment(own));
    valid.map(|_| name).map_err(|_| ClientError::Name(name.to_owned()))
}

fn show(value: &Value) {
    crate::output::print(format_args!("{value:#}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place() {
        assert!(segment("html-2.x_y").is_ok());
        for wrong in ["", "..", "a/b", "a?b", "a b", "é"] {
            assert!(segment(wrong).is_err(), "{wrong}");
        }
        assert_eq!((action("f").unwrap(), action("p/f").unwrap()), ("f", "p/f"));
        for wrong in ["", "p/", "/f", "p/../f", "p/.."] {
            assert!(action(wrong).is_err(), "{wrong}");
        }
    }
}
