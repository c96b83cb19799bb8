//! Sizes of memory, as people read them.

use std::fmt;

/// So many bytes, shown in the largest unit of which there is one at least: `1.2 GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.into_iter().find(|(unit, _)| self.0 >= *unit) {
            Some((unit, name)) if self.0.is_multiple_of(unit) => {
                write!(f, "{} {name}", self.0 / unit)
            }
            Some((unit, name)) => write!(f, "{:.1} {name}", self.0 as f64 / unit as f64),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_units_that_fit() {
        let shown = [0, 1000, 1 << 20, 1188 << 20, 23 << 30, 200 << 30, 1 << 40];
        let shown = shown.map(|bytes| Size(bytes).to_string());
        let right = ["0 bytes", "1000 bytes", "1 MiB", "1.2 GiB", "23 GiB", "200 GiB", "1 TiB"];
        assert_eq!(shown, right);
    }
}
