//! Server-sent events out of the bytes of an answer, however the network cuts them.

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    /// Its name.
    pub(super) name: String,
    /// Its data.
    pub(super) data: String,
}

/// The largest event; the board's chunks are far smaller.
const EVENT_MAX_BYTES: usize = 16 * 1024 * 1024;

/// What has come of the next events.
#[derive(Debug, Default)]
pub(super) struct Events {
    bytes: Vec<u8>,
    event: Event,
}

/// An event that never ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

impl Events {
    /// Takes some bytes; returns the events that they end. An event that is cut off at the end of the answer is dropped, as
    /// the standard has it.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Vec<Event>, TooLarge> {
        let mut ended = Vec::new();
        let searched = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        let mut start = 0;
        while let Some(end) = find(&self.bytes, start.max(searched)) {
            let line = String::from_utf8_lossy(&self.bytes[start..end]).into_owned();
            ended.extend(self.line(line.strip_suffix('\r').unwrap_or(&line)));
            start = end + 1;
        }
        self.bytes.drain(..start);
        let size = self.bytes.len() + self.event.data.len();
        if size > EVENT_MAX_BYTES { Err(TooLarge) } else { Ok(ended) }
    }

    fn line(&mut self, line: &str) -> Option<Event> {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" if line.is_empty() => {
                return Some(std::mem::take(&mut self.event)).filter(|event| *event != Event::default());
            }
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                let separator = if self.event.data.is_empty() { "" } else { "\n" };
                self.event.data.push_str(separator);
                self.event.data.push_str(value);
            }
            // A comment keeps the connection alive; ids stand in the chunks as well.
            _ => {}
        }
        None
    }
}

fn find(bytes: &[u8], from: usize) -> Option<usize> {
    bytes.get(from..)?.iter().position(|byte| *byte == b'\n').map(|at| from + at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STREAM: &str =
        ": alive\n\nid: 1\nevent: chunk\ndata: {\"a\": \"é\"}\n\nevent:end\r\ndata:x\r\ndata: y\r\n\r\ndata: cut";

    fn event(name: &str, data: &str) -> Event {
        Event { name: name.into(), data: data.into() }
    }

    #[test]
    fn comments_ids_and_unfinished_events_are_left_out() {
        let events = Events::default().take(STREAM.as_bytes());
        assert_eq!(events, Ok(vec![event("chunk", "{\"a\": \"é\"}"), event("end", "x\ny")]));
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut events = Events::default();
        let piece = vec![b'x'; 1024 * 1024];
        assert!((0..16).all(|_| events.take(&piece).is_ok()));
        assert_eq!(events.take(&piece), Err(TooLarge));
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_the_network_cuts(cuts in prop::collection::vec(0..STREAM.len(), 0..8)) {
            let mut cuts = cuts;
            cuts.extend([0, STREAM.len()]);
            cuts.sort_unstable();
            let mut events = Events::default();
            let pieces = cuts.windows(2).map(|cut| events.take(&STREAM.as_bytes()[cut[0]..cut[1]]).unwrap());
            let pieces: Vec<Event> = pieces.flatten().collect();
            prop_assert_eq!(pieces, Events::default().take(STREAM.as_bytes()).unwrap());
        }
    }
}
