//! Bars, drawn as SVG by a few lines of our own: a plotting crate would bring more code than there is in this program.

use crate::figures::Figures;
use crate::report::number;
use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
/// Where bars begin; names stand before.
const LEFT: f64 = 200.0;
/// Room for the value behind the longest bar.
const RIGHT: f64 = 80.0;
const TOP: f64 = 44.0;
const ROW: f64 = 30.0;

/// A chart of bars.
pub struct Chart {
    /// What it shows, and in which unit.
    pub title: &'static str,
    /// Each bar's name, and its figure's.
    pub bars: &'static [(&'static str, &'static str)],
}

impl Chart {
    /// The picture; a figure that was not measured has no bar. Readable on light and dark pages.
    pub fn draw(&self, figures: &Figures) -> String {
        let bars: Vec<(&str, f64)> =
            self.bars.iter().filter_map(|(words, name)| Some((*words, figures.median(name)?))).collect();
        let longest = bars.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
        let height = bars.iter().fold(TOP + 10.0, |height, _| height + ROW);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
             <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#ffffff\"/>\n\
             <text x=\"16\" y=\"26\" font-size=\"15\" font-weight=\"600\" fill=\"#1f2933\">{}</text>\n",
            self.title
        );
        let mut top = TOP;
        for (words, value) in bars {
            bar(&mut svg, words, value, (WIDTH - LEFT - RIGHT) * value / longest, top);
            top += ROW;
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn bar(svg: &mut String, words: &str, value: f64, length: f64, top: f64) {
    let (middle, end) = (top + 16.0, LEFT + length + 8.0);
    let _ = write!(
        svg,
        "<text x=\"{:.0}\" y=\"{middle}\" text-anchor=\"end\" fill=\"#1f2933\">{words}</text>\n\
         <rect x=\"{LEFT}\" y=\"{top}\" width=\"{length:.1}\" height=\"22\" rx=\"2\" fill=\"#2f6f9f\"/>\n\
         <text x=\"{end:.1}\" y=\"{middle}\" fill=\"#1f2933\">{}</text>\n",
        LEFT - 10.0,
        number(value)
    );
}
