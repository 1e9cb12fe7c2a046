//! Stop strings in a text that comes in pieces, for [`Pieces`](crate::Pieces), which calls the library once for each
//! token. It must give out what `afmoe_generate` does: tests compare the two.
//!
//! `held` is always the longest end of the text that begins a stop string. The string that ends first stops; of several
//! that end at the same byte the longest, then the first in the list.

/// What may be given out now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) text: String,
    /// Index of the string that stopped, which is not in the text.
    pub(crate) stopped: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct StopStrings {
    strings: Vec<String>,
    held: String,
}

impl StopStrings {
    pub(crate) fn new(strings: Vec<String>) -> StopStrings {
        StopStrings { strings, held: String::new() }
    }

    pub(crate) fn push(&mut self, piece: String) -> Passed {
        if self.strings.is_empty() {
            return Passed { text: piece, stopped: None };
        }
        self.held += &piece;
        let ends = self.strings.iter().enumerate().filter_map(|(index, string)| {
            self.held.find(string.as_str()).map(|begin| (begin + string.len(), begin, index))
        });
        if let Some((_, begin, index)) = ends.min() {
            self.held.truncate(begin);
            return Passed { text: self.finish(), stopped: Some(index) };
        }
        let rest = self.held.split_off(self.held.len() - self.longest_begun());
        Passed { text: std::mem::replace(&mut self.held, rest), stopped: None }
    }

    /// The end of the text: what was held back.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Bytes of the longest end of `held` that begins a stop string.
    fn longest_begun(&self) -> usize {
        let held = self.held.as_bytes();
        let begins =
            |n: usize| self.strings.iter().any(|string| string.as_bytes().starts_with(&held[held.len() - n..]));
        let longest = self.strings.iter().map(|string| string.len() - 1).max().unwrap_or(0);
        (1..=longest.min(held.len())).rev().find(|n| begins(*n)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(strings: &[&str], pieces: &[&str]) -> (Vec<String>, Option<usize>) {
        let mut stops = StopStrings::new(strings.iter().map(|string| string.to_string()).collect());
        let mut given = Vec::new();
        for piece in pieces {
            let passed = stops.push(piece.to_string());
            given.push(passed.text);
            if passed.stopped.is_some() {
                return (given, passed.stopped);
            }
        }
        given.push(stops.finish());
        (given, None)
    }

    #[test]
    fn text_is_held_while_it_begins_a_string() {
        assert_eq!(run(&["abc"], &["xa", "b", "d"]), (vec!["x".into(), "".into(), "abd".into(), "".into()], None));
        assert_eq!(run(&["aab"], &["a", "a", "ab!"]), (vec!["".into(), "".into(), "a".into()], Some(0)));
        assert_eq!(run(&["abc"], &["ab"]), (vec!["".into(), "ab".into()], None));
    }

    #[test]
    fn the_string_that_ends_first_stops() {
        assert_eq!(run(&["bcd", "c"], &["abcd"]), (vec!["ab".into()], Some(1)));
        assert_eq!(run(&["c", "bc", "abc"], &["abc"]), (vec!["".into()], Some(2))); // the longest
        assert_eq!(run(&["b", "b"], &["ab"]), (vec!["a".into()], Some(0)));
        assert_eq!(run(&["é"], &["caf", "é!"]), (vec!["caf".into(), "".into()], Some(0)));
    }
}
