//! Tables: columns that are aligned, and as narrow as the terminal asks.

use crate::paint::{Paint, fit, width};

/// Below this a column says nothing any more.
const COLUMN_MIN: usize = 8;
const GAP: &str = "  ";

/// A row of headings, then the rows. What does not fit into `columns` is cut, but never the first cell of a row, which
/// names it; where even that is not enough, each row is a paragraph. Colours take no room.
#[must_use]
pub fn table(headings: &[&str], rows: &[Vec<String>], paint: Paint, columns: Option<usize>) -> String {
    let natural: Vec<usize> = headings.iter().enumerate().map(|(at, heading)| widest(heading, rows, at)).collect();
    match columns {
        None => aligned(headings, rows, &natural, paint),
        Some(columns) => match narrowed(natural, headings, columns) {
            Some(widths) => aligned(headings, rows, &widths, paint),
            None => paragraphs(headings, rows, paint),
        },
    }
}

/// Lines of a name and a value; those without a value are left out.
#[must_use]
pub fn details(lines: &[(&str, Option<String>)], paint: Paint) -> String {
    let wide = lines.iter().map(|(name, _)| width(name)).max().unwrap_or(0);
    let line = |(name, value): &(&str, Option<String>)| {
        value.as_ref().map(|value| format!("{}  {value}", paint.dim(&format!("{name:<wide$}"))))
    };
    lines.iter().filter_map(line).collect::<Vec<_>>().join("\n")
}

fn widest(heading: &str, rows: &[Vec<String>], at: usize) -> usize {
    rows.iter().map(|row| row.get(at).map_or(0, |cell| width(cell))).chain([width(heading)]).max().unwrap_or(0)
}

/// The widths, with the widest made narrower until all fit; `None` if they can't.
fn narrowed(mut widths: Vec<usize>, headings: &[&str], columns: usize) -> Option<Vec<usize>> {
    let gaps = GAP.len() * widths.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > columns {
        let least = |at: usize| width(headings[at]).max(COLUMN_MIN);
        let candidates = (1..widths.len()).filter(|at| widths[*at] > least(*at));
        let widest = candidates.max_by_key(|at| widths[*at])?;
        widths[widest] -= 1;
    }
    Some(widths)
}

fn aligned(headings: &[&str], rows: &[Vec<String>], widths: &[usize], paint: Paint) -> String {
    let line = |cells: &[String]| {
        let padded = cells.iter().zip(widths).map(|(cell, wide)| {
            let cell = fit(cell, *wide);
            let fill = wide.saturating_sub(width(&cell));
            format!("{cell}{}", " ".repeat(fill))
        });
        padded.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    };
    let headings: Vec<String> = headings.iter().map(|heading| paint.bold(heading)).collect();
    std::iter::once(line(&headings)).chain(rows.iter().map(|row| line(row))).collect::<Vec<_>>().join("\n")
}

fn paragraphs(headings: &[&str], rows: &[Vec<String>], paint: Paint) -> String {
    let paragraph = |row: &Vec<String>| {
        let filled = |cell: &String| (!cell.is_empty()).then(|| cell.clone());
        let lines: Vec<_> = headings.iter().zip(row).map(|(heading, cell)| (*heading, filled(cell))).collect();
        details(&lines, paint)
    };
    rows.iter().map(paragraph).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Paint = Paint(false);

    fn rows() -> [Vec<String>; 2] {
        [
            vec!["one".into(), "https://git.example/a/long/address".into(), "main".into()],
            vec!["twenty-two".into(), "short".into(), String::new()],
        ]
    }

    #[track_caller]
    fn check(columns: Option<usize>, expected: &str) {
        assert_eq!(table(&["NAME", "REPOSITORY", "REF"], &rows(), PLAIN, columns), expected);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_without_spaces() {
        let whole = "NAME        REPOSITORY                          REF\n\
                     one         https://git.example/a/long/address  main\n\
                     twenty-two  short";
        check(None, whole);
        check(Some(52), whole);
    }

    #[test]
    fn a_narrow_terminal_cuts_the_widest_column_but_never_the_first() {
        check(
            Some(40),
            "NAME        REPOSITORY              REF\n\
                         one         https://git.example/a…  main\n\
                         twenty-two  short",
        );
    }

    #[test]
    fn where_nothing_helps_each_row_is_a_paragraph() {
        check(
            Some(20),
            "NAME        one\n\
                         REPOSITORY  https://git.example/a/long/address\n\
                         REF         main\n\n\
                         NAME        twenty-two\n\
                         REPOSITORY  short",
        );
    }

    #[test]
    fn colours_do_not_widen_a_column() {
        let rows = [vec![Paint(true).status(protocol::Status::Failed), "x".into()]];
        let painted = table(&["A", "B"], &rows, Paint(true), Some(20));
        assert_eq!(painted, "\x1b[1mA\x1b[0m       \x1b[1mB\x1b[0m\n\x1b[31mfailed\x1b[0m  x");
    }
}
