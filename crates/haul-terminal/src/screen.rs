//! The terminal as one thing that a live display and log lines share, so that neither breaks the other.

use crate::{
    colour::{RED, paint},
    print,
};
use haul_core::text::{columns, cut};
use std::{
    io::{Write, stderr, stdout},
    sync::{Mutex, MutexGuard},
};

/// Current content of the terminal. Errors in writing to it are ignored: there is no other place to report them.
pub struct Screen {
    shows: TerminalFeatures,
    state: Mutex<State>,
}

/// Abilities of a terminal.
#[derive(Clone, Copy, Debug, Default)]
pub struct TerminalFeatures {
    /// Standard output is a terminal, so a display may be drawn there.
    pub live: bool,
    /// Lines on standard error have colours.
    pub log_colours: bool,
    /// Text on standard output has colours.
    pub output_colours: bool,
}

#[derive(Default)]
struct State {
    /// Lines of the display as drawn, so that they can be drawn over.
    drawn: Vec<String>,
    /// Where the log goes instead of standard error.
    log: Option<Box<dyn Write + Send>>,
    /// Programs read the log, not people.
    for_programs: bool,
    /// Log lines that wait while a command has the terminal to itself.
    held: Option<Vec<String>>,
}

/// A width and height for a terminal that doesn't tell.
const USUAL: (usize, usize) = (80, 24);

impl Screen {
    /// The process's terminal.
    pub fn new(shows: TerminalFeatures) -> Self {
        Screen { shows, state: Mutex::default() }
    }

    /// True if the log has colours: on a terminal, not in a file.
    pub fn colours_log(&self) -> bool {
        let state = self.lock();
        state.log.is_none() && !state.for_programs && self.shows.log_colours
    }

    /// Can a live display be drawn?
    pub fn is_live(&self) -> bool {
        self.shows.live
    }

    /// True while a display is on it.
    pub fn is_drawn(&self) -> bool {
        !self.lock().drawn.is_empty()
    }

    /// True if a command's output has colours.
    pub fn colours_output(&self) -> bool {
        self.shows.output_colours
    }

    /// Sends the log's lines to `log`, each by one write with its line break, instead of standard error. `for_programs`: they have
    /// a form that programs read.
    pub fn log_to(&self, log: Option<Box<dyn Write + Send>>, for_programs: bool) {
        let mut state = self.lock();
        state.log = log;
        state.for_programs = for_programs;
    }

    /// A log line, without its line break.
    pub fn log(&self, line: &str) {
        let mut state = self.lock();
        if let Some(log) = &mut state.log {
            match log.write_all(format!("{line}\n").as_bytes()) {
                Ok(()) => return,
                // Said once; what follows comes here.
                Err(error) => {
                    let _ = writeln!(stderr(), "the log can't be written any more, so it goes on here: {error}");
                    state.log = None;
                }
            }
        }
        if let Some(held) = &mut state.held {
            held.push(line.to_owned());
            return;
        }
        let drawn = std::mem::take(&mut state.drawn);
        self.erase(&drawn);
        let _ = writeln!(stderr(), "{line}");
        if !drawn.is_empty() {
            redraw(&mut state, drawn, self.size().0);
        }
    }

    /// Log lines for the terminal wait from now on: a command draws on all of it.
    pub fn hold(&self) {
        self.lock().held.get_or_insert_default();
    }

    /// Gives out what waited.
    pub fn release(&self) {
        let held = self.lock().held.take().unwrap_or_default();
        held.iter().for_each(|line| self.log(line));
    }

    /// An error that ends the program, as a line for a person; in the log's form where a program reads it.
    pub fn tell(&self, line: &str) {
        let logged = {
            let state = self.lock();
            state.log.is_some() || state.for_programs
        };
        if logged {
            tracing::error!("{line}");
        } else {
            self.log(&format!("{} {line}", paint("haul:", RED, self.colours_log())));
        }
    }

    /// Columns and lines of the terminal.
    pub fn size(&self) -> (usize, usize) {
        match rustix::termios::tcgetwinsize(stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => USUAL,
        }
    }

    /// Draws the display over the last one. Lines are cut to the terminal's width, and to its height.
    pub fn draw(&self, lines: Vec<String>) {
        if !self.shows.live {
            return;
        }
        let (width, height) = self.size();
        let cut = |line: String| fit(&line, width.saturating_sub(1));
        let lines = lines.into_iter().take(height.saturating_sub(1)).map(cut).collect();
        let mut state = self.lock();
        redraw(&mut state, lines, width);
    }

    /// Lines that stay, below whatever is there, on standard output. What isn't a command's result may pass over an error.
    pub fn print(&self, text: &str) -> anyhow::Result<()> {
        let mut state = self.lock();
        self.erase(&std::mem::take(&mut state.drawn));
        print::line(text)
    }

    /// Takes the display away.
    pub fn finish(&self) {
        let mut state = self.lock();
        self.erase(&std::mem::take(&mut state.drawn));
        if let Some(log) = &mut state.log {
            let _ = log.flush();
        }
    }

    fn erase(&self, drawn: &[String]) {
        if !drawn.is_empty() {
            let _ = stdout().write_all(format!("\x1b[{}A\r\x1b[J", rows(drawn, self.size().0)).as_bytes());
            let _ = stdout().flush();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Draws over the lines that are there, in one write, so that nothing flickers.
fn redraw(state: &mut State, lines: Vec<String>, width: usize) {
    let _ = stdout().write_all(over(&state.drawn, &lines, width).as_bytes());
    let _ = stdout().flush();
    state.drawn = lines;
}

/// The escape sequences that draw `new` over `old` on a terminal of this width.
fn over(old: &[String], new: &[String], width: usize) -> String {
    let mut out = String::new();
    if !old.is_empty() {
        // All of it goes first where the terminal has become narrower: what it wrapped stands in more rows than there are lines.
        let up = rows(old, width);
        let erase = if up > old.len() { "\x1b[J" } else { "" };
        out.push_str(&format!("\x1b[{up}A\r{erase}"));
    }
    for line in new {
        out.push_str(&format!("{line}\x1b[K\n"));
    }
    out.push_str("\x1b[J");
    out
}

/// Rows that lines take on a terminal of this width: one that is longer is wrapped when the terminal becomes narrower.
fn rows(lines: &[String], width: usize) -> usize {
    lines.iter().map(|line| columns(line).div_ceil(width.max(1)).max(1)).sum()
}

/// As much of a line as fits into `width` columns.
fn fit(line: &str, width: usize) -> String {
    cut(line.chars(), width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn a_display_is_drawn_over_the_last_one() {
        assert_eq!(over(&[], &of(&["a"]), 80), "a\x1b[K\n\x1b[J");
        assert_eq!(over(&of(&["a", "b"]), &of(&["c"]), 80), "\x1b[2A\rc\x1b[K\n\x1b[J");
    }

    #[test]
    fn what_a_narrower_terminal_wrapped_is_erased() {
        let old = of(&[&"x".repeat(79), "short"]);
        assert_eq!(rows(&old, 80), 2);
        assert_eq!(over(&old, &of(&["c"]), 40), "\x1b[3A\r\x1b[Jc\x1b[K\n\x1b[J");
    }

    #[test]
    fn lines_are_cut_by_columns() {
        assert_eq!((fit("abc", 2).as_str(), fit("日本語", 5).as_str(), fit("abc", 9).as_str()), ("ab", "日本", "abc"));
    }
}
