//! `ncdu`: browse sizes on the terminal. Here are the terminal, the listing and deletions; `model` is what is known and what keys
//! do, `view` draws it.

mod model;
mod view;

use super::{
    deleting,
    listing::{Failures, Source, depth},
    purge,
};
use crate::{
    context::Context,
    error::{CommandResult, code, usage},
    flags,
};
use anyhow::Result;
use futures::StreamExt as _;
use haul::ListOptions;
use haul_core::{Entry, Error, ErrorKind};
use haul_store::Links;
use jiff::tz::TimeZone;
use model::{Action, Id, KeyPress, Model};
use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor::{Hide, Show},
        event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
        execute,
        terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
};
use std::{
    ffi::OsString,
    io::{IsTerminal as _, Stdout, stdin, stdout},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// The scan's progress is drawn so often.
const FRAME: Duration = Duration::from_millis(100);
/// Entries that are taken in before keys are looked at again.
const BATCH: usize = 4096;

/// Browse the sizes of directories on the terminal
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remote or local path
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    if !stdin().is_terminal() || !ctx.screen.is_live() {
        return Err(usage("ncdu needs a terminal: use haul size or haul tree --size"));
    }
    let source = Source::open(ctx, &args.path).await?;
    let mut model = Model::new(crate::journal::shown_path(&args.path));
    model.keeps_dirs = keeps_dirs(ctx, &source);
    let options = ListOptions { max_depth: depth(&ctx.flags, true), dirs: true, ..Default::default() };
    ctx.screen.hold();
    let window = Window::open();
    let ended = match window {
        Ok(mut window) => {
            let ended = browse(ctx, &source, options, &mut model, &mut window).await;
            window.close().and(ended)
        }
        Err(error) => Err(error),
    };
    ctx.screen.release();
    ended.map_err(|error| Error::from_io("use the terminal", error))?;
    Ok(if ctx.cancel.is_cancelled() { CommandResult::Exit(code::INTERRUPTED) } else { CommandResult::Done })
}

/// Deleting a directory deletes all that is in it, so all of that must be shown.
fn keeps_dirs(ctx: &Context, source: &Source) -> Option<String> {
    let because =
        |what: &str| Some(format!("{what}: directories aren't deleted here, since not all in them is shown."));
    if !source.filter.is_all() || ctx.flags.filter.max_depth.is_some_and(|depth| depth > 0) {
        return because("A filter is set");
    }
    if ctx.flags.filter.one_file_system {
        return because("Other file systems are left out (--one-file-system)");
    }
    if flags::links(&ctx.flags) == Links::Follow {
        return because("Symlinks are followed (--copy-links)");
    }
    source.lists_buckets().then(|| "These are buckets: see haul purge.".to_string())
}

async fn browse(
    ctx: &Context,
    source: &Source,
    options: ListOptions,
    model: &mut Model,
    window: &mut Window,
) -> std::io::Result<()> {
    let (colours, zone) = (ctx.screen.colours_output(), TimeZone::system());
    let mut entries = source.entries(options).ready_chunks(BATCH);
    let mut drawn = Instant::now();
    window.draw(model, colours, &zone)?;
    loop {
        tokio::select! {
            biased;
            () = ctx.cancel.cancelled() => return Ok(()),
            event = window.events.recv() => match event {
                Some(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                    let Some(press) = pressed(key) else { return Ok(()) };
                    match model.press(press) {
                        Action::None => {}
                        Action::Quit => return Ok(()),
                        Action::Delete(id) => {
                            model.over = model::Overlay::Say("Deleting …".into());
                            window.draw(model, colours, &zone)?;
                            delete(ctx, source, model, window, id).await;
                        }
                    }
                }
                Some(_) => {}
                None => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            },
            some = entries.next(), if model.scanning => {
                match some {
                    Some(some) => some.into_iter().for_each(|entry| take(model, entry)),
                    None => model.scanning = false,
                }
                if model.scanning && drawn.elapsed() < FRAME {
                    continue;
                }
            }
        }
        drawn = Instant::now();
        window.draw(model, colours, &zone)?;
    }
}

fn take(model: &mut Model, entry: std::result::Result<Entry, Error>) {
    match entry {
        Ok(entry) => model.add(&entry),
        Err(error) => model.fail(error.key(), error.message().to_string()),
    }
}

/// Deletes as `haul deletefile` and `haul purge` do; the model keeps what wasn't deleted.
async fn delete(ctx: &Context, source: &Source, model: &mut Model, window: &mut Window, id: Id) {
    let key = model.key(id);
    if ctx.flags.config.dry_run {
        model.over = model::Overlay::Say(format!("{key}: not deleted, as --dry-run is set"));
        return;
    }
    let mut failures = Failures::default();
    let done = async {
        if key.is_dir() {
            purge::below(&source.store, &key, &mut failures).await;
        }
        if failures.none() {
            deleting::delete(&source.store, vec![key.clone()], &mut failures).await;
        }
        failures.finish()
    };
    let stopped = || Err(Error::new(ErrorKind::Cancelled, "delete", "stopped").into());
    let ended = tokio::select! {
        done = done => done,
        () = ctx.cancel.cancelled() => stopped(),
        () = window.interrupted() => stopped(),
    };
    match ended {
        Ok(()) => model.gone(id),
        Err(error) => model.failed(id, &error.to_string()),
    }
}

/// The model's input for a key; `None` for Ctrl-C, and for Ctrl-D at the end of input.
fn pressed(key: KeyEvent) -> Option<KeyPress> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c' | 'd') => None,
            _ => Some(KeyPress::Escape),
        };
    }
    Some(match key.code {
        KeyCode::Up => KeyPress::Up,
        KeyCode::Down => KeyPress::Down,
        KeyCode::PageUp => KeyPress::PageUp,
        KeyCode::PageDown => KeyPress::PageDown,
        KeyCode::Home => KeyPress::Home,
        KeyCode::End => KeyPress::End,
        KeyCode::Enter | KeyCode::Right => KeyPress::Enter,
        KeyCode::Left | KeyCode::Backspace => KeyPress::Leave,
        KeyCode::Char(letter) => KeyPress::Char(letter),
        _ => KeyPress::Escape,
    })
}

/// The terminal, taken over.
struct Window {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// The thread that reads the terminal sends; it closes when that can't be read.
    events: mpsc::UnboundedReceiver<Event>,
    closed: Arc<AtomicBool>,
}

impl Window {
    fn open() -> std::io::Result<Window> {
        enable_raw_mode()?;
        let (send, events) = mpsc::unbounded_channel();
        let closed = Arc::new(AtomicBool::new(false));
        let opened = execute!(stdout(), EnterAlternateScreen, Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        let terminal = opened.inspect_err(|_| drop(restore()))?;
        let ends = closed.clone();
        std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let read = match event::poll(FRAME) {
                    Ok(true) => event::read(),
                    Ok(false) => continue,
                    Err(error) => Err(error),
                };
                let Ok(event) = read else { return };
                if send.send(event).is_err() {
                    return;
                }
            }
        });
        Ok(Window { terminal, events, closed })
    }

    fn draw(&mut self, model: &mut Model, colours: bool, zone: &TimeZone) -> std::io::Result<()> {
        self.terminal.draw(|frame| view::draw(model, colours, zone, frame)).map(drop)
    }

    /// Resolves when Ctrl-C is pressed; other keys are lost meanwhile.
    async fn interrupted(&mut self) {
        while let Some(event) = self.events.recv().await {
            if matches!(event, Event::Key(key) if key.kind != KeyEventKind::Release && pressed(key).is_none()) {
                return;
            }
        }
    }

    fn close(&mut self) -> std::io::Result<()> {
        self.closed.store(true, Ordering::Relaxed);
        restore()
    }
}

impl Drop for Window {
    /// Only where a panic passes by: whoever ends in order has closed it.
    fn drop(&mut self) {
        if !self.closed.load(Ordering::Relaxed) {
            drop(restore());
        }
    }
}

/// Gives the terminal back as it was.
fn restore() -> std::io::Result<()> {
    let left = execute!(stdout(), LeaveAlternateScreen, Show);
    disable_raw_mode().and(left)
}
