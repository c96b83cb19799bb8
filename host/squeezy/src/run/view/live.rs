//! The live view: one screen, redrawn ten times a second by its own thread.

use super::{Heading, Totals, View, describe};
use crate::{
    interrupt::{Interrupt, is_pressed_within},
    mutex::lock,
    output::Output,
    run::record::{Outcome, RequestRecord, ResizeRecord, Sample},
};
use ratatui::{
    DefaultTerminal, Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Style, Stylize},
    symbols::Marker,
    text::{Line, Span},
    widgets::{Axis, Block, Chart, Dataset, GraphType, Paragraph},
};
use squeezy_load::Load;
use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Interval between frames.
const FRAME: Duration = Duration::from_millis(100);
/// Resizes and notes to keep.
const REMEMBERED: usize = 64;

/// Draws on the terminal until it is dropped.
pub struct Live {
    screen: Arc<Mutex<Screen>>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    output: Output,
}

/// The contents of the screen.
#[derive(Default)]
struct Screen {
    heading: Heading,
    samples: Vec<Sample>,
    totals: Totals,
    latest_latency_seconds: f64,
    resizes: VecDeque<(String, bool)>,
    notes: VecDeque<String>,
}

impl Live {
    /// Takes over the terminal. Notes are printed to `output` at the end.
    pub fn open(interrupt: Interrupt, output: Output) -> io::Result<Self> {
        let terminal = ratatui::try_init()?;
        let screen = Arc::new(Mutex::new(Screen::default()));
        let end = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("view".to_owned()).spawn({
            let (screen, end) = (screen.clone(), end.clone());
            move || draw_until(&end, &screen, terminal, &interrupt)
        });
        match thread {
            Ok(thread) => Ok(Self { screen, end, thread: Some(thread), output }),
            Err(error) => {
                ratatui::restore();
                Err(error)
            }
        }
    }

    fn with(&self, work: impl FnOnce(&mut Screen)) {
        work(&mut lock(&self.screen));
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread restores the terminal before it exits.
            let _ = thread.join();
        }
        // The notes that went by on the screen are worth keeping.
        self.with(|screen| screen.notes.iter().for_each(|note| self.output.print(note)));
    }
}

impl View for Live {
    fn begin(&self, function: &str, turn: &str, concurrency: u16) {
        self.with(|screen| {
            let notes = std::mem::take(&mut screen.notes);
            let heading = Heading::new(function, turn, concurrency);
            *screen = Screen { heading, notes, ..Screen::default() };
        });
        self.note(turn);
    }

    fn load(&self, load: &Load, length: Duration) {
        self.with(|screen| screen.heading.load(load, length));
    }

    fn note(&self, text: &str) {
        self.with(|screen| {
            let at = screen.samples.last().map_or(0.0, |sample| sample.at_seconds);
            remember(&mut screen.notes, format!("{at:6.1} s  {text}"));
        });
    }

    fn sample(&self, sample: &Sample) {
        self.with(|screen| screen.samples.push(*sample));
    }

    fn request(&self, request: &RequestRecord) {
        self.with(|screen| {
            screen.totals.count(&request.outcome);
            screen.latest_latency_seconds = request.latency_seconds;
            if let Outcome::Wrong(reason) | Outcome::Failed(reason) | Outcome::Rejected(reason) =
                &request.outcome
            {
                remember(
                    &mut screen.notes,
                    format!("{:6.1} s  request: {reason}", request.at_seconds),
                );
            }
        });
    }

    fn resize(&self, resize: &ResizeRecord) {
        self.with(|screen| {
            let line = format!("{:6.1} s  {}", resize.at_seconds, describe(resize));
            remember(&mut screen.resizes, (line, resize.error.is_some()));
        });
    }
}

fn remember<T>(list: &mut VecDeque<T>, item: T) {
    if list.len() == REMEMBERED {
        list.pop_front();
    }
    list.push_back(item);
}

fn draw_until(
    end: &AtomicBool,
    screen: &Mutex<Screen>,
    mut terminal: DefaultTerminal,
    interrupt: &Interrupt,
) {
    while !end.load(Ordering::Relaxed) {
        let drawn = {
            let screen = lock(screen);
            terminal.draw(|frame| draw(frame, &screen)).map(drop)
        };
        match drawn.and_then(|()| is_pressed_within(FRAME)) {
            Ok(true) => interrupt.raise(),
            Ok(false) => {}
            // Losing the terminal must not end the run.
            Err(_) => std::thread::sleep(FRAME),
        }
    }
    ratatui::restore();
}

fn draw(frame: &mut Frame<'_>, screen: &Screen) {
    let [head, instances, charts, lists, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(4),
        Constraint::Min(8),
        Constraint::Percentage(35),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let [memory, counts] =
        Layout::horizontal([Constraint::Percentage(65), Constraint::Percentage(35)]).areas(charts);
    let [resizes, notes] =
        Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(lists);
    draw_head(frame, head, screen);
    draw_instances(frame, instances, screen);
    draw_memory(frame, memory, screen);
    draw_counts(frame, counts, screen);
    draw_resizes(frame, resizes, screen);
    draw_notes(frame, notes, screen);
    frame.render_widget(
        Line::from("Ctrl-C or q: end the run with a summary; twice: end it at once").dim(),
        foot,
    );
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, screen: &Screen) {
    let Heading { function, turn, load, length, .. } = &screen.heading;
    let at = screen.samples.last().map_or(0.0, |sample| sample.at_seconds);
    let lines = vec![
        Line::from(vec![
            Span::from(format!("{function} ")).bold(),
            Span::from(turn.clone()).cyan().bold(),
            Span::from(format!("   {at:.0} s (requests are sent for {} s)", length.as_secs_f64())),
        ]),
        Line::from(load.clone()).dim(),
    ];
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_instances(frame: &mut Frame<'_>, area: Rect, screen: &Screen) {
    let s = screen.samples.last().copied().unwrap_or_default();
    let mut cells = Vec::new();
    let groups = [
        (s.busy, Color::Green, "busy"),
        (s.idle, Color::Blue, "idle"),
        (s.starting, Color::Yellow, "starting"),
        (s.stopping, Color::Red, "stopping"),
        (s.reclaiming, Color::Magenta, "reclaiming"),
        (s.stranded, Color::DarkGray, "memory kept by the guest"),
    ];
    for (count, colour, _) in groups {
        cells.push(Span::from("██ ".repeat(count)).style(Style::new().fg(colour)));
    }
    let free =
        usize::from(screen.heading.concurrency).saturating_sub(groups.iter().map(|g| g.0).sum());
    cells.push(Span::from("░░ ".repeat(free)).dim());
    let mut legend = Vec::new();
    for (count, colour, name) in groups {
        legend.push(Span::from(format!("{count} {name}  ")).style(Style::new().fg(colour)));
    }
    let t = screen.totals;
    let unhappy = t.wrong + t.failed + t.rejected > 0;
    let requests = format!(
        "requests: {} of {} done, {} waiting, {} wrong, {} failed, {} rejected; the latest took {:.2} s",
        t.all(),
        screen.heading.requests,
        s.queued,
        t.wrong,
        t.failed,
        t.rejected,
        screen.latest_latency_seconds
    );
    let requests =
        Line::from(requests).style(if unhappy { Style::new().red() } else { Style::new() });
    frame
        .render_widget(Paragraph::new(vec![Line::from(cells), Line::from(legend), requests]), area);
}

fn draw_memory(frame: &mut Frame<'_>, area: Rect, screen: &Screen) {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let asked = points(screen, |s| mib(s.asked_bytes));
    let plugged = points(screen, |s| mib(s.plugged_bytes));
    let resident = points(screen, |s| mib(s.resident_bytes));
    let s = screen.samples.last().copied().unwrap_or_default();
    let title = format!(
        "memory, MiB: asked {:.0} (grey), plugged {:.0} (blue), resident on the host {:.0} (yellow)",
        mib(s.asked_bytes),
        mib(s.plugged_bytes),
        mib(s.resident_bytes)
    );
    let curves = [(&asked, Color::Gray), (&plugged, Color::Blue), (&resident, Color::Yellow)];
    draw_chart(frame, area, title, &curves);
}

fn draw_counts(frame: &mut Frame<'_>, area: Rect, screen: &Screen) {
    let alive = points(screen, |s| s.alive() as f64);
    let queued = points(screen, |s| s.queued as f64);
    let title = "instances (blue), waiting requests (red)".to_owned();
    draw_chart(frame, area, title, &[(&queued, Color::Red), (&alive, Color::Blue)]);
}

fn points(screen: &Screen, value: impl Fn(&Sample) -> f64) -> Vec<(f64, f64)> {
    screen.samples.iter().map(|sample| (sample.at_seconds, value(sample))).collect()
}

fn draw_chart(
    frame: &mut Frame<'_>,
    area: Rect,
    title: String,
    curves: &[(&Vec<(f64, f64)>, Color)],
) {
    let all = || curves.iter().flat_map(|(points, _)| points.iter());
    let right = all().map(|point| point.0).fold(10.0, f64::max);
    let top = all().map(|point| point.1).fold(4.0, f64::max) * 1.05;
    let datasets = curves
        .iter()
        .map(|(points, colour)| {
            Dataset::default()
                .marker(Marker::Braille)
                .graph_type(GraphType::Line)
                .style(Style::new().fg(*colour))
                .data(points)
        })
        .collect();
    let labels = |end: f64| [0.0, end / 2.0, end].map(|value| format!("{value:.0}"));
    let chart = Chart::new(datasets)
        .block(Block::bordered().title(title))
        .x_axis(Axis::default().bounds([0.0, right]).labels(labels(right)))
        .y_axis(Axis::default().bounds([0.0, top]).labels(labels(top)));
    frame.render_widget(chart, area);
}

fn draw_resizes(frame: &mut Frame<'_>, area: Rect, screen: &Screen) {
    let lines = newest(&screen.resizes, area).map(|(text, failed)| {
        let line = Line::from(text.as_str());
        if *failed { line.red() } else { line }
    });
    let block = Block::bordered().title("memory plugged and reclaimed");
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(block), area);
}

fn draw_notes(frame: &mut Frame<'_>, area: Rect, screen: &Screen) {
    let lines = newest(&screen.notes, area).map(|text| Line::from(text.as_str()));
    let block = Block::bordered().title("what happened");
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(block), area);
}

/// The newest items that fit into a bordered area, in order.
fn newest<T>(list: &VecDeque<T>, area: Rect) -> impl Iterator<Item = &T> {
    let room = usize::from(area.height.saturating_sub(2));
    list.iter().skip(list.len().saturating_sub(room))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::record::tests::example;
    use ratatui::{Terminal, backend::TestBackend};

    #[test]
    fn a_screen_of_any_size_can_be_drawn() {
        let report = example();
        let mut screen =
            Screen { samples: report.policies[1].samples.clone(), ..Screen::default() };
        screen.resizes.push_back((describe(&report.policies[1].resizes[0]), false));
        for (width, height) in [(1, 1), (80, 24), (200, 60)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &screen)).unwrap();
            if width == 200 {
                let text = terminal.backend().to_string();
                assert!(
                    text.contains("reclaim 128 MiB of instance 1: 2.0 ms, 48 MiB less resident"),
                    "{text}"
                );
            }
        }
    }
}
