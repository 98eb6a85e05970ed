//! What single digits and escapes stand for.

/// The longest escape of HTML that is looked for, without its `&` and `;`.
pub(super) const ENTITY_MAX: usize = 8;

pub(super) fn digit(bits: u32, byte: u8) -> Option<u32> {
    match bits {
        4 => hex(byte),
        5 => quintet(byte),
        _ => sextet(byte),
    }
}

pub(super) fn hex(byte: u8) -> Option<u32> {
    char::from(byte).to_digit(16)
}

pub(super) fn quintet(byte: u8) -> Option<u32> {
    match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'2'..=b'7' => Some(u32::from(byte - b'2') + 26),
        _ => None,
    }
}

/// The character that `&` and `escape` stand for, if it is a whole escape.
pub(super) fn entity(escape: &[u8]) -> Option<char> {
    let name = std::str::from_utf8(escape.strip_suffix(b";")?).ok()?;
    let number = name.strip_prefix('#');
    match (name, number.and_then(|number| number.strip_prefix(['x', 'X'])), number) {
        ("amp", ..) => Some('&'),
        ("lt", ..) => Some('<'),
        ("gt", ..) => Some('>'),
        ("quot", ..) => Some('"'),
        ("apos", ..) => Some('\''),
        (_, Some(digits), _) => char::from_u32(u32::from_str_radix(digits, 16).ok()?),
        (_, None, Some(digits)) => char::from_u32(digits.parse().ok()?),
        (_, None, None) => None,
    }
}

pub(super) fn sextet(byte: u8) -> Option<u32> {
    let digit = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    };
    Some(digit.into())
}
