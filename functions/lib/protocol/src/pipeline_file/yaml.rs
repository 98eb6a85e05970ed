//! YAML as a tree in which every key knows its line: what a serde reader forgets.
//!
//! Bounded in depth and size, since an alias of an alias grows without end.

use super::fault::{Fault, Place};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, StrInput};
use std::collections::BTreeMap;

const DEPTH_MAX: usize = 16;
const NODES_MAX: usize = 20_000;

/// A value and where it begins.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Text; `plain` where it stands without quotes.
    Scalar { text: String, plain: bool },
    /// `- a` or `[a, b]`.
    List(Vec<Node>),
    /// `a: b` or `{a: b}`, in the file's order, no key twice.
    Map(Vec<(Key, Node)>),
}

/// A key of a map.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) place: Place,
    pub(super) text: String,
}

/// Reads a text that holds one document.
pub(super) fn load(text: &str) -> Result<Node, Fault> {
    let mut loader = Loader { parser: Parser::new_from_str(text), anchors: BTreeMap::new(), nodes: 0 };
    loader.document()
}

struct Loader<'t> {
    parser: Parser<'t, StrInput<'t>>,
    anchors: BTreeMap<usize, (Node, usize)>,
    nodes: usize,
}

impl<'t> Loader<'t> {
    fn document(&mut self) -> Result<Node, Fault> {
        let mut document = None;
        loop {
            let (event, place) = self.next()?;
            match event {
                Event::StreamEnd => return document.ok_or_else(|| fault(place, "the file is empty")),
                Event::DocumentStart(_) if document.is_some() => {
                    return Err(fault(place, "a second document begins here; a file holds one pipeline"));
                }
                Event::Nothing | Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd => {}
                Event::Alias(_)
                | Event::Scalar(..)
                | Event::SequenceStart(..)
                | Event::SequenceEnd
                | Event::MappingStart(..)
                | Event::MappingEnd => document = Some(self.node(event, place, 0)?),
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'t>, Place), Fault> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, place(&span.start))),
            Some(Err(error)) => Err(fault(place(error.marker()), &format!("not YAML: {}", error.info()))),
            None => Ok((Event::StreamEnd, Place { line: 1, column: 1 })),
        }
    }

    fn node(&mut self, event: Event<'t>, place: Place, depth: usize) -> Result<Node, Fault> {
        let before = self.nodes;
        self.grow(1, place)?;
        if depth > DEPTH_MAX {
            return Err(fault(place, "nested too deep"));
        }
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, _) => {
                (Value::Scalar { text: text.into_owned(), plain: style == ScalarStyle::Plain }, anchor)
            }
            Event::SequenceStart(anchor, _) => (Value::List(self.list(depth)?), anchor),
            Event::MappingStart(anchor, _) => (Value::Map(self.map(depth)?), anchor),
            Event::Alias(anchor) => return self.alias(anchor, place),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => return Err(fault(place, "not YAML: a value is missing")),
        };
        let node = Node { place, value };
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), self.nodes - before));
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Fault> {
        let mut items = Vec::new();
        loop {
            let (event, place) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok(items);
            }
            items.push(self.node(event, place, depth + 1)?);
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<(Key, Node)>, Fault> {
        let mut entries: Vec<(Key, Node)> = Vec::new();
        loop {
            let (event, place) = self.next()?;
            let text = match event {
                Event::MappingEnd => return Ok(entries),
                Event::Scalar(text, ..) => text.into_owned(),
                Event::Nothing
                | Event::StreamStart
                | Event::StreamEnd
                | Event::DocumentStart(_)
                | Event::DocumentEnd
                | Event::Alias(_)
                | Event::SequenceStart(..)
                | Event::SequenceEnd
                | Event::MappingStart(..) => return Err(fault(place, "a key must be a word")),
            };
            if let Some((first, _)) = entries.iter().find(|(key, _)| key.text == text) {
                let what = format!("{text:?} stands here twice; first in line {}", first.place.line);
                return Err(fault(place, &what));
            }
            let (event, value_place) = self.next()?;
            entries.push((Key { place, text }, self.node(event, value_place, depth + 1)?));
        }
    }

    /// A copy of what the anchor names. One that is still open is not there yet, so nothing holds itself.
    fn alias(&mut self, anchor: usize, place: Place) -> Result<Node, Fault> {
        let Some((node, size)) = self.anchors.get(&anchor).cloned() else {
            return Err(fault(place, "this alias names what it stands in"));
        };
        self.grow(size, place)?;
        Ok(node)
    }

    fn grow(&mut self, by: usize, place: Place) -> Result<(), Fault> {
        self.nodes += by;
        if self.nodes > NODES_MAX { Err(fault(place, "too large for a pipeline")) } else { Ok(()) }
    }
}

fn place(marker: &Marker) -> Place {
    Place { line: marker.line(), column: marker.col() + 1 }
}

fn fault(place: Place, what: &str) -> Fault {
    Fault { place, key: String::new(), what: what.to_owned() }
}
