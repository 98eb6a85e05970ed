//! Strangers' text on a terminal: a build's output, a worker's name, an error's words. It may colour itself, where colours
//! are wanted; it can't move the cursor, clear the screen, set a title, or turn text around.

/// How long the parameters of a sequence that colours may be.
const PARAMETERS_MAX: usize = 64;

#[derive(Debug, PartialEq, Eq)]
enum State {
    Text,
    /// After ESC.
    Escape,
    /// After ESC and what announces one more character.
    Intermediate,
    /// After ESC [: the parameters so far.
    Control(String),
    /// Inside a title, a hyperlink or the like, which ends with BEL or ST.
    Quoted,
    /// After an ESC inside of it.
    QuotedEscape,
}

/// One line of output, without its newline. Of a line that was written over with carriage returns, what stands at last. With
/// `colours` the sequences that colour stay, and end with the line.
#[must_use]
pub fn line(bytes: &[u8], colours: bool) -> String {
    let text = String::from_utf8_lossy(bytes);
    let last = text.split('\r').rfind(|part| !part.is_empty()).unwrap_or("");
    let mut cleaner =
        Cleaner { state: State::Text, clean: String::with_capacity(last.len()), colours, coloured: false };
    last.chars().for_each(|letter| cleaner.take(letter));
    if cleaner.coloured {
        cleaner.clean.push_str("\x1b[0m");
    }
    cleaner.clean
}

/// A text as part of a line of our own: no control at all, and line breaks are spaces.
#[must_use]
pub fn plain(text: &str) -> String {
    let joined: String =
        text.chars().map(|letter| if matches!(letter, '\n' | '\r' | '\t') { ' ' } else { letter }).collect();
    line(joined.as_bytes(), false)
}

/// A name as part of a line of our own, so that no two names look alike: what takes no room, or turns text around, is shown by its
/// number, such as `\u{202e}`. (Git lets a ref hold all of it, and no backslash.)
#[must_use]
pub fn exact(name: &str) -> String {
    name.chars().map(shown).collect()
}

fn shown(letter: char) -> String {
    if is_invisible(letter) || is_blank(letter) {
        return letter.escape_unicode().to_string();
    }
    if matches!(letter, '"' | '\'') {
        return letter.to_string();
    }
    // Behind another letter, one that combines with it is no cause to escape.
    ['a', letter].iter().collect::<String>().escape_debug().skip(1).collect()
}

/// What is taken for a letter and shows nothing.
fn is_blank(letter: char) -> bool {
    matches!(letter,
        '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2800}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{e0100}'..='\u{e01ef}')
}

struct Cleaner {
    state: State,
    clean: String,
    colours: bool,
    coloured: bool,
}

impl Cleaner {
    fn take(&mut self, letter: char) {
        let state = std::mem::replace(&mut self.state, State::Text);
        self.state = match state {
            State::Text => self.text(letter),
            State::Escape => escape(letter),
            State::Intermediate if matches!(letter, ' '..='/') => State::Intermediate,
            State::Intermediate => State::Text,
            State::Control(parameters) => self.control(parameters, letter),
            State::Quoted => quoted(letter),
            State::QuotedEscape if letter == '\\' => State::Text,
            State::QuotedEscape => escape(letter),
        };
    }

    fn text(&mut self, letter: char) -> State {
        match letter {
            '\x1b' => return State::Escape,
            '\u{9b}' => return State::Control(String::new()),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => return State::Quoted,
            '\t' => self.clean.push('\t'),
            letter if letter.is_control() || is_invisible(letter) => {}
            letter => self.clean.push(letter),
        }
        State::Text
    }

    fn control(&mut self, mut parameters: String, letter: char) -> State {
        match letter {
            '\x1b' => State::Escape,
            ' '..='?' => {
                parameters.push(letter);
                State::Control(parameters)
            }
            'm' => {
                self.colour(&parameters);
                State::Text
            }
            _ => State::Text,
        }
    }

    fn colour(&mut self, parameters: &str) {
        let is_colour = parameters.chars().all(|letter| letter.is_ascii_digit() || matches!(letter, ';' | ':'));
        if self.colours && is_colour && parameters.len() <= PARAMETERS_MAX {
            self.clean.push_str("\x1b[");
            self.clean.push_str(parameters);
            self.clean.push('m');
            self.coloured = true;
        }
    }
}

fn escape(letter: char) -> State {
    match letter {
        '\x1b' => State::Escape,
        '[' => State::Control(String::new()),
        ']' | 'P' | 'X' | '^' | '_' => State::Quoted,
        ' '..='/' => State::Intermediate,
        _ => State::Text,
    }
}

fn quoted(letter: char) -> State {
    match letter {
        '\x07' | '\u{9c}' => State::Text,
        '\x1b' => State::QuotedEscape,
        _ => State::Quoted,
    }
}

/// What turns text around, breaks lines or takes no room: it makes a line read as something else.
fn is_invisible(letter: char) -> bool {
    matches!(letter,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
        | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(dirty: &str, coloured: &str, bare: &str) {
        assert_eq!(line(dirty.as_bytes(), true), coloured);
        assert_eq!(line(dirty.as_bytes(), false), bare);
    }

    #[test]
    fn colours_stay_where_they_are_wanted_and_end_with_the_line() {
        check("\x1b[1;31mred\x1b[0m plain", "\x1b[1;31mred\x1b[0m plain\x1b[0m", "red plain");
        check("\x1b[38:2::1:2:3mrgb", "\x1b[38:2::1:2:3mrgb\x1b[0m", "rgb");
        check("no colour\tat all ✓", "no colour\tat all ✓", "no colour\tat all ✓");
    }

    #[test]
    fn nothing_else_of_a_terminal_can_be_controlled() {
        for dirty in [
            "a\x1b[2Jb",
            "a\x1b[10;20Hb",
            "a\x1b]0;title\x07b",
            "a\x1b]8;;http://x\x1b\\b",
            "a\x1bPq#0\x1b\\b",
            "a\x1b(0b",
            "a\x1b[?1049hb",
            "a\x1b[>4mb",
            "a\x1b[6nb",
            "a\u{9b}2Jb",
            "a\u{9d}0;title\u{9c}b",
            "a\x08\x07\x0b\x0cb\x7f",
            "a\u{202e}b",
            "a\x1bcb",
        ] {
            check(dirty, "ab", "ab");
        }
        check("a\x1b]0;never ended", "a", "a");
        check("a\x1b[31", "a", "a");
    }

    #[test]
    fn of_a_progress_bar_its_last_state_is_left() {
        check("10%\r50%\r100%\r", "100%", "100%");
        check("with windows' end\r", "with windows' end", "with windows' end");
    }

    #[test]
    fn what_is_not_utf8_is_marked() {
        assert_eq!(line(b"a\xffb", true), "a\u{fffd}b");
    }

    #[test]
    fn text_within_a_line_of_ours_stays_on_it() {
        assert_eq!(plain("a\x1b[31mb\nc\r\nd"), "ab c  d");
    }

    #[test]
    fn no_two_refs_look_alike() {
        for (name, expected) in [
            ("feature/é-ü-नमस्ते-日本", "feature/é-ü-नमस्ते-日本"),
            ("it's-\"so\"", "it's-\"so\""),
            ("ma\u{202e}in", "ma\\u{202e}in"),
            ("main\u{200b}", "main\\u{200b}"),
            ("main\u{ad}", "main\\u{ad}"),
            ("main\u{fe0f}", "main\\u{fe0f}"),
            ("main\u{3164}", "main\\u{3164}"),
            ("ma\u{9b}in", "ma\\u{9b}in"),
            ("a\u{a0}b", "a\\u{a0}b"),
        ] {
            assert_eq!(exact(name), expected);
        }
    }

    /// Whether a text holds no control but tabs and, if `colours`, well-formed SGR sequences.
    fn is_harmless(text: &str, colours: bool) -> bool {
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('\x1b') {
            let Some((parameters, next)) = after.strip_prefix('[').and_then(|after| after.split_once('m')) else {
                return false;
            };
            let sgr = parameters.chars().all(|letter| letter.is_ascii_digit() || ";:".contains(letter));
            if !colours || !sgr || before.chars().any(|letter| letter.is_control() && letter != '\t') {
                return false;
            }
            rest = next;
        }
        !rest.chars().any(|letter| letter.is_control() && letter != '\t')
    }

    proptest! {
        #[test]
        fn whatever_comes_only_colours_get_through(
            pieces in prop::collection::vec("(\x1b|\u{9b}|\x1b\\[|\x1b\\]|[0-9;:?>m]{1,4}|[\x00-\x1f]|[\u{80}-\u{9f}]|\\PC{1,3})", 0..30),
            colours: bool,
        ) {
            let clean = line(pieces.concat().as_bytes(), colours);
            prop_assert!(is_harmless(&clean, colours), "{clean:?}");
        }

        #[test]
        fn neither_do_bytes_that_are_no_text(bytes in prop::collection::vec(any::<u8>(), 0..200), colours: bool) {
            prop_assert!(is_harmless(&line(&bytes, colours), colours));
            prop_assert!(is_harmless(&plain(&String::from_utf8_lossy(&bytes)), false));
        }
    }
}
