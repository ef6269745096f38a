//! The text format in which Prometheus scrapes.

use std::fmt::Write;

/// What kind of numbers a family has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Gauge,
    Histogram,
}

/// The pairs of a sample.
pub(super) type Labels<'a> = [(&'a str, &'a str)];

/// Text that grows family by family.
#[derive(Default)]
pub(super) struct Exposition {
    text: String,
}

impl Exposition {
    /// Begins a family; its samples follow.
    pub(super) fn family(&mut self, name: &str, help: &str, kind: Type) {
        let kind = match kind {
            Type::Gauge => "gauge",
            Type::Histogram => "histogram",
        };
        // A string takes everything.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds one sample.
    pub(super) fn sample(&mut self, name: &str, labels: &Labels<'_>, value: f64) {
        self.text.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            self.text.push(if at == 0 { '{' } else { ',' });
            self.text.push_str(label);
            self.text.push_str("=\"");
            escape(value, &mut self.text);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// Writes the value of a label: a backslash, a quote and a line feed cannot stand for themselves.
fn escape(value: &str, to: &mut String) {
    for letter in value.chars() {
        match letter {
            '\\' => to.push_str("\\\\"),
            '"' => to.push_str("\\\""),
            '\n' => to.push_str("\\n"),
            letter => to.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_numbers_are_written_as_they_are() {
        let mut text = Exposition::default();
        text.family("a_metric", "What it means.", Type::Gauge);
        text.sample("a_metric", &[("name", "a \"b\"\\c\nd é"), ("empty", "")], 0.25);
        text.sample("a_metric", &[], 1.0);
        assert_eq!(
            text.into_text(),
            "# HELP a_metric What it means.\n# TYPE a_metric gauge\na_metric{name=\"a \\\"b\\\"\\\\c\\nd é\",empty=\"\"} 0.25\na_metric 1\n"
        );
    }
}
