//! Headers of each request to the collector, from a file, because some are secret.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The largest file, in bytes.
pub const MAX_BYTES: usize = 64 << 10;

/// Reads lines such as `Authorization: Bearer TOKEN`; empty ones and those that begin with # do not count. An error
/// names the line and not what is in it.
pub fn parse(text: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    if text.len() > MAX_BYTES {
        return Err(format!("larger than {} KiB", MAX_BYTES >> 10));
    }
    for (number, line) in text.lines().map(str::trim).enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = || format!("line {}: must be NAME: VALUE", number + 1);
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| wrong())?;
        let mut value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_header() {
        let headers = parse("# of the vendor\nAuthorization: Bearer a:b \n\nX-Tenant:7\n").unwrap();
        assert_eq!(headers.len(), 2);
        assert_eq!(headers["authorization"], "Bearer a:b");
        assert_eq!(headers["x-tenant"], "7");
        assert!(!format!("{headers:?}").contains("Bearer"));
    }

    #[test]
    fn an_error_has_no_secret() {
        for wrong in ["a: b\nsecret", "a: b\nse cret: 1", "a: b\nx: \u{7f}secret"] {
            assert_eq!(parse(wrong).unwrap_err(), "line 2: must be NAME: VALUE");
        }
        assert!(parse(&"#".repeat(MAX_BYTES + 1)).unwrap_err().contains("64 KiB"));
    }
}
