//! Interned strings: label keys and values become small integers once, at the edge.
//!
//! A [`Symbol`] is only meaningful together with the [`Vocabulary`] that made it. A vocabulary belongs to one
//! snapshot or catalogue (never to the process), so what a cluster no longer mentions is forgotten with it.
//! Symbols are ordered by first appearance, not alphabetically: whoever prints resolves and sorts strings.

use std::sync::Arc;

use crate::packing::hash::FastMap;

/// An interned string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(u32);

impl Symbol {
    /// The position of this symbol in its vocabulary, for use as a column index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Debug)]
struct Entry {
    text: Arc<str>,
    /// The string read as an integer, parsed once because bounds (`Gt`, `Lt`, …) ask for it in the hot path.
    integer: Option<i64>,
}

/// The strings of one snapshot, each stored once.
#[derive(Clone, Debug, Default)]
pub struct Vocabulary {
    entries: Vec<Entry>,
    index: FastMap<Arc<str>, Symbol>,
}

impl Vocabulary {
    /// An empty vocabulary.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The symbol of `text`, made if it is new.
    pub fn intern(&mut self, text: &str) -> Symbol {
        if let Some(&symbol) = self.index.get(text) {
            return symbol;
        }
        // More than 2^32 distinct labels cannot be held in memory; saturating keeps this total.
        let symbol = Symbol(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
        let shared: Arc<str> = Arc::from(text);
        self.entries.push(Entry {
            text: Arc::clone(&shared),
            integer: text.parse().ok(),
        });
        self.index.insert(shared, symbol);
        symbol
    }

    /// The symbol of `text`, if it was interned before.
    #[must_use]
    pub fn get(&self, text: &str) -> Option<Symbol> {
        self.index.get(text).copied()
    }

    /// The string behind `symbol`; the empty string for a symbol of another vocabulary.
    #[must_use]
    pub fn text(&self, symbol: Symbol) -> &str {
        self.entries.get(symbol.index()).map_or("", |entry| &entry.text)
    }

    /// The string behind `symbol` read as Go's `strconv.Atoi` reads it, if it is an integer.
    #[must_use]
    pub fn integer(&self, symbol: Symbol) -> Option<i64> {
        self.entries.get(symbol.index()).and_then(|entry| entry.integer)
    }

    /// How many strings are interned.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is interned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The strings behind `symbols`, sorted alphabetically: the only order in which symbols are printed.
    #[must_use]
    pub fn sorted_texts<'a>(&'a self, symbols: &[Symbol]) -> Vec<&'a str> {
        let mut texts: Vec<&str> = symbols.iter().map(|&symbol| self.text(symbol)).collect();
        texts.sort_unstable();
        texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_gives_the_same_symbol_and_back() {
        let mut vocabulary = Vocabulary::new();
        let first = vocabulary.intern("karpenter.sh/nodepool");
        let other = vocabulary.intern("zone");
        assert_eq!(vocabulary.intern("karpenter.sh/nodepool"), first);
        assert_ne!(first, other);
        assert_eq!(vocabulary.text(other), "zone");
        assert_eq!(vocabulary.get("absent"), None);
        assert_eq!(vocabulary.len(), 2);
    }

    #[test]
    fn integers_are_read_as_go_reads_them() {
        let mut vocabulary = Vocabulary::new();
        for (text, expected) in [
            ("0", Some(0)),
            ("007", Some(7)),
            ("+5", Some(5)),
            ("-5", Some(-5)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("", None),
            ("-", None),
            ("1.0", None),
            ("1_000", None),
            (" 1", None),
        ] {
            let symbol = vocabulary.intern(text);
            assert_eq!(vocabulary.integer(symbol), expected, "{text:?}");
        }
    }
}
