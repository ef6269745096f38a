//! Tables without lines, as kubectl writes them.
//!
//! On a terminal, or with `COLUMNS` set, text wraps inside its column: first titles, then the columns where it
//! costs the fewest lines, at spaces, commas, dashes and slashes. Numbers and fixed columns never wrap. Without a width there is no limit.

use std::io::{self, IsTerminal, Write};

/// On which side of its column a cell stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

struct Column {
    title: &'static str,
    align: Align,
    wraps: bool,
}

/// A table.
pub(crate) struct Columns {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

const GAP: usize = 2;
/// No column becomes narrower than this.
const NARROWEST: usize = 6;

impl Columns {
    pub(crate) fn new() -> Self {
        Self {
            columns: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Adds a column; text on the left may wrap, numbers on the right do not.
    pub(crate) fn column(mut self, title: &'static str, align: Align) -> Self {
        self.columns.push(Column {
            title,
            align,
            wraps: align == Align::Left,
        });
        self
    }

    /// Adds a column of words that stay whole.
    pub(crate) fn fixed(mut self, title: &'static str) -> Self {
        self.columns.push(Column {
            title,
            align: Align::Left,
            wraps: false,
        });
        self
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(crate) fn write(self, out: &mut impl Write) -> io::Result<()> {
        let widths = self.widths(width());
        let titles: Vec<String> = self
            .columns
            .iter()
            .map(|column| column.title.to_owned())
            .collect();
        for row in std::iter::once(&titles).chain(&self.rows) {
            let cells: Vec<Vec<String>> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| wrapped(cell, *width))
                .collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or(1).max(1);
            for at in 0..height {
                let mut line = String::new();
                for ((cell, column), width) in cells.iter().zip(&self.columns).zip(&widths) {
                    let text = cell.get(at).map_or("", String::as_str);
                    let space = " ".repeat(width.saturating_sub(text.chars().count()));
                    match column.align {
                        Align::Left => line.extend([text, &space]),
                        Align::Right => line.extend([space.as_str(), text]),
                    }
                    line.push_str(&" ".repeat(GAP));
                }
                writeln!(out, "{}", line.trim_end())?;
            }
        }
        Ok(())
    }

    /// The titles as words, and whether a column is of numbers.
    pub(crate) fn titles(&self) -> impl Iterator<Item = (String, bool)> {
        self.columns.iter().map(|column| {
            let mut letters = column.title.chars();
            let first = letters.next().into_iter();
            let title = first.chain(letters.flat_map(char::to_lowercase)).collect();
            (title, column.align == Align::Right)
        })
    }

    pub(crate) fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    fn widths(&self, limit: Option<usize>) -> Vec<usize> {
        let longest = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(at));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let content: Vec<usize> = (0..self.columns.len()).map(longest).collect();
        let titles = self.columns.iter().map(|column| column.title.chars().count());
        let natural: Vec<usize> = content
            .iter()
            .zip(titles)
            .map(|(content, title)| title.max(*content))
            .collect();
        let total = |widths: &[usize]| widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        let Some(limit) = limit.filter(|limit| total(&natural) > *limit) else {
            return natural;
        };
        let in_title = |column: &Column| {
            pieces(column.title)
                .map(|piece| piece.trim_end().len())
                .max()
                .unwrap_or(0)
        };
        let mut widths: Vec<usize> = content
            .iter()
            .zip(&self.columns)
            .map(|(content, column)| in_title(column).max(*content))
            .collect();
        let wrapping = self.columns.iter().enumerate().filter(|(_, column)| column.wraps);
        let least: Vec<(usize, usize)> = wrapping
            .map(|(at, column)| (at, in_title(column).max(NARROWEST)))
            .collect();
        let of = |widths: &[usize], at: usize| widths.get(at).copied().unwrap_or(0);
        // Take characters where that costs the fewest lines, and all those that cost none.
        loop {
            let narrower = least
                .iter()
                .filter(|(at, least)| of(&widths, *at) > *least)
                .map(|(at, _)| {
                    let width = of(&widths, *at);
                    let lines = self.cost(*at, width - 1).saturating_sub(self.cost(*at, width));
                    (lines, std::cmp::Reverse(width), *at)
                });
            match narrower.min() {
                Some((lines, _, at)) if lines == 0 || total(&widths) > limit => {
                    widths.iter_mut().skip(at).take(1).for_each(|width| *width -= 1);
                }
                _ => break,
            }
        }
        // Give what is left over to the columns where it saves most.
        while let Some(left) = limit.checked_sub(total(&widths)).filter(|left| *left > 0) {
            let wider = least
                .iter()
                .flat_map(|(at, _)| (1..=left).map(|more| (*at, more)));
            let saving = wider.filter_map(|(at, more)| {
                let width = of(&widths, at);
                let saved = self.cost(at, width).saturating_sub(self.cost(at, width + more));
                (saved > 0).then_some((saved / more, std::cmp::Reverse(more), at))
            });
            let Some((_, std::cmp::Reverse(more), at)) = saving.max() else {
                break;
            };
            widths
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|width| *width += more);
        }
        widths
    }

    /// How much harder a column is to read at a width: its lines, and words broken in two count like ten. The first
    /// rows stand for the rest.
    fn cost(&self, at: usize, width: usize) -> usize {
        let cells = self.rows.iter().take(200).filter_map(|row| row.get(at));
        cells
            .map(|cell| {
                let broken = pieces(cell)
                    .filter(|piece| piece.trim_end().chars().count() > width)
                    .count();
                let lines = wrapped(cell, width).len();
                // The third line of a cell is worse than the second line of another.
                lines * lines + 10 * broken
            })
            .sum()
    }
}

/// The parts of a word between which it may be broken.
fn pieces(word: &str) -> impl Iterator<Item = &str> {
    word.split_inclusive([' ', ',', '-', '/', '_'])
}

/// The lines of a text at a width: broken between words, inside a word only where that is longer than a line.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let length = |text: &str| text.trim_end().chars().count();
    let mut lines: Vec<String> = vec![String::new()];
    let mut add = |part: &str| match lines.last_mut() {
        Some(line) if line.chars().count() + length(part) <= width => line.push_str(part),
        _ => lines.push(part.to_owned()),
    };
    for word in text.split_inclusive(' ') {
        if length(word) <= width {
            add(word);
            continue;
        }
        for piece in pieces(word) {
            // What is longer than a line even so is broken anywhere.
            let characters: Vec<char> = piece.chars().collect();
            for part in characters.chunks(width.max(1)) {
                add(&part.iter().collect::<String>());
            }
        }
    }
    let mut lines: Vec<String> = lines.into_iter().map(|line| line.trim_end().to_owned()).collect();
    lines.retain(|line| !line.is_empty());
    lines
}

/// How wide a table may be.
pub(crate) fn width() -> Option<usize> {
    let asked = std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok());
    let terminal = || {
        let size = io::stdout()
            .is_terminal()
            .then(terminal_size::terminal_size)
            .flatten();
        size.map(|(width, _)| usize::from(width.0))
    };
    asked.filter(|width| *width > 0).or_else(terminal)
}

/// A line of text that wraps as tables do.
pub(crate) fn paragraph(out: &mut impl Write, text: &str) -> io::Result<()> {
    let limit = width().unwrap_or(usize::MAX);
    let mut length = 0;
    for word in text.split(' ') {
        let more = word.chars().count() + 1;
        if length > 0 && length + more > limit {
            writeln!(out)?;
            length = 0;
        }
        let gap = if length == 0 { "" } else { " " };
        write!(out, "{gap}{word}")?;
        length += more;
    }
    writeln!(out)
}

/// A number with its noun.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_breaks_where_words_do() {
        assert_eq!(wrapped("savings-plan-m5", 8), ["savings-", "plan-m5"]);
        assert_eq!(
            wrapped("smarter-devices/fuse: 20", 10),
            ["smarter-", "devices/", "fuse: 20"]
        );
        assert_eq!(
            wrapped("licence-fee, fuse-device", 12),
            ["licence-fee,", "fuse-device"]
        );
        assert_eq!(wrapped("a, b", 2), ["a,", "b"]);
        assert_eq!(wrapped("unbreakable", 4), ["unbr", "eaka", "ble"]);
        assert_eq!(wrapped("short", 9), ["short"]);
    }

    #[test]
    fn titles_give_way_first_then_text_where_it_costs_least() {
        let mut columns = Columns::new()
            .column("TEXT", Align::Left)
            .fixed("NAME")
            .column("LIST PRICE", Align::Right);
        columns.row(vec![
            "one two three four".to_owned(),
            "us-east-1a".to_owned(),
            "0.0960".to_owned(),
        ]);
        assert_eq!(columns.widths(None), [18, 10, 10]);
        assert_eq!(columns.widths(Some(38)), [18, 10, 6]);
        assert_eq!(columns.widths(Some(30)), [10, 10, 6]);
        assert_eq!(columns.widths(Some(5)), [NARROWEST, 10, 6]);
    }
}
