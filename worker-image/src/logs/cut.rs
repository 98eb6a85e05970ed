//! Where bytes are cut into chunks: within the limit as encoded, and never inside a character.

/// How many of the first bytes of `bytes` make a chunk whose content takes at most `max` bytes as encoded: themselves
/// where they are UTF-8, four for three where they are not. At least 1 unless `bytes` is empty.
#[must_use]
pub fn cut(bytes: &[u8], max: usize) -> usize {
    let as_text = whole_chars(&bytes[..bytes.len().min(max)]);
    if as_text > 0 && std::str::from_utf8(&bytes[..as_text]).is_ok() {
        return as_text;
    }
    let as_base64 = bytes.len().min((max / 4 * 3).max(1));
    match whole_chars(&bytes[..as_base64]) {
        0 => as_base64,
        whole => whole,
    }
}

/// How many of the first bytes of `bytes` are left once the beginning of a character at its end, if there is one, is
/// taken away.
#[must_use]
pub fn whole_chars(bytes: &[u8]) -> usize {
    let last = bytes.len().saturating_sub(3);
    let begun = (last..bytes.len()).rev().find(|at| bytes[*at] >= 0xc0);
    match begun {
        Some(at) if std::str::from_utf8(&bytes[at..]).is_err_and(|error| error.error_len().is_none()) => at,
        Some(_) | None => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use protocol::log::{Chunk, Stream};

    fn chunks(mut bytes: &[u8], max: usize) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        while !bytes.is_empty() {
            let (chunk, rest) = bytes.split_at(cut(bytes, max));
            chunks.push(Chunk::new(1, "test", Stream::Stdout, 0, chunk));
            bytes = rest;
        }
        chunks
    }

    #[test]
    fn a_character_at_the_limit_goes_to_the_next_chunk() {
        assert_eq!(cut("abcü".as_bytes(), 4), 3);
        assert_eq!(cut("abcü".as_bytes(), 5), 5);
        assert_eq!(whole_chars(b"ab\xe2\x82"), 2);
        assert_eq!(whole_chars(b"ab\xe2\x82\xac"), 5);
    }

    #[test]
    fn bytes_that_begin_no_character_are_not_held_back() {
        assert_eq!(whole_chars(b"ab\xff"), 3);
        assert_eq!(whole_chars(b"ab\x80\x80\x80\x80"), 6);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_every_chunk_fits(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            max in 4usize..64,
        ) {
            let chunks = chunks(&bytes, max);
            let joined: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.bytes().unwrap()).collect();
            prop_assert_eq!(joined, bytes);
            prop_assert!(chunks.iter().all(|chunk| chunk.encoded_bytes() <= max));
        }

        #[test]
        fn text_stays_text(text in "\\PC{0,200}", max in 4usize..64) {
            prop_assert!(chunks(text.as_bytes(), max).iter().all(|chunk| chunk.text.is_some()));
        }
    }
}
