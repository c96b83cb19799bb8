//! Kubernetes' quantities, as its API server writes them: `128Mi`, `1500M`, `134217728`, `12e6`.

/// How many bytes a quantity is, rounded up; nothing if it is none, or more than there can be.
pub fn bytes(quantity: &str) -> Option<u64> {
    let digits = quantity.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = quantity.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let binary = |power: u32| 1024u64.checked_pow(power);
    let decimal = |power: u32| 10u64.checked_pow(power);
    let unit = match unit {
        "" => 1,
        // A thousandth is a unit that processors have; nobody has a part of a byte.
        "m" => return Some(number.div_ceil(1000)),
        "Ki" => binary(1)?,
        "Mi" => binary(2)?,
        "Gi" => binary(3)?,
        "Ti" => binary(4)?,
        "Pi" => binary(5)?,
        "Ei" => binary(6)?,
        "k" => decimal(3)?,
        "M" => decimal(6)?,
        "G" => decimal(9)?,
        "T" => decimal(12)?,
        "P" => decimal(15)?,
        "E" => decimal(18)?,
        _ => decimal(unit.strip_prefix(['e', 'E'])?.parse().ok()?)?,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_api_server_writes_is_understood() {
        for (quantity, expected) in [
            ("0", 0),
            ("134217728", 128 << 20),
            ("128Mi", 128 << 20),
            ("64Gi", 64 << 30),
            ("15Ei", 15 << 60),
            ("128M", 128_000_000),
            ("1k", 1000),
            ("12e6", 12_000_000),
            ("12E6", 12_000_000),
            ("2E", 2_000_000_000_000_000_000),
            ("1500m", 2),
        ] {
            assert_eq!(bytes(quantity), Some(expected), "{quantity}");
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for quantity in [
            "",
            "Mi",
            "-1",
            "1.5Gi",
            "16Ei",
            "1e20",
            "1e-3",
            "1 Mi",
            "1mi",
            "٣",
            "99999999999999999999",
        ] {
            assert_eq!(bytes(quantity), None, "{quantity}");
        }
    }
}
