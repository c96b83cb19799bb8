//! How much memory JSON values take.

use serde::{
    Deserializer, Serialize,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;
use std::{fmt, io};

/// Approximate memory of a stored value, in bytes.
pub fn size_of_value(value: &Value) -> usize {
    let entry = |(key, value): (&String, &Value)| {
        2 * size_of::<String>() + key.len() + size_of_value(value)
    };
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Array(values) => values.iter().map(size_of_value).sum(),
            Value::Object(entries) => entries.iter().map(entry).sum(),
            _ => 0,
        }
}

/// How much memory the value of a JSON text would take, in bytes, without building it. An array of small
/// arrays takes forty times the size of its text.
pub fn size_of_text(text: &[u8]) -> serde_json::Result<usize> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let size = Size.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(size)
}

/// How long a value is as JSON, in bytes, without building the text.
pub fn length_as_text(value: &(impl Serialize + ?Sized)) -> serde_json::Result<usize> {
    struct Length(usize);
    impl io::Write for Length {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut length = Length(0);
    serde_json::to_writer(&mut length, value)?;
    Ok(length.0)
}

/// The allocator's overhead per allocation, in bytes.
const ALLOCATION: usize = 16;

/// Counts bytes instead of building a value.
struct Size;

impl<'de> DeserializeSeed<'de> for Size {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Size {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<usize, E> {
        Ok(size_of::<Value>())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<usize, E> {
        Ok(size_of::<Value>())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<usize, E> {
        Ok(size_of::<Value>())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<usize, E> {
        Ok(size_of::<Value>())
    }

    fn visit_unit<E: Error>(self) -> Result<usize, E> {
        Ok(size_of::<Value>())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<usize, E> {
        Ok(size_of::<Value>() + ALLOCATION + text.len())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<usize, A::Error> {
        let (mut count, mut inside) = (0usize, 0);
        while let Some(size) = values.next_element_seed(Size)? {
            count += 1;
            inside += size - size_of::<Value>();
        }
        // A vector grows by doubling, starting with four.
        let room = if count == 0 { 0 } else { count.next_power_of_two().max(4) };
        let allocation = if count == 0 { 0 } else { ALLOCATION };
        Ok(size_of::<Value>() + allocation + room * size_of::<Value>() + inside)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<usize, A::Error> {
        let (mut count, mut inside) = (0usize, 0);
        while let Some(key) = entries.next_key_seed(Size)? {
            count += 1;
            inside +=
                key - size_of::<Value>() + entries.next_value_seed(Size)? - size_of::<Value>();
        }
        // A node of the tree has room for eleven entries and holds at least five.
        let node = 11 * (size_of::<String>() + size_of::<Value>()) + 3 * ALLOCATION;
        Ok(size_of::<Value>() + count.div_ceil(5) * node + inside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_its_length() {
        let value = serde_json::json!({ "a": [1, "\n"] });
        assert_eq!(length_as_text(&value).unwrap(), value.to_string().len());
    }

    #[test]
    fn a_value_takes_more_than_its_text() {
        assert_eq!(size_of_text(b"1").unwrap(), size_of::<Value>());
        let text = format!("\"{}\"", "x".repeat(1000));
        assert!((1000..1100).contains(&size_of_text(text.as_bytes()).unwrap()));
        let small = format!("[{}]", ["[0]"; 1000].join(","));
        assert!(size_of_text(small.as_bytes()).unwrap() >= 1000 * 5 * size_of::<Value>());
        let entries: Vec<_> = (0..1000).map(|key| format!("\"{key}\":0")).collect();
        let object = format!("{{{}}}", entries.join(","));
        assert!(size_of_text(object.as_bytes()).unwrap() >= 1000 * 2 * size_of::<Value>());
        for wrong in ["", "[", "1 2", "{\"a\"}", &"[".repeat(1000)] {
            assert!(size_of_text(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
