//! Tables without lines, as kubectl writes them.
//!
//! On a terminal, or with `COLUMNS` set, text wraps inside its column: first titles, then the widest columns, at
//! spaces, commas, dashes and slashes. Numbers and fixed columns never wrap. Without a width there is no limit.

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
        while total(&widths) > limit {
            let widest = widths
                .iter_mut()
                .zip(&self.columns)
                .filter(|(width, column)| column.wraps && **width > in_title(column).max(NARROWEST))
                .max_by_key(|(width, _)| **width);
            match widest {
                Some((width, _)) => *width -= 1,
                None => break,
            }
        }
        widths
    }
}

/// The parts of a text between which it may be broken.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive([' ', ',', '-', '/', '_'])
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    if text.chars().count() <= width {
        return vec![text.to_owned()];
    }
    let mut lines: Vec<String> = vec![String::new()];
    for piece in pieces(text) {
        let fits = |line: &String| line.chars().count() + piece.trim_end().chars().count() <= width;
        if let Some(line) = lines.last_mut().filter(|line| fits(line)) {
            line.push_str(piece);
            continue;
        }
        // What is longer than a whole line is broken anywhere.
        let characters: Vec<char> = piece.chars().collect();
        lines.extend(
            characters
                .chunks(width.max(1))
                .map(|chunk| chunk.iter().collect::<String>()),
        );
    }
    let lines = lines.into_iter().map(|line| line.trim_end().to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

/// How wide a table may be.
fn width() -> Option<usize> {
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
        assert_eq!(wrapped("a, b", 2), ["a,", "b"]);
        assert_eq!(wrapped("unbreakable", 4), ["unbr", "eaka", "ble"]);
        assert_eq!(wrapped("short", 9), ["short"]);
    }

    #[test]
    fn titles_give_way_first_then_the_widest_text() {
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
