//! In which forms a secret may turn up in a log.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use std::fmt::Write as _;

/// A value shorter than this can't be masked: it would blacken half the log.
const SECRET_MIN_BYTES: usize = 3;
/// Parts of an encoded value may be found at another offset; shorter parts than this say nothing.
const ENCODED_MIN_BYTES: usize = 8;

/// A value as it is, each of its lines, and how programs encode it.
pub(super) fn forms(value: &str) -> Vec<Vec<u8>> {
    let whole = value.trim();
    let mut forms: Vec<Vec<u8>> = vec![value.into(), whole.into()];
    if whole.contains('\n') {
        forms.extend(whole.lines().map(|line| line.trim().into()));
        forms.push(whole.replace('\n', "\r\n").into_bytes());
    }
    for value in [value, whole] {
        forms.extend(json(value));
        forms.extend(percent(value));
        forms.push(hex::encode(value).into_bytes());
        forms.push(hex::encode_upper(value).into_bytes());
        forms.extend(base64(value.as_bytes()));
    }
    forms.retain(|form| form.len() >= SECRET_MIN_BYTES);
    forms
}

fn json(value: &str) -> Option<Vec<u8>> {
    let quoted = serde_json::to_string(value).ok()?;
    Some(quoted.trim_matches('"').as_bytes().to_vec())
}

fn percent(value: &str) -> Vec<Vec<u8>> {
    let encode = |space: &str, upper: bool| {
        value.bytes().fold(String::new(), |mut text, byte| {
            match byte {
                byte if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => text.push(char::from(byte)),
                b' ' => text.push_str(space),
                byte if upper => write!(text, "%{byte:02X}").unwrap_or_default(),
                byte => write!(text, "%{byte:02x}").unwrap_or_default(),
            }
            text
        })
    };
    [("%20", true), ("%20", false), ("+", true)].map(|(space, upper)| encode(space, upper).into_bytes()).into()
}

/// The value encoded alone, and as the part of a longer text at each of the three offsets.
fn base64(value: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = vec![STANDARD.encode(value).into_bytes()];
    for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
        forms.push(engine.encode(value).into_bytes());
        for offset in 0..3 {
            let shifted = engine.encode([&[0; 2][..offset], value].concat());
            let first = [0, 2, 3][offset];
            let last = (offset + value.len()) * 8 / 6;
            let part = shifted.get(first..last).unwrap_or("");
            if part.len() >= ENCODED_MIN_BYTES {
                forms.push(part.as_bytes().to_vec());
            }
        }
    }
    forms
}
