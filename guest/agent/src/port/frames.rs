//! Tracks where HTTP/2 frames begin, to tell the start of a new connection from the content of an old one.

/// What every HTTP/2 client sends first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A frame starts with its length (3 bytes), type, flags and stream (RFC 9113, 4.1).
pub const FRAME_HEADER_BYTES: usize = 9;

/// Follows the frames of one connection.
///
/// The start of a preface cannot be a frame: its length would be 0x505249, and frames are at most 16 KiB
/// unless the reader allows more, which the agent does not. The content of a request may contain a preface,
/// but never where a frame begins.
#[derive(Debug, Default)]
pub struct Frames {
    header: [u8; FRAME_HEADER_BYTES],
    /// Bytes of the header read so far.
    known: usize,
    /// Bytes of the frame's content still to come.
    content: usize,
}

impl Frames {
    /// Follows more bytes. Returns the offset after the first [`FRAME_HEADER_BYTES`] of a preface, if they
    /// are where a frame begins.
    pub fn next_preface(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() {
            if self.content > 0 {
                let skipped = self.content.min(bytes.len() - at);
                self.content -= skipped;
                at += skipped;
                continue;
            }
            self.header[self.known] = bytes[at];
            self.known += 1;
            at += 1;
            if self.known == FRAME_HEADER_BYTES {
                if self.header == PREFACE[..FRAME_HEADER_BYTES] {
                    return Some(at);
                }
                let [high, middle, low, ..] = self.header;
                self.content = u32::from_be_bytes([0, high, middle, low]) as usize;
                self.known = 0;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(content: &[u8]) -> Vec<u8> {
        let length = (content.len() as u32).to_be_bytes();
        [&length[1..], &[0; 6], content].concat()
    }

    #[test]
    fn content_is_no_preface() {
        let bytes = [frame(PREFACE), frame(b""), frame(&PREFACE.repeat(100))].concat();
        assert_eq!(Frames::default().next_preface(&bytes), None);
    }

    proptest! {
        /// However the bytes are split, the preface is found after the last frame.
        #[test]
        fn a_preface_between_frames_is_found(
            contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..5),
            piece in 1usize..100,
        ) {
            let old = contents.iter().flat_map(|content| frame(content)).collect::<Vec<_>>();
            let bytes = [&old[..], PREFACE, b"more"].concat();
            let mut frames = Frames::default();
            let found = bytes.chunks(piece).enumerate().find_map(|(number, piece_bytes)| {
                frames.next_preface(piece_bytes).map(|end| number * piece + end)
            });
            prop_assert_eq!(found, Some(old.len() + FRAME_HEADER_BYTES));
        }
    }
}
