//! Takes the code out of the text of a request while that comes: the string that is `code` of the object `exec`.
//!
//! Where it is, there is an empty string in the rest, and nothing else is looked at: of a text that is no JSON, neither is
//! the rest.

/// The longest name that is looked for, and one byte more.
const MOST_NAME: usize = 5;

/// What is wrong with a unit of UTF-16 that is no character.
const HALF: &str = "exec.code has half of a character";

/// A text in two.
#[derive(Default)]
pub struct Splitter {
    /// What has come beside the code.
    pub rest: Vec<u8>,
    /// What has come of the code since somebody has taken that away, as the string says it.
    pub code: Vec<u8>,
    place: Place,
    /// The first half of a character of the code that is given as two units.
    half: Option<u32>,
    depth: usize,
    /// How the latest string begins, which may be a name.
    name: Vec<u8>,
    in_exec: bool,
    in_code: bool,
    has_code: bool,
}

/// Where in the text the next byte is.
#[derive(Clone, Copy, Default)]
enum Place {
    #[default]
    Between,
    /// In a string that is no code; after a backslash or not.
    String { escaped: bool },
    /// In the code.
    Code,
    /// After a backslash in the code.
    Escape,
    /// In the digits of a UTF-16 unit there.
    Unit { digits: u8, unit: u32 },
}

impl Splitter {
    /// Takes more of the text; says what is wrong with the code.
    pub fn take(&mut self, mut data: &[u8]) -> Result<(), &'static str> {
        while let Some(&byte) = data.first() {
            let taken = match self.place {
                Place::Between => self.between(byte)?,
                Place::String { escaped } => self.of_string(escaped, data),
                Place::Code => self.of_code(data)?,
                Place::Escape => self.of_escape(byte)?,
                Place::Unit { digits, unit } => self.of_unit(digits, unit, byte)?,
            };
            data = &data[taken..];
        }
        Ok(())
    }

    fn between(&mut self, byte: u8) -> Result<usize, &'static str> {
        match byte {
            b'"' if self.depth == 2 && self.in_exec && self.in_code => {
                if self.has_code {
                    return Err("exec.code is there more than once");
                }
                self.has_code = true;
                self.place = Place::Code;
                self.rest.extend_from_slice(b"\"\"");
                return Ok(1);
            }
            b'"' => {
                self.name.clear();
                self.place = Place::String { escaped: false };
            }
            b'{' | b'[' => {
                self.depth += 1;
                self.in_code &= self.depth > 2;
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b':' if self.depth == 1 => self.in_exec = self.name == b"exec",
            b':' if self.depth == 2 => self.in_code = self.name == b"code",
            b',' if self.depth == 1 => self.in_exec = false,
            b',' if self.depth == 2 => self.in_code = false,
            _ => {}
        }
        self.rest.push(byte);
        Ok(1)
    }

    fn of_string(&mut self, escaped: bool, data: &[u8]) -> usize {
        let ends = |byte: &u8| matches!(*byte, b'"' | b'\\');
        let plain = if escaped { 0 } else { data.iter().position(ends).unwrap_or(data.len()) };
        // What ends it, or is escaped, belongs to it.
        let taken = data.len().min(plain + 1);
        let part = &data[..taken];
        self.rest.extend_from_slice(part);
        let of_name = MOST_NAME.saturating_sub(self.name.len());
        match part.last() {
            Some(b'"') if !escaped => {
                self.name.extend_from_slice(&part[..plain.min(of_name)]);
                self.place = Place::Between;
            }
            last => {
                self.name.extend_from_slice(&part[..taken.min(of_name)]);
                let escaped = !escaped && last == Some(&b'\\');
                self.place = Place::String { escaped };
            }
        }
        taken
    }

    fn of_code(&mut self, data: &[u8]) -> Result<usize, &'static str> {
        let ends = |byte: &u8| matches!(*byte, b'"' | b'\\' | ..b' ');
        let plain = data.iter().position(ends).unwrap_or(data.len());
        if self.half.is_some() && data.first() != Some(&b'\\') {
            return Err(HALF);
        }
        self.code.extend_from_slice(&data[..plain]);
        match data.get(plain) {
            None => return Ok(plain),
            Some(b'"') => self.place = Place::Between,
            Some(b'\\') => self.place = Place::Escape,
            Some(_) => return Err("exec.code has a control character that is not escaped"),
        }
        Ok(plain + 1)
    }

    fn of_escape(&mut self, byte: u8) -> Result<usize, &'static str> {
        if self.half.is_some() && byte != b'u' {
            return Err(HALF);
        }
        let meant = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                self.place = Place::Unit { digits: 0, unit: 0 };
                return Ok(1);
            }
            _ => return Err("exec.code has an escape that JSON does not have"),
        };
        self.code.push(meant);
        self.place = Place::Code;
        Ok(1)
    }

    fn of_unit(&mut self, digits: u8, unit: u32, byte: u8) -> Result<usize, &'static str> {
        let digit =
            char::from(byte).to_digit(16).ok_or("exec.code has an escape without digits")?;
        let unit = 16 * unit + digit;
        if digits < 3 {
            self.place = Place::Unit { digits: digits + 1, unit };
            return Ok(1);
        }
        self.place = Place::Code;
        let scalar = match (self.half.take(), unit) {
            (None, 0xd800..0xdc00) => {
                self.half = Some(unit);
                return Ok(1);
            }
            (None, unit) => unit,
            (Some(half), 0xdc00..0xe000) => 0x10000 + ((half - 0xd800) << 10) + (unit - 0xdc00),
            (Some(_), _) => return Err(HALF),
        };
        let character = char::from_u32(scalar).ok_or(HALF)?;
        self.code.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// The text in two, taken in parts of this length.
    fn split(text: &[u8], part: usize) -> Result<(Vec<u8>, Vec<u8>), &'static str> {
        let mut splitter = Splitter::default();
        for part in text.chunks(part) {
            splitter.take(part)?;
        }
        Ok((splitter.rest, splitter.code))
    }

    fn both(text: &str, part: usize) -> (Value, String) {
        let (rest, code) = split(text.as_bytes(), part).unwrap();
        (serde_json::from_slice(&rest).unwrap(), String::from_utf8(code).unwrap())
    }

    #[test]
    fn only_the_code_is_taken_out() {
        let text = r#" {"code": "a", "x": {"code": "b"}, "parameters": [{"key": "exec", "value": {"code": "c"}}],
            "exec" : {"kind": "code", "codes": "d", "main": {"code": "e"}, "code" : "\"f\\\u00e9\ud83d\ude00\/é\n", "image": "g"},
            "exec\u0020": {"code": "h"}}"#;
        let mut rest: Value = serde_json::from_str(text).unwrap();
        assert_eq!(rest["exec"]["code"], "\"f\\é😀/é\n");
        rest["exec"]["code"] = json!("");
        for part in [1, 2, 3, 7, text.len()] {
            assert_eq!(both(text, part), (rest.clone(), "\"f\\é😀/é\n".to_owned()), "{part}");
        }
        for without in [
            r#"{"exec": {"code": null}, "e": "exec"}"#,
            r#"{"exec": {"code": ["x"]}}"#,
            r#"{"exec": {"code": {"code": "x"}}}"#,
            r#"{"exec": "code", "code": "x"}"#,
            r#"{"ex\u0065c": {"code": "x"}}"#,
            "[]",
        ] {
            let all = serde_json::from_str(without).unwrap();
            assert_eq!(both(without, 1), (all, String::new()));
        }
    }

    #[test]
    fn what_is_no_json_is_none_afterwards() {
        for wrong in [
            r#"{"exec": {"code": "x"#,
            r#"{"exec": {"code": "x"}"#,
            r#"{"exec": ["code": "x"]}"#,
            r#"["exec": {"code": "x"}]"#,
            r#"{"exec": {"code": "x"}} {}"#,
        ] {
            let (rest, _) = split(wrong.as_bytes(), 3).unwrap();
            assert!(serde_json::from_slice::<Value>(&rest).is_err(), "{wrong}");
        }
        for (wrong, part) in [
            (r#"{"exec": {"code": "x", "code": "y"}}"#, "more than once"),
            (r#"{"exec": {"code": "x" "y"}}"#, "more than once"),
            (r#"{"exec": {"code": "x"}, "exec": {"code": "y"}}"#, "more than once"),
            ("{\"exec\": {\"code\": \"\n\"}}", "control character"),
            (r#"{"exec": {"code": "\x"}}"#, "escape"),
            (r#"{"exec": {"code": "\u00x0"}}"#, "escape"),
            (r#"{"exec": {"code": "\ud83d"}}"#, "half of a character"),
            (r#"{"exec": {"code": "\ud83dx"}}"#, "half of a character"),
            (r#"{"exec": {"code": "\ud83d\n"}}"#, "half of a character"),
            (r#"{"exec": {"code": "\ude00"}}"#, "half of a character"),
        ] {
            let error = split(wrong.as_bytes(), 5).unwrap_err();
            assert!(error.contains(part), "{wrong}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_code_is_what_the_string_says(code in ".*", other in ".*", part in 1..50_usize) {
            let text = json!({ "a": other, "exec": { "b": other, "code": code, "z": other } });
            let (rest, split) = both(&text.to_string(), part);
            prop_assert_eq!(split, code);
            let right = json!({ "a": other, "exec": { "b": other, "code": "", "z": other } });
            prop_assert_eq!(rest, right);
        }
    }
}
