//! `squeezy top`.

use super::{
    ClientError, Connection,
    state::{COLUMNS, Sample, State},
    status::heading,
    table::lines,
};
use crate::interrupt::is_pressed_within;
use clap::Args;
use ratatui::{
    DefaultTerminal, Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Style, Stylize},
    symbols::Marker,
    text::Line,
    widgets::{Axis, Block, Chart, Dataset, GraphType, Paragraph},
};
use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    time::Duration,
};

/// Interval between requests to the daemon, which samples its VMs as often.
const PAUSE: Duration = Duration::from_secs(1);

/// How far back the chart goes, in milliseconds.
const CHART_MS: u64 = 5 * 60 * 1000;

/// Shows the state of a running daemon live.
///
/// Shows memory over the last minutes, functions with their instances and latency, and reclaimed
/// memory. The columns and the lines about refused calls are those of `squeezy status`. q or Ctrl-C
/// quits.
#[derive(Clone, Debug, Args)]
pub struct Top {
    #[command(flatten)]
    connection: Connection,
}

/// The contents of the screen.
#[derive(Default)]
struct Screen {
    heading: String,
    state: State,
    /// Samples of the last minutes, up to the time of the state.
    samples: Vec<Sample>,
    /// Why the state is out of date.
    problem: Option<String>,
}

impl Top {
    /// Runs until q or Ctrl-C.
    pub fn run(self) -> Result<ExitCode, ClientError> {
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            return Err(ClientError::Terminal(io::Error::other("the output is not a terminal")));
        }
        // If the daemon cannot be reached, fail before taking over the terminal.
        let mut screen = Screen::default();
        screen.take(&self.connection, State::ask(&self.connection, 0)?);
        let mut terminal = ratatui::try_init().map_err(ClientError::Terminal)?;
        let shown = self.show(&mut terminal, &mut screen);
        ratatui::restore();
        shown.map(|()| ExitCode::SUCCESS).map_err(ClientError::Terminal)
    }

    fn show(&self, terminal: &mut DefaultTerminal, screen: &mut Screen) -> io::Result<()> {
        loop {
            terminal.draw(|frame| draw(frame, screen))?;
            if is_pressed_within(PAUSE)? {
                return Ok(());
            }
            let latest = screen.samples.last().map_or(0, |sample| sample.at_ms);
            match State::ask(&self.connection, latest) {
                Ok(state) => screen.take(&self.connection, state),
                Err(error) => screen.problem = Some(error.to_string()),
            }
        }
    }
}

impl Screen {
    fn take(&mut self, connection: &Connection, mut state: State) {
        self.heading = heading(connection, &state);
        // If the daemon was restarted or its clock was set back, its history starts anew.
        self.samples.retain(|sample| sample.at_ms <= state.now_ms);
        self.samples.append(&mut state.samples);
        self.samples.retain(|sample| sample.at_ms + CHART_MS >= state.now_ms);
        self.state = state;
        self.problem = None;
    }
}

fn draw(frame: &mut Frame<'_>, screen: &Screen) {
    // The header, a line per function, and the frame.
    let State { functions, .. } = &screen.state;
    let lines = functions.len() + screen.state.held().count() + screen.state.problems().count();
    let functions = u16::try_from(lines).unwrap_or(u16::MAX);
    let [head, chart, functions, reclaims, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(8),
        Constraint::Length(functions.saturating_add(3)),
        Constraint::Percentage(25),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Line::from(screen.heading.as_str()).bold(), head);
    draw_memory(frame, chart, screen);
    draw_functions(frame, functions, &screen.state);
    draw_reclaims(frame, reclaims, &screen.state);
    let foot_line = match &screen.problem {
        Some(problem) => Line::from(problem.as_str()).red(),
        None => Line::from("q or Ctrl-C: quit").dim(),
    };
    frame.render_widget(foot_line, foot);
}

fn draw_memory(frame: &mut Frame<'_>, area: Rect, screen: &Screen) {
    let points = |of: fn(&super::state::Point) -> Option<u64>| -> Vec<(f64, f64)> {
        let sum = |sample: &Sample| sample.functions.values().filter_map(of).sum::<u64>();
        let ago = |sample: &Sample| screen.state.now_ms.saturating_sub(sample.at_ms) as f64 / -1e3;
        screen.samples.iter().map(|s| (ago(s), (sum(s) >> 20) as f64)).collect()
    };
    let asked = points(|point| point.asked_bytes);
    let plugged = points(|point| point.plugged_bytes);
    let resident = points(|point| point.resident_bytes);
    let all = asked.iter().chain(&plugged).chain(&resident);
    let top = all.map(|point| point.1).fold(64.0, f64::max) * 1.05;
    let curves = [(&asked, Color::Gray), (&plugged, Color::Blue), (&resident, Color::Yellow)];
    let curves = curves.map(|(points, colour)| {
        let set = Dataset::default().marker(Marker::Braille).graph_type(GraphType::Line);
        set.style(Style::new().fg(colour)).data(points)
    });
    let title = "memory of VMs, MiB: asked (grey), plugged (blue), resident (yellow)";
    let left = CHART_MS as f64 / -1e3;
    let memory = [0.0, top / 2.0, top].map(|mib| format!("{mib:.0}"));
    let chart = Chart::new(curves.to_vec())
        .block(Block::bordered().title(title))
        .x_axis(Axis::default().bounds([left, 0.0]).labels(["5 min ago", "now"]))
        .y_axis(Axis::default().bounds([0.0, top]).labels(memory));
    frame.render_widget(chart, area);
}

fn draw_functions(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let mut rows = lines(&state.functions, &COLUMNS).into_iter();
    let heading = rows.next().map(|line| Line::from(line).dim());
    let problems = state.held().chain(state.problems()).map(|problem| Line::from(problem).red());
    let text: Vec<_> = heading.into_iter().chain(rows.map(Line::from)).chain(problems).collect();
    frame.render_widget(Paragraph::new(text).block(Block::bordered().title("functions")), area);
}

fn draw_reclaims(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let line = |reclaim: &super::state::Reclaim| {
        let ago = state.now_ms.saturating_sub(reclaim.at_ms) / 1000;
        let (function, instance) = (&reclaim.function, reclaim.instance);
        let begin = format!("{ago:4} s ago  {function}, instance {instance}: ");
        match &reclaim.error {
            Some(error) => Line::from(format!("{begin}{error}")).red(),
            None => Line::from(format!(
                "{begin}{} MiB back after {:.1} ms, {} MiB less resident",
                reclaim.size_bytes >> 20,
                reclaim.unplug_ms.unwrap_or_default(),
                reclaim.resident_drop_bytes.unwrap_or_default() >> 20,
            )),
        }
    };
    let text: Vec<_> = state.reclaims.iter().map(line).collect();
    let block = Block::bordered().title("reclaimed memory");
    frame.render_widget(Paragraph::new(text).block(block), area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::state::tests::example;
    use ratatui::{Terminal, backend::TestBackend};

    #[test]
    fn a_screen_of_any_size_can_be_drawn() {
        let mut state = example();
        let samples = std::mem::take(&mut state.samples);
        let screen = Screen { state, samples, ..Screen::default() };
        for (width, height) in [(1, 1), (80, 24), (200, 60)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &screen)).unwrap();
            if width == 200 {
                let text = terminal.backend().to_string();
                let reclaim = "1 s ago  html, instance 7: 768 MiB back after 2.5 ms, 50 MiB less";
                assert!(text.contains(reclaim) && text.contains("FUNCTION  VM"), "{text}");
            }
        }
    }
}
