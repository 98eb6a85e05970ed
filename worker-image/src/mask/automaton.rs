//! Finds any of many byte strings in a stream, a byte at a time, in time that does not depend on how many they are
//! (Aho and Corasick).

use std::collections::VecDeque;

const NONE: u32 = 0;

/// How far a stream has come: which beginning of a string its last bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State(u32);

#[derive(Clone, Copy)]
struct Node {
    child: u32,
    sibling: u32,
    /// Where the longest proper end of this node's string that begins a string leads.
    fallback: u32,
    byte: u8,
    depth: u8,
    /// The length of the longest string that ends here.
    longest: u8,
}

/// The strings, none longer than 255 bytes.
pub(super) struct Automaton {
    nodes: Vec<Node>,
    /// The root's children, by byte.
    first: [u32; 256],
}

impl Automaton {
    pub(super) fn new<'a>(strings: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let root = Node { child: NONE, sibling: NONE, fallback: 0, byte: 0, depth: 0, longest: 0 };
        let mut automaton = Self { nodes: vec![root], first: [NONE; 256] };
        strings.into_iter().for_each(|string| automaton.insert(string));
        automaton.link();
        automaton
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    /// Whether no string begins with `byte`.
    pub(super) fn begins_none(&self, byte: u8) -> bool {
        self.first[usize::from(byte)] == NONE
    }

    /// Takes a byte.
    pub(super) fn next(&self, state: State, byte: u8) -> State {
        let mut node = state.0;
        loop {
            match self.child(node, byte) {
                NONE if node == 0 => return State(0),
                NONE => node = self.node(node).fallback,
                child => return State(child),
            }
        }
    }

    /// How many of the last bytes begin a string, or are one.
    pub(super) fn depth(&self, state: State) -> usize {
        self.node(state.0).depth.into()
    }

    /// How many of the last bytes are a string: the longest.
    pub(super) fn found(&self, state: State) -> usize {
        self.node(state.0).longest.into()
    }

    fn insert(&mut self, string: &[u8]) {
        let mut at = 0;
        for byte in string {
            at = match self.child(at, *byte) {
                NONE => self.grow(at, *byte),
                child => child,
            };
        }
        self.nodes[index(at)].longest = self.node(at).depth;
    }

    fn grow(&mut self, at: u32, byte: u8) -> u32 {
        let new = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let parent = &mut self.nodes[index(at)];
        let node = Node { child: NONE, sibling: parent.child, fallback: 0, byte, depth: parent.depth + 1, longest: 0 };
        parent.child = new;
        self.nodes.push(node);
        if at == 0 {
            self.first[usize::from(byte)] = new;
        }
        new
    }

    fn link(&mut self) {
        let mut open: VecDeque<u32> = self.children(0).collect();
        while let Some(at) = open.pop_front() {
            let (fallback, longest) = (self.node(at).fallback, self.node(at).longest);
            self.nodes[index(at)].longest = longest.max(self.node(fallback).longest);
            for child in self.children(at).collect::<Vec<_>>() {
                self.nodes[index(child)].fallback = self.next(State(fallback), self.node(child).byte).0;
                open.push_back(child);
            }
        }
    }

    fn children(&self, at: u32) -> impl Iterator<Item = u32> + '_ {
        let some = |node: u32| (node != NONE).then_some(node);
        std::iter::successors(some(self.node(at).child), move |child| some(self.node(*child).sibling))
    }

    fn child(&self, at: u32, byte: u8) -> u32 {
        if at == 0 {
            return self.first[usize::from(byte)];
        }
        self.children(at).find(|child| self.node(*child).byte == byte).unwrap_or(NONE)
    }

    fn node(&self, at: u32) -> &Node {
        &self.nodes[index(at)]
    }
}

fn index(node: u32) -> usize {
    usize::try_from(node).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_finds_what_a_search_finds(strings in proptest::collection::vec("[ab]{1,5}", 1..8), text in "[abc]{0,40}") {
            let automaton = Automaton::new(strings.iter().map(String::as_bytes));
            let mut state = State::default();
            for at in 0..text.len() {
                state = automaton.next(state, text.as_bytes()[at]);
                let so_far = &text[..=at];
                let ends = strings.iter().filter(|string| so_far.ends_with(string.as_str()));
                prop_assert_eq!(automaton.found(state), ends.map(String::len).max().unwrap_or(0));
                let begun = (0..=5).filter(|length| {
                    let begins = |string: &String| *length <= so_far.len() && string.starts_with(&so_far[so_far.len() - length..]);
                    strings.iter().any(|string| string.len() >= *length && begins(string))
                });
                prop_assert_eq!(automaton.depth(state), begun.max().unwrap_or(0));
            }
        }
    }
}
