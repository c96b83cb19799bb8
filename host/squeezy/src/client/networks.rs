//! Lists of networks on the command line.

use serde::Serialize;
use squeezy_vmm::network::{Destination, InvalidDestination};
use std::str::FromStr;

/// Networks, with commas between them, or `none`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Networks(Vec<Destination>);

impl FromStr for Networks {
    type Err = InvalidDestination;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self(Vec::new())),
            list => {
                let networks = list.split(',').map(str::parse::<Destination>);
                networks.collect::<Result<_, _>>().map(Self)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn networks_are_listed_with_commas() {
        let list = |text: &str| text.parse::<Networks>().map(|networks| json!(networks));
        assert_eq!(list("none"), Ok(json!([])));
        assert_eq!(list("10.0.0.0/8,1.1.1.1:443"), Ok(json!(["10.0.0.0/8", "1.1.1.1:443"])));
        for wrong in ["", "10.0.0.0/8,", "10.0.0.0/8, 1.1.1.1", "none,1.1.1.1", "example.com"] {
            assert!(list(wrong).is_err(), "{wrong}");
        }
    }
}
