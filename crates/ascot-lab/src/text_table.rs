//! Tables of text: in HTML, and in lines.

use ascot_model::units::in_html as escaped;

/// A table: a header and rows of text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TextTable {
    /// Names of the columns.
    pub header: Vec<String>,
    /// The rows; the first field of each names the row.
    pub rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table without rows.
    pub fn new<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Self {
        Self { header: header.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// The table as lines, with columns aligned to the right.
    pub fn lines(&self) -> String {
        let rows = || std::iter::once(&self.header).chain(&self.rows);
        let width =
            |column: usize| rows().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let fields: Vec<String> =
                row.iter().zip(&widths).map(|(field, &width)| format!("{field:>width$}")).collect();
            format!("  {}\n", fields.join("  "))
        };
        rows().map(line).collect()
    }

    /// The table as HTML.
    pub fn html(&self) -> String {
        let row = |cells: &[String], first: &str, other: &str| {
            let cell = |(at, text): (usize, &String)| {
                let tag = if at == 0 { first } else { other };
                let end = tag.split(' ').next().unwrap_or_default();
                format!("<{tag}>{}</{end}>", escaped(text))
            };
            format!("<tr>{}</tr>\n", cells.iter().enumerate().map(cell).collect::<String>())
        };
        let header = row(&self.header, "th scope=\"col\"", "th scope=\"col\"");
        let rows: String = self.rows.iter().map(|cells| row(cells, "th scope=\"row\"", "td")).collect();
        format!(
            "<div class=\"wide\"><table>\n<thead>{header}</thead>\n<tbody>\n{rows}</tbody></table></div>\n"
        )
    }
}

/// The text of a cell that was not measured.
pub fn dash() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_escaped_and_rows_have_names() {
        let mut table = TextTable::new(["k", "<ms>"]);
        table.rows.push(vec!["1".into(), "2 & 3".into()]);
        let html = table.html();
        assert!(html.contains("<th scope=\"col\">&lt;ms&gt;</th>"));
        assert!(html.contains("<th scope=\"row\">1</th><td>2 &amp; 3</td>"), "{html}");
    }
}
