//! Tables, in Markdown that lines up: the same text serves a terminal and a page.

/// A table with a heading line.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub fn new<const N: usize>(headings: [&str; N]) -> Self {
        Self::with_headings(headings.iter().map(|heading| (*heading).to_owned()).collect())
    }

    /// The same, with as many headings as there are.
    pub fn with_headings(headings: Vec<String>) -> Self {
        Self { rows: vec![headings] }
    }

    /// Adds a row; cells beyond the headings are dropped, and missing ones are empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let columns = self.rows[0].len();
        let mut row: Vec<String> = cells.into_iter().map(|cell| cell.replace('|', "\\|")).take(columns).collect();
        row.resize(columns, String::new());
        self.rows.push(row);
    }

    /// Whether it has no row below its headings.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// The table, columns as wide as what they hold.
    pub fn markdown(&self) -> String {
        let columns = self.rows[0].len();
        let widths: Vec<usize> = (0..columns)
            .map(|column| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(3))
            .collect();
        let mut text = String::new();
        for (at, row) in self.rows.iter().enumerate() {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!(" {cell:<width$} |"));
            text.push('|');
            text.extend(cells);
            text.push('\n');
            if at == 0 {
                text.push('|');
                text.extend(widths.iter().map(|width| format!("{}|", "-".repeat(width + 2))));
                text.push('\n');
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_line_up_and_a_bar_in_a_cell_does_not_end_it() {
        let mut table = Table::new(["prompt", "x"]);
        assert!(table.is_empty());
        table.row(["a|b".to_owned(), "1.25".to_owned()]);
        table.row(["long name".to_owned()]);
        let expected = "\
| prompt    | x    |
|-----------|------|
| a\\|b      | 1.25 |
| long name |      |
";
        assert_eq!(table.markdown(), expected);
        assert!(!table.is_empty());
    }
}
