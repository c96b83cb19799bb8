//! Plots medians with quartiles over named categories, on a logarithmic or linear axis.

use super::{number::number, spread::Spread};
use crate::error::{BenchError, Result};
use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

const FONT: &str = "sans-serif";
const PANEL: (u32, u32) = (560, 380);
/// How many panels there may be side by side.
const MOST_COLUMNS: usize = 4;
const HEAD_HEIGHT: u32 = 60;
const FOOT_LINE: u32 = 15;
/// Approximate width of a character of a label, or of a number next to a point.
const LABEL_CHARACTER: usize = 6;
const NUMBER_WIDTH: usize = 20;
/// Characters of the footer that fit into the width of one panel.
const FOOT_CHARACTERS: usize = 92;

// Okabe and Ito's palette, which is distinguishable with any colour vision.
pub(crate) const BLUE: RGBColor = RGBColor(0, 114, 178);
pub(crate) const ORANGE: RGBColor = RGBColor(230, 159, 0);
pub(crate) const GREEN: RGBColor = RGBColor(0, 158, 115);
pub(crate) const VERMILION: RGBColor = RGBColor(213, 94, 0);
pub(crate) const PURPLE: RGBColor = RGBColor(204, 121, 167);
const YELLOW: RGBColor = RGBColor(240, 228, 66);
const SKY: RGBColor = RGBColor(86, 180, 233);
const BLACK_LINE: RGBColor = RGBColor(60, 60, 60);
const GREY: RGBColor = RGBColor(120, 120, 120);

/// A method's colour, the same in every plot.
pub(crate) fn colour(method: &str) -> RGBColor {
    match method {
        "squeezy" | "daemon" | "reclaim+libraries" | "frozen instance" | "llfree"
        | "soft, pages" | "memfd" | "instance" | "code" => BLUE,
        "virtio-mem" | "vanilla" | "buddy" | "reporting" | "ram" | "never shrinks" => VERMILION,
        "balloon" | "eager" | "reporting, order 0" => ORANGE,
        "numa" | "pageout" | "overcommit" | "reporting, 100ms" => PURPLE,
        "reporting, order 0, 100ms" => YELLOW,
        "floor" | "ideal" | "control" | "nothing" | "baseline" | "plain" | "image" => GREY,
        "harvest" | "reclaim" | "hyperalloc, soft" | "soft" | "squeezy, no affinity" => SKY,
        "microvm" | "hyperalloc, stopped" | "nothing, llfree" | "overcommit, memfd" => BLACK_LINE,
        _ => GREEN,
    }
}

/// A measured quantity over the categories.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) colour: RGBColor,
    /// Drawn hollow and dashed, to distinguish variants of a method.
    pub(crate) variant: bool,
    /// By category; `None` if not measured.
    pub(crate) points: Vec<Option<Spread>>,
}

impl Series {
    /// A series for each method, in its colour.
    pub(crate) fn of_methods(
        methods: &[String],
        points: impl Fn(&str) -> Vec<Option<Spread>>,
    ) -> Vec<Self> {
        let series = |method: &String| Self {
            name: method.clone(),
            colour: colour(method),
            variant: false,
            points: points(method),
        };
        methods.iter().map(series).collect()
    }
}

/// A pair of axes.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) categories: Vec<String>,
    pub(crate) series: Vec<Series>,
    /// Whether adjacent points are joined: the categories are steps of one quantity.
    pub(crate) joined: bool,
    pub(crate) logarithmic: bool,
}

/// A complete plot.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    pub(crate) panels: Vec<Panel>,
    /// Footer: what a reader needs to know to interpret the plot.
    pub(crate) foot: String,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

impl Chart {
    /// Renders an SVG document.
    pub(crate) fn svg(&self) -> Result<String> {
        let mut text = String::new();
        self.draw(&mut text).map_err(|e| BenchError::Plot(e.to_string()))?;
        Ok(text)
    }

    fn draw(&self, text: &mut String) -> Drawn {
        let panels = self.panels.len().max(1);
        let rows = panels.div_ceil(MOST_COLUMNS);
        let columns = panels.div_ceil(rows);
        let foot = wrap(&self.foot, FOOT_CHARACTERS * columns);
        let foot_height = FOOT_LINE * (foot.len() as u32 + 1);
        let body_height = PANEL.1 * rows as u32;
        let size = (PANEL.0 * columns as u32, HEAD_HEIGHT + body_height + foot_height);
        let root = SVGBackend::with_string(text, size).into_drawing_area();
        root.fill(&WHITE)?;
        let (head, rest) = root.split_vertically(HEAD_HEIGHT);
        let (body, foot_area) = rest.split_vertically(body_height);
        head.draw_text(&self.title, &(FONT, 19).into_font().color(&BLACK), (12, 10))?;
        head.draw_text(&self.subtitle, &(FONT, 12).into_font().color(&GREY), (12, 36))?;
        for (panel, area) in self.panels.iter().zip(body.split_evenly((rows, columns))) {
            panel.draw(&area)?;
        }
        for (index, line) in foot.iter().enumerate() {
            let place = (12, (FOOT_LINE / 2 + FOOT_LINE * index as u32) as i32);
            foot_area.draw_text(line, &(FONT, 11).into_font().color(&GREY), place)?;
        }
        root.present()?;
        Ok(())
    }
}

impl Panel {
    fn draw(&self, area: &Area<'_>) -> Drawn {
        let (legend, area) = area.split_vertically(66);
        self.legend(&legend)?;
        let (low, high) = self.range();
        let scale = |value: f64| if self.logarithmic { value.max(low).log10() } else { value };
        let (bottom, top) = (scale(low), scale(high));
        let last = self.categories.len().max(1) as f64 - 0.5;
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .margin_right(16)
            .x_label_area_size(40)
            .y_label_area_size(66)
            .build_cartesian_2d(-0.5..last, bottom..top)?;
        // Grid lines and labels are drawn here: plotters' own do not suit categories and decades.
        chart
            .configure_mesh()
            .disable_mesh()
            .x_labels(0)
            .y_labels(0)
            .axis_desc_style((FONT, 12))
            .draw()?;
        let placed: Vec<(&Series, Vec<(f64, Spread)>)> = self
            .series
            .iter()
            .enumerate()
            .map(|(index, series)| (series, self.places(index)))
            .collect();
        for (series, places) in placed.iter().filter(|_| self.joined) {
            let line = places.iter().map(|(x, spread)| (*x, scale(spread.median)));
            let stroke = series.colour.stroke_width(2);
            match series.variant {
                true => chart.draw_series(DashedLineSeries::new(line, 5, 4, stroke)).map(drop)?,
                false => chart.draw_series(LineSeries::new(line, stroke)).map(drop)?,
            }
        }
        let plane = chart.plotting_area();
        let grey = GREY.mix(0.25);
        let label = (FONT, 11).into_font().color(&BLACK);
        for tick in self.ticks(low, high) {
            let y = scale(tick);
            plane.draw(&PathElement::new([(-0.5, y), (last, y)], grey))?;
            let (x, y) = plane.map_coordinate(&(-0.5, y));
            let style = label.pos(Pos::new(HPos::Right, VPos::Center));
            let (left, above) = area.get_base_pixel();
            area.draw_text(&plain(tick), &style, (x - left - 5, y - above))?;
        }
        let (width, height) = area.dim_in_pixel();
        let longest = self.categories.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let staggered = self.categories.len() * longest * LABEL_CHARACTER > width as usize;
        let numbered = !self.joined
            && self.categories.len() * self.series.len() * NUMBER_WIDTH <= width as usize;
        for (index, category) in self.categories.iter().enumerate() {
            let (x, y) = plane.map_coordinate(&(index as f64, bottom));
            let (left, above) = area.get_base_pixel();
            let style = label.pos(Pos::new(HPos::Center, VPos::Top));
            // Names that would touch alternate between two lines.
            let lower = if staggered && index % 2 == 1 { 13 } else { 0 };
            area.draw_text(category, &style, (x - left, y - above + 6 + lower))?;
        }
        let axis = (FONT, 12).into_font().color(&BLACK);
        let style = axis.pos(Pos::new(HPos::Center, VPos::Bottom));
        area.draw_text(&self.x, &style, (width as i32 / 2 + 30, height as i32 - 4))?;
        let style = axis.transform(FontTransform::Rotate270).pos(Pos::new(HPos::Center, VPos::Top));
        area.draw_text(&self.y, &style, (6, height as i32 / 2 - 16))?;

        for (index, (series, places)) in placed.iter().enumerate() {
            for (x, spread) in places {
                let bar = [(*x, scale(spread.low)), (*x, scale(spread.high))];
                plane.draw(&PathElement::new(bar, series.colour.stroke_width(1)))?;
                plane.draw(&Circle::new((*x, scale(spread.median)), 4, WHITE.filled()))?;
                let style = if series.variant {
                    series.colour.stroke_width(2)
                } else {
                    series.colour.filled()
                };
                plane.draw(&Circle::new((*x, scale(spread.median)), 4, style))?;
                if numbered {
                    // Adjacent numbers alternate between above and below, so that they do not
                    // touch.
                    let (end, place, gap) = if index % 2 == 0 {
                        (spread.high, VPos::Bottom, -7)
                    } else {
                        (spread.low, VPos::Top, 7)
                    };
                    let (px, py) = plane.map_coordinate(&(*x, scale(end)));
                    let (left, above) = area.get_base_pixel();
                    let style =
                        (FONT, 10).into_font().color(&BLACK).pos(Pos::new(HPos::Center, place));
                    area.draw_text(&number(spread.median), &style, (px - left, py - above + gap))?;
                }
            }
        }
        Ok(())
    }

    fn legend(&self, area: &Area<'_>) -> Drawn {
        area.draw_text(
            &self.title,
            &(FONT, 14).into_font().style(FontStyle::Bold).color(&BLACK),
            (74, 4),
        )?;
        let mut x = 74;
        let mut y = 30;
        for series in &self.series {
            let length = 24 + 6 * series.name.chars().count() as i32 + 12;
            if x + length > PANEL.0 as i32 - 8 && x > 74 {
                (x, y) = (74, y + 14);
            }
            let stroke = series.colour.stroke_width(2);
            let style = if series.variant { stroke } else { series.colour.filled() };
            area.draw(&Circle::new((x + 6, y), 4, style))?;
            let text = (FONT, 11).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
            area.draw_text(&series.name, &text, (x + 15, y))?;
            x += length;
        }
        Ok(())
    }

    /// Positions of a series' points: next to those of the others, so that none hides another.
    fn places(&self, index: usize) -> Vec<(f64, Spread)> {
        let count = self.series.len() as f64;
        let shift =
            (index as f64 - (count - 1.0) / 2.0) * if self.joined { 0.02 } else { 0.5 / count };
        let points = self.series[index].points.iter().enumerate();
        points
            .filter_map(|(category, spread)| Some((category as f64 + shift, (*spread)?)))
            .collect()
    }

    /// The range of the vertical axis.
    fn range(&self) -> (f64, f64) {
        let spreads = || self.series.iter().flat_map(|series| series.points.iter().flatten());
        let high = spreads().map(|spread| spread.high).fold(0.0, f64::max);
        if !self.logarithmic {
            return (0.0, if high > 0.0 { high * 1.15 } else { 1.0 });
        }
        let low = spreads()
            .map(|spread| spread.low)
            .filter(|low| *low > 0.0)
            .fold(f64::INFINITY, f64::min);
        if !low.is_finite() {
            return (0.1, 10.0);
        }
        (10f64.powf(low.log10().floor()), 10f64.powf((high * 1.3).log10().ceil()))
    }

    fn ticks(&self, low: f64, high: f64) -> Vec<f64> {
        if self.logarithmic {
            let (first, last) = (low.log10().round() as i32, high.log10().round() as i32);
            return (first..=last).map(|power| 10f64.powi(power)).collect();
        }
        // Steps of 1, 2 or 5 times a power of ten, four to nine of them.
        let rough = high / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= rough).unwrap_or(10.0)
                * power;
        (0..).map(|index| f64::from(index) * step).take_while(|tick| *tick <= high).collect()
    }
}

/// A round number without redundant digits.
fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Breaks text between words into lines of at most `width` characters, as far as possible.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().map_or(0, |line| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(logarithmic: bool, points: Vec<Option<Spread>>) -> Panel {
        Panel {
            title: "panel".to_owned(),
            x: "size".to_owned(),
            y: "ms".to_owned(),
            categories: vec!["128 MiB".to_owned(), "1 GiB".to_owned()],
            series: vec![Series {
                name: "squeezy".to_owned(),
                colour: BLUE,
                variant: false,
                points,
            }],
            joined: true,
            logarithmic,
        }
    }

    #[test]
    fn ticks_cover_what_was_measured() {
        let points = vec![Spread::of([3.0, 5.0]), Spread::of([700.0])];
        let log = panel(true, points.clone());
        assert_eq!(log.range(), (1.0, 1000.0));
        assert_eq!(log.ticks(1.0, 1000.0), [1.0, 10.0, 100.0, 1000.0]);
        let linear = panel(false, points);
        assert_eq!(linear.ticks(0.0, 805.0), [0.0, 200.0, 400.0, 600.0, 800.0]);
    }

    #[test]
    fn anything_can_be_drawn() {
        for points in [vec![], vec![None, None], vec![Spread::of([0.0]), Spread::of([1e12])]] {
            for logarithmic in [false, true] {
                let chart = Chart {
                    title: "title".to_owned(),
                    subtitle: "subtitle".to_owned(),
                    panels: vec![panel(logarithmic, points.clone())],
                    foot: "one two three".to_owned(),
                };
                let svg = chart.svg().unwrap();
                assert!(
                    svg.starts_with("<svg") && svg.contains("1 GiB") && !svg.contains("NaN"),
                    "{svg}"
                );
            }
        }
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(
            [1000.0, 10.0, 0.1, 0.6000000001, 0.0].map(plain),
            ["1000", "10", "0.1", "0.6", "0"]
        );
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("", 8), [""]);
        assert_eq!(wrap("incomprehensible", 8), ["incomprehensible"]);
    }
}
