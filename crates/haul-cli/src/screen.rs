//! The terminal as one thing that a live display and log lines share, so that neither breaks the other.

use std::{
    fs::File,
    io::{IsTerminal as _, Write as _, stderr, stdout},
    sync::{Mutex, MutexGuard},
};

/// What is on the terminal now. Errors in writing to it are ignored: there is nowhere to tell them.
pub struct Screen {
    /// Standard output is a terminal, so a display may be drawn there.
    live: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Lines of the display as drawn, so that they can be drawn over.
    drawn: Vec<String>,
    /// Where the log goes instead of standard error.
    log: Option<File>,
    json: bool,
}

/// A width and height for a terminal that doesn't tell.
const USUAL: (usize, usize) = (80, 24);

impl Screen {
    /// The process's terminal.
    pub fn new() -> Self {
        Screen { live: stdout().is_terminal(), state: Mutex::default() }
    }

    /// Can a live display be drawn?
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Sends the log to a file, as text or JSON.
    pub fn log_to(&self, file: Option<File>, json: bool) {
        let mut state = self.lock();
        state.log = file;
        state.json = json;
    }

    /// A log line, without its line break.
    pub fn log(&self, line: &str) {
        let mut state = self.lock();
        if let Some(file) = &mut state.log {
            let _ = writeln!(file, "{line}");
            return;
        }
        let drawn = std::mem::take(&mut state.drawn);
        erase(drawn.len());
        let _ = writeln!(stderr(), "{line}");
        put(&mut state, drawn);
    }

    /// An error that ends the program, as a line for a person; in the log's form where a program reads it.
    pub fn tell(&self, line: &str) {
        let (to_file, json) = {
            let state = self.lock();
            (state.log.is_some(), state.json)
        };
        if to_file || json {
            tracing::error!("{line}");
        } else {
            self.log(&format!("haul: {line}"));
        }
    }

    /// Draws the display over the last one. Lines are cut to the terminal's width, and to its height.
    pub fn draw(&self, lines: Vec<String>) {
        if !self.live {
            return;
        }
        let (width, height) = size();
        let cut = |line: String| fit(&line, width.saturating_sub(1));
        let lines = lines.into_iter().take(height.saturating_sub(1)).map(cut).collect();
        let mut state = self.lock();
        redraw(&mut state, lines);
    }

    /// Lines that stay, below whatever is there, on standard output.
    pub fn print(&self, text: &str) {
        let mut state = self.lock();
        erase(std::mem::take(&mut state.drawn).len());
        let _ = writeln!(stdout(), "{text}");
        let _ = stdout().flush();
    }

    /// Takes the display away.
    pub fn finish(&self) {
        let mut state = self.lock();
        erase(std::mem::take(&mut state.drawn).len());
        if let Some(file) = &mut state.log {
            let _ = file.flush();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Draws over the lines that are there, in one write, so that nothing flickers.
fn redraw(state: &mut State, lines: Vec<String>) {
    let old = state.drawn.len();
    let mut out = String::new();
    if old > 0 {
        out.push_str(&format!("\x1b[{old}A\r"));
    }
    for line in &lines {
        out.push_str(&format!("{line}\x1b[K\n"));
    }
    out.push_str("\x1b[J");
    let _ = stdout().write_all(out.as_bytes());
    let _ = stdout().flush();
    state.drawn = lines;
}

fn put(state: &mut State, lines: Vec<String>) {
    if !lines.is_empty() {
        redraw(state, lines);
    }
}

fn erase(lines: usize) {
    if lines > 0 {
        let _ = stdout().write_all(format!("\x1b[{lines}A\r\x1b[J").as_bytes());
        let _ = stdout().flush();
    }
}

/// Columns and lines of the terminal.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => USUAL,
    }
}

/// The first `width` columns, counting a character as one: a wide one may be cut off by the terminal itself.
fn fit(line: &str, width: usize) -> String {
    line.chars().take(width).collect()
}
