//! `--events FILE`: what happens during a job, an object of JSON a line, for programs that follow it.

use anyhow::{Context as _, Result};
use haul_core::event::{Event, Sink};
use serde::Serialize;
use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

/// A line waits at most this long for the next event before it is in the file.
const FLUSH: Duration = Duration::from_millis(200);

/// Where events are written.
#[derive(clap::Args, Debug)]
pub struct EventFlags {
    /// Write each event of the job to this file as it happens, one JSON object per line
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
}

/// A sink that writes every event and passes it on.
pub struct Events {
    next: Arc<dyn Sink>,
    state: Mutex<State>,
}

struct State {
    out: BufWriter<File>,
    flushed: Instant,
    /// The first thing that could not be written.
    failed: Option<io::Error>,
}

/// One line.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    #[serde(flatten)]
    event: &'a Event,
}

impl Events {
    /// Puts the sink before `sink` if it was asked for.
    ///
    /// Errors: a file that can't be created.
    pub fn open(flags: &EventFlags, sink: &mut Arc<dyn Sink>) -> Result<Option<Arc<Events>>> {
        let Some(path) = &flags.events else { return Ok(None) };
        #[expect(clippy::disallowed_methods, reason = "a file that the user named for output")]
        let file = File::create(path).with_context(|| format!("can't create {}", path.display()))?;
        let state = State { out: BufWriter::new(file), flushed: Instant::now(), failed: None };
        let events = Arc::new(Events { next: sink.clone(), state: Mutex::new(state) });
        *sink = events.clone();
        Ok(Some(events))
    }

    /// Writes an event without passing it on.
    pub fn write(&self, event: &Event) {
        let mut state = self.state();
        if let Err(error) = state.write(event) {
            state.failed.get_or_insert(error);
        }
    }

    /// Errors: the output can't be written.
    pub fn finish(&self) -> Result<()> {
        let mut state = self.state();
        let written = state.failed.take().map_or(Ok(()), Err);
        written.and_then(|()| state.out.flush()).context("can't write the events")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl State {
    fn write(&mut self, event: &Event) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, &Line { time: jiff::Timestamp::now().to_string(), event })?;
        self.out.write_all(b"\n")?;
        if self.flushed.elapsed() >= FLUSH {
            self.out.flush()?;
            self.flushed = Instant::now();
        }
        Ok(())
    }
}

impl Sink for Events {
    fn emit(&self, event: &Event) {
        self.write(event);
        self.next.emit(event);
    }
}
