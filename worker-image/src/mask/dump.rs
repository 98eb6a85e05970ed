//! Reads a dump of bytes, as `xxd`, `hexdump` and `od` write it: an offset, the bytes in columns, perhaps the same as text beside.

/// The fewest digits of an offset; od's and hexdump's have 7, xxd's 8.
const OFFSET_MIN: u8 = 7;
const OFFSET_MAX: u8 = 16;
/// The most blanks between two columns: less than a line that ends early has before its text.
const BLANKS_MAX: u8 = 60;
/// The longest text beside the bytes, with what is around it.
const TEXT_MAX: u8 = 80;
/// The columns of one byte where bytes are shown as characters.
const FIELD: usize = 4;

/// How a dump writes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Two hexadecimal digits each, in order: xxd, hexdump -C, od -t x1.
    HexPairs,
    /// Four hexadecimal digits for two, the second first: hexdump, od -x.
    HexWords,
    /// Six octal digits for two, the second first (od), or three for one (od -b).
    Octal,
    /// A character or an escape each: od -c, hexdump -c.
    Characters,
}

/// All formats.
pub(super) const FORMATS: [Format; 4] = [Format::HexPairs, Format::HexWords, Format::Octal, Format::Characters];

/// What a byte of the stream comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// Nothing yet.
    Nothing,
    /// What was read before and what comes after do not belong together.
    Break,
    /// These bytes, the first `count` of them, whose column begins at `from`.
    Bytes {
        /// The bytes, in order.
        bytes: [u8; 2],
        /// How many they are.
        count: usize,
        /// Where their column begins.
        from: u64,
    },
    /// Part of the text beside the bytes.
    Text,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the offset, of so many digits so far.
    Offset(u8),
    /// Among the bytes.
    Bytes,
    /// In the text beside them, so far into it.
    Text(u8),
    /// In a line that is no dump's.
    Elsewhere,
}

/// A dump that is being read.
#[derive(Clone, Debug)]
pub(super) struct Dump {
    format: Format,
    place: Place,
    has_colon: bool,
    blanks: u8,
    /// The digits of the column that is begun, or its characters.
    value: u32,
    field: [u8; FIELD],
    length: usize,
    from: u64,
}

impl Dump {
    pub(super) fn new(format: Format) -> Self {
        let (place, field) = (Place::Offset(0), [0; FIELD]);
        Self { format, place, has_colon: false, blanks: 0, value: 0, field, length: 0, from: 0 }
    }

    /// Where the column begins that is not read to its end.
    pub(super) fn begun(&self) -> Option<u64> {
        (self.length > 0).then_some(self.from)
    }

    /// Whether it is in a line that is no dump's, whose rest says nothing.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.place == Place::Elsewhere
    }

    /// Reads the raw byte at `at`.
    pub(super) fn read(&mut self, at: u64, byte: u8) -> Read {
        if byte == b'\n' {
            let last = if self.place == Place::Bytes { self.column_ends() } else { Read::Nothing };
            *self = Self::new(self.format);
            return last;
        }
        match self.place {
            Place::Offset(digits) => self.offset(digits, at, byte),
            Place::Bytes => self.bytes(at, byte),
            Place::Text(TEXT_MAX) => self.elsewhere(),
            Place::Text(length) => {
                self.place = Place::Text(length + 1);
                Read::Text
            }
            Place::Elsewhere => Read::Nothing,
        }
    }

    fn offset(&mut self, digits: u8, at: u64, byte: u8) -> Read {
        match byte {
            b' ' if digits == 0 || digits >= OFFSET_MIN => self.begin_bytes(at),
            b':' if digits >= OFFSET_MIN => {
                self.has_colon = true;
                self.place = Place::Bytes;
                Read::Nothing
            }
            byte if byte.is_ascii_hexdigit() && digits < OFFSET_MAX => {
                self.place = Place::Offset(digits + 1);
                Read::Nothing
            }
            _ => self.elsewhere(),
        }
    }

    /// The blank that ends an offset is the first column's own.
    fn begin_bytes(&mut self, at: u64) -> Read {
        self.place = Place::Bytes;
        self.bytes(at, b' ')
    }

    fn elsewhere(&mut self) -> Read {
        self.place = Place::Elsewhere;
        self.length = 0;
        Read::Break
    }

    fn bytes(&mut self, at: u64, byte: u8) -> Read {
        if self.format == Format::Characters {
            return self.character(at, byte);
        }
        match byte {
            b' ' => self.blank(),
            b'|' | b'>' => {
                self.place = Place::Text(0);
                self.length = 0;
                Read::Text
            }
            b'\r' => Read::Nothing,
            byte => self.digit(at, byte),
        }
    }

    fn blank(&mut self) -> Read {
        let last = self.column_ends();
        self.blanks += 1;
        if last == Read::Break || self.blanks > BLANKS_MAX {
            return self.elsewhere();
        }
        if self.has_colon && self.blanks > 1 {
            self.place = Place::Text(0);
        }
        last
    }

    fn digit(&mut self, at: u64, byte: u8) -> Read {
        let (radix, whole) = match self.format {
            Format::HexPairs => (16, 2),
            Format::HexWords => (16, 4),
            // Which of both it is, its end tells.
            Format::Octal | Format::Characters => (8, usize::MAX),
        };
        let Some(digit) = char::from(byte).to_digit(radix).filter(|_| self.length < 6) else {
            return self.elsewhere();
        };
        if self.length == 0 {
            (self.from, self.value) = (at, 0);
        }
        self.blanks = 0;
        self.value = self.value * radix + digit;
        self.length += 1;
        if self.length == whole { self.column_ends() } else { Read::Nothing }
    }

    fn column_ends(&mut self) -> Read {
        let (length, from) = (std::mem::take(&mut self.length), self.from);
        let [.., high, low] = self.value.to_be_bytes();
        match (self.format, length) {
            (_, 0) | (Format::Characters, _) => Read::Nothing,
            (Format::HexPairs, 2) | (Format::Octal, 3) => Read::Bytes { bytes: [low, 0], count: 1, from },
            (Format::HexWords, 4) | (Format::Octal, 6) => Read::Bytes { bytes: [low, high], count: 2, from },
            (Format::HexPairs | Format::HexWords | Format::Octal, _) => Read::Break,
        }
    }

    fn character(&mut self, at: u64, byte: u8) -> Read {
        if self.length == 0 {
            self.from = at;
        }
        self.field[self.length] = byte;
        self.length += 1;
        if self.length < FIELD {
            return Read::Nothing;
        }
        self.length = 0;
        match shown(self.field) {
            Some(byte) => Read::Bytes { bytes: [byte, 0], count: 1, from: self.from },
            None => self.elsewhere(),
        }
    }
}

/// The byte that is shown like this.
fn shown(field: [u8; FIELD]) -> Option<u8> {
    match field {
        [b' ', b' ', b' ', byte] => Some(byte),
        [b' ', b' ', b'\\', escape] => match escape {
            b'0' => Some(0),
            b'a' => Some(7),
            b'b' => Some(8),
            b't' => Some(b'\t'),
            b'n' => Some(b'\n'),
            b'v' => Some(11),
            b'f' => Some(12),
            b'r' => Some(b'\r'),
            _ => None,
        },
        [b' ', digits @ ..] => u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 8).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(format: Format, text: &str) -> Vec<u8> {
        let mut dump = Dump::new(format);
        let reads = (0..).zip(text.bytes()).map(|(at, byte)| dump.read(at, byte));
        let bytes = reads.filter_map(|read| match read {
            Read::Bytes { bytes, count, .. } => Some(bytes[..count].to_vec()),
            Read::Nothing | Read::Break | Read::Text => None,
        });
        bytes.collect::<Vec<_>>().concat()
    }

    #[test]
    fn each_format_is_read_as_it_is_written() {
        let check = |format, text: &str| assert_eq!(read(format, text), b"first li\nt\xc3\xa4t\0", "{text}");
        check(Format::HexPairs, "00000000: 6669 7273 7420 6c69  first li\n00000008: 0a74 c3a4 7400       .t..t.\n");
        check(Format::HexPairs, "0000000 66 69 72 73 74 20 6c 69\n0000010 0a 74 c3 a4 74 00\n");
        check(
            Format::HexPairs,
            "00000000  66 69 72 73  74 20 6c 69  |first li|\n00000008  0a 74 c3 a4  74 00       |.t..t.|\n",
        );
        check(Format::HexWords, "0000000 6966 7372 2074 696c\n0000010 740a a4c3 0074\n");
        check(Format::Octal, "0000000 064546 071562 020164 064554\n0000010 072012 122303 000164\n");
        check(Format::Octal, "0000000 146 151 162 163 164 040 154 151\n0000010 012 164 303 244 164 000\n");
        check(Format::Characters, "0000000   f   i   r   s   t       l   i\n0000010  \\n   t 303 244   t  \\0\n");
        check(Format::HexPairs, " 66 69 72 73 74 20 6c 69\n 0a 74 c3 a4 74 00\n");
    }

    #[test]
    fn other_lines_hold_nothing_and_begin_nothing() {
        for format in FORMATS {
            assert_eq!(read(format, "12 apples\nabc\ndeadbeef\n1234567x\n0000000\n"), b"");
        }
    }
}
