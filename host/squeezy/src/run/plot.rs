//! Plots a run: instances, guest memory and host memory over time, one column per policy (like
//! Figure 1 of the Squeezy paper).

use super::record::{PolicyRecord, Report, Sample};
use plotters::{
    coord::Shift,
    element::DashedPathElement,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use std::error::Error;

const COLUMN_WIDTH: u32 = 400;
const ROW_HEIGHT: u32 = 200;
const HEAD_HEIGHT: u32 = 84;
const FOOT_HEIGHT: u32 = 40;
const LEGEND_HEIGHT: u32 = 24;
const LABEL_AREA: u32 = 58;
const FONT: &str = "sans-serif";
/// Approximate width of a character of the legend.
const CHARACTER_WIDTH: i32 = 6;
/// Characters of a footer line that fit into one column.
const FOOT_CHARACTERS: usize = 62;

// Okabe and Ito's palette, which is distinguishable with any colour vision.
const BLUE: RGBColor = RGBColor(0, 114, 178);
const ORANGE: RGBColor = RGBColor(230, 159, 0);
const GREEN: RGBColor = RGBColor(0, 158, 115);
const GREY: RGBColor = RGBColor(120, 120, 120);

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A curve in a panel.
struct Curve {
    name: &'static str,
    colour: RGBColor,
    dashed: bool,
    /// Whether it is constant between two samples.
    steps: bool,
    value: fn(&Sample) -> f64,
}

/// A row of the plot.
struct Panel {
    axis: &'static str,
    curves: &'static [Curve],
    /// The minimum upper end of the vertical axis.
    least: f64,
}

const PANELS: [Panel; 3] = [
    Panel {
        axis: "instances",
        curves: &[
            Curve {
                name: "alive",
                colour: BLUE,
                dashed: false,
                steps: true,
                value: |s| s.alive() as f64,
            },
            Curve {
                name: "busy",
                colour: GREEN,
                dashed: false,
                steps: true,
                value: |s| s.busy as f64,
            },
        ],
        least: 4.0,
    },
    Panel {
        axis: "guest memory, MiB",
        curves: &[
            Curve {
                name: "plugged",
                colour: BLUE,
                dashed: false,
                steps: true,
                value: |s| mib(s.plugged_bytes),
            },
            Curve {
                name: "asked",
                colour: GREY,
                dashed: true,
                steps: true,
                value: |s| mib(s.asked_bytes),
            },
        ],
        least: 64.0,
    },
    Panel {
        axis: "resident on the host, MiB",
        curves: &[Curve {
            name: "resident",
            colour: ORANGE,
            dashed: false,
            steps: false,
            value: |s| mib(s.resident_bytes),
        }],
        least: 64.0,
    },
];

/// Draws the report as an SVG document.
pub fn svg(report: &Report) -> Result<String> {
    let columns = report.policies.len().max(1);
    let foot = foot(report, columns);
    let foot_height = FOOT_HEIGHT + 14 * foot.len() as u32;
    let size = (
        COLUMN_WIDTH * columns as u32,
        HEAD_HEIGHT + ROW_HEIGHT * PANELS.len() as u32 + foot_height,
    );
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        root.fill(&WHITE)?;
        let (head, rest) = root.split_vertically(HEAD_HEIGHT);
        let (body, foot_area) = rest.split_vertically(ROW_HEIGHT * PANELS.len() as u32);
        draw_head(&head, report)?;
        let cells = body.split_evenly((PANELS.len(), columns));
        let seconds = longest(report);
        for (row, panel) in PANELS.iter().enumerate() {
            let top = highest(report, panel);
            for (column, policy) in report.policies.iter().enumerate() {
                let cell = &cells[row * columns + column];
                draw_panel(cell, panel, policy, seconds, top)?;
            }
        }
        for (index, line) in foot.iter().enumerate() {
            let at = (8, 14 + 14 * index as i32);
            foot_area.draw_text(line, &(FONT, 11).into_font().color(&GREY), at)?;
        }
        root.present()?;
    }
    Ok(text)
}

fn draw_head(area: &Area<'_>, report: &Report) -> Result {
    let title = format!("{}: instances and memory over time", report.function);
    area.draw_text(&title, &(FONT, 18).into_font().color(&BLACK), (8, 8))?;
    let below = format!(
        "{}, memory backend {}, {} MiB per instance, keep-alive {:.1} s",
        report.accelerator,
        report.memory_backend,
        report.instance_bytes >> 20,
        report.keep_alive_seconds
    );
    area.draw_text(&below, &(FONT, 12).into_font().color(&GREY), (8, 34))?;
    let bold = (FONT, 14).into_font().style(FontStyle::Bold).color(&BLACK);
    for (column, policy) in report.policies.iter().enumerate() {
        let x = (COLUMN_WIDTH * column as u32 + LABEL_AREA + 8) as i32;
        area.draw_text(&policy.policy, &bold, (x, 62))?;
    }
    Ok(())
}

fn draw_panel(
    area: &Area<'_>,
    panel: &Panel,
    policy: &PolicyRecord,
    seconds: f64,
    top: f64,
) -> Result {
    let mut builder = ChartBuilder::on(area);
    builder.margin(8).margin_right(14).x_label_area_size(34).y_label_area_size(LABEL_AREA);
    builder.margin_top(LEGEND_HEIGHT);
    let mut chart = builder.build_cartesian_2d(0.0..seconds, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .bold_line_style(GREY.mix(0.2))
        .x_desc("seconds")
        .y_desc(panel.axis)
        .x_labels(7)
        .y_labels(5)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .label_style((FONT, 11).into_font())
        .axis_desc_style((FONT, 11).into_font())
        .draw()?;
    for curve in panel.curves {
        let style = curve.colour.stroke_width(2);
        let points = points(&policy.samples, curve);
        if curve.dashed {
            chart.draw_series(DashedLineSeries::new(points, 4, 3, style))?;
        } else {
            chart.draw_series(LineSeries::new(points, style))?;
        }
    }
    draw_legend(area, panel)
}

/// Draws the legend above the panel; plotters' own would cover the curves.
fn draw_legend(area: &Area<'_>, panel: &Panel) -> Result {
    let mut x = LABEL_AREA as i32 + 8;
    let y = LEGEND_HEIGHT as i32 / 2;
    for curve in panel.curves {
        let line = [(x, y), (x + 18, y)];
        let stroke = curve.colour.stroke_width(2);
        if curve.dashed {
            area.draw(&DashedPathElement::new(line, 4, 3, stroke))?;
        } else {
            area.draw(&PathElement::new(line, stroke))?;
        }
        let style = (FONT, 11).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw_text(curve.name, &style, (x + 24, y))?;
        x += 24 + CHARACTER_WIDTH * curve.name.len() as i32 + 16;
    }
    Ok(())
}

fn points(samples: &[Sample], curve: &Curve) -> Vec<(f64, f64)> {
    let mut points = Vec::with_capacity(samples.len() * 2);
    let mut last = None;
    for sample in samples {
        let value = (curve.value)(sample);
        if let Some(last) = last.filter(|last| curve.steps && *last != value) {
            points.push((sample.at_seconds, last));
        }
        points.push((sample.at_seconds, value));
        last = Some(value);
    }
    points
}

fn longest(report: &Report) -> f64 {
    let ends = report.policies.iter().filter_map(|m| m.samples.last());
    ends.map(|sample| sample.at_seconds).fold(1.0, f64::max)
}

fn highest(report: &Report, panel: &Panel) -> f64 {
    let samples = report.policies.iter().flat_map(|m| &m.samples);
    let values = samples.flat_map(|s| panel.curves.iter().map(|c| (c.value)(s)));
    values.fold(panel.least, f64::max) * 1.08
}

/// The load and the notes, broken into lines that fit.
fn foot(report: &Report, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for text in
        std::iter::once(format!("Load: {}.", report.load)).chain(report.notes.iter().cloned())
    {
        let mut line = String::new();
        for word in text.split(' ') {
            if !line.is_empty() && line.len() + 1 + word.len() > FOOT_CHARACTERS * columns {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::record::tests::example;

    #[test]
    fn every_policy_has_its_column() {
        let text = svg(&example()).unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        for word in ["squeezy", "static", "resident on the host, MiB", "synthetic"] {
            assert!(text.contains(word), "{word}");
        }
        if let Some(path) = std::env::var_os("SQUEEZY_EXAMPLE_PLOT") {
            std::fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn a_run_without_a_sample_can_be_drawn() {
        let mut report = example();
        report.policies.iter_mut().for_each(|m| m.samples.clear());
        svg(&report).unwrap();
        report.policies.clear();
        svg(&report).unwrap();
    }
}
