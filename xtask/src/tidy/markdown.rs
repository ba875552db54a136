//! As much of Markdown as the rules about documents read: headings, tables, code.

/// A row of a table, its heading row left out.
#[derive(Debug, PartialEq)]
pub(crate) struct Row<'a> {
    /// From 1.
    pub(crate) line: usize,
    /// The heading that it stands below, with its marks.
    pub(crate) heading: &'a str,
    pub(crate) cells: Vec<&'a str>,
}

/// What the rules compare of a document.
#[derive(Debug, Default)]
pub(crate) struct Document<'a> {
    pub(crate) headings: Vec<&'a str>,
    pub(crate) rows: Vec<Row<'a>>,
    /// Code between backquotes, in the order of the text.
    pub(crate) spans: Vec<&'a str>,
    /// Lines between fences.
    pub(crate) code: Vec<&'a str>,
}

impl<'a> Document<'a> {
    pub(crate) fn read(text: &'a str) -> Self {
        let mut document = Self::default();
        let mut heading = "";
        let mut in_code = false;
        let mut lines = text.lines().enumerate().peekable();
        while let Some((at, line)) = lines.next() {
            if line.trim_start().starts_with("```") {
                in_code = !in_code;
            } else if in_code {
                document.code.push(line);
            } else if line.starts_with('#') {
                heading = line;
                document.headings.push(line);
            } else {
                document.spans.extend(spans(line));
                let above_rule = lines.peek().is_some_and(|(_, next)| next.starts_with("|-"));
                if line.starts_with('|') && !line.starts_with("|-") && !above_rule {
                    let cells = line.trim().trim_matches('|').split('|').map(str::trim).collect();
                    document.rows.push(Row { line: at + 1, heading, cells });
                }
            }
        }
        document
    }
}

/// The code between backquotes in a line.
pub(crate) fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_rows_and_code_are_told_apart() {
        let text =
            "# One\n\nsay `a b`\n\n| x | y |\n|---|---|\n| 1 | `c`, `d` |\n\n```\n# no heading\n| no | row |\n```\n";
        let document = Document::read(text);
        assert_eq!(document.headings, ["# One"]);
        assert_eq!(document.rows, [Row { line: 7, heading: "# One", cells: vec!["1", "`c`, `d`"] }]);
        assert_eq!(document.spans, ["a b", "c", "d"]);
        assert_eq!(document.code, ["# no heading", "| no | row |"]);
    }
}
