//! Web actions: actions that answer HTTP requests, also of clients without a key.
//!
//! <https://github.com/apache/openwhisk/blob/master/docs/webactions.md>: annotations make an action one
//! ([`Export`]), its arguments say what the client has sent ([`arguments()`]), and its result is the answer
//! ([`WebAnswer`]).

mod answer;
mod arguments;
mod export;
mod headers;

pub use answer::{WebAnswer, WebError};
pub use arguments::{MOST_PARAMETERS, WebRequest, arguments};
pub use export::{Access, Export};
pub use headers::confine_cookies;

use mime::Mime;

/// What a client wants to have of the result, from the end of the action's name in the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// An HTTP answer: `statusCode`, `headers` and `body` of the result.
    Http,
    /// The result, an object or an array.
    Json,
    /// Its `body` or `html`, as a page.
    Html,
    /// Its `body` or `svg`, as an image.
    Svg,
    /// Its `body` or `text`, as text.
    Text,
}

impl Extension {
    /// The action's name, and the extension that follows it.
    pub fn split(name: &str) -> (&str, Self) {
        let all = [
            (".http", Self::Http),
            (".json", Self::Json),
            (".html", Self::Html),
            (".svg", Self::Svg),
            (".text", Self::Text),
        ];
        let mut found = all.iter().filter_map(|(end, one)| Some((name.strip_suffix(end)?, *one)));
        found.next().unwrap_or((name, Self::Http))
    }

    /// The field of the result that is sent if there is no `body`; `None` if the result itself is.
    fn part(self) -> Option<&'static str> {
        match self {
            Self::Http | Self::Json => None,
            Self::Html => Some("html"),
            Self::Svg => Some("svg"),
            Self::Text => Some("text"),
        }
    }
}

/// Whether content of this type is JSON.
fn is_json(kind: &Mime) -> bool {
    kind.subtype() == mime::JSON || kind.suffix() == Some(mime::JSON)
}

/// Whether content of this type is a text. Anything else is in base64 where it is in JSON, as in OpenWhisk.
fn is_text(kind: &Mime) -> bool {
    if kind.essence_str() == mime::IMAGE_SVG.essence_str() {
        return false;
    }
    let is_xml = kind.subtype() == mime::XML || kind.suffix() == Some(mime::XML);
    let is_program = kind.subtype() == mime::JAVASCRIPT;
    let is_form = kind.subtype() == mime::WWW_FORM_URLENCODED;
    kind.type_() == mime::TEXT || is_json(kind) || is_xml || is_program || is_form
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_is_at_the_end_of_the_name() {
        for (name, right) in [
            ("hello", ("hello", Extension::Http)),
            ("hello.http", ("hello", Extension::Http)),
            ("hello.json", ("hello", Extension::Json)),
            ("hello.html.svg", ("hello.html", Extension::Svg)),
            ("hello.png", ("hello.png", Extension::Http)),
            (".text", ("", Extension::Text)),
        ] {
            assert_eq!(Extension::split(name), right);
        }
    }

    #[test]
    fn texts_and_the_rest_are_told_apart() {
        let kind = |text: &str| text.parse::<Mime>().unwrap();
        for text in [
            "text/plain",
            "text/html; charset=utf-8",
            "application/json",
            "application/problem+json",
            "application/atom+xml",
            "application/xml",
            "application/javascript",
        ] {
            assert!(is_text(&kind(text)), "{text}");
        }
        for binary in [
            "application/octet-stream",
            "image/png",
            "image/svg+xml; charset=utf-8",
            "multipart/form-data; boundary=x",
        ] {
            assert!(!is_text(&kind(binary)), "{binary}");
        }
    }
}
