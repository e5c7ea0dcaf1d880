//! The thread that writes a journal: takes what has gathered, writes it together, and makes it durable when somebody
//! waits for that. Whoever appends never waits for a disk.

// The state folder is the journal's own, no store's.
#![allow(clippy::disallowed_methods)]

use super::file;
use futures::future::BoxFuture;
use haul_core::{Error, ErrorKind, Result};
use std::{
    fs::File,
    io::Write,
    path::PathBuf,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// A record that nobody waits for is durable after this time, should the machine lose power. A killed process loses nothing that
/// it appended some milliseconds ago.
const DURABLE_WITHIN: Duration = Duration::from_secs(1);

/// A file to write to, which is made when there is something to write.
pub struct Target {
    /// Where it is.
    pub path: PathBuf,
    /// The file, locked, if it exists already.
    pub file: Option<File>,
    /// First bytes of a new file.
    pub start: Vec<u8>,
}

enum Command {
    Append(Vec<u8>),
    Barrier(oneshot::Sender<Result<()>>),
    /// The last one; deletes the file when nothing in it is needed any more.
    End {
        delete: bool,
        done: oneshot::Sender<Result<()>>,
    },
}

/// The way to the thread, which ends after [`Writer::end`] or with the last of these.
#[derive(Debug)]
pub struct Writer(Sender<Command>);

impl Writer {
    /// Starts the thread.
    pub fn start(target: Target) -> Result<Writer> {
        let (sender, inbox) = channel();
        let thread = std::thread::Builder::new().name("haul-journal".into());
        thread
            .spawn(move || Thread { target, inbox, unsynced: None, failed: None }.run())
            .map_err(|e| Error::from_io("journal", e))?;
        Ok(Writer(sender))
    }

    /// Queues bytes to be written. The next barrier reports a failure.
    pub fn append(&self, bytes: Vec<u8>) {
        // The thread lives as long as this sender does.
        let _ = self.0.send(Command::Append(bytes));
    }

    /// Resolves when everything appended before is durable.
    ///
    /// Errors: the first of any write since the journal was opened.
    pub fn barrier(&self) -> BoxFuture<'static, Result<()>> {
        self.ask(Command::Barrier)
    }

    /// Ends the thread once everything is durable, or, with `delete`, the file is deleted.
    pub fn end(&self, delete: bool) -> BoxFuture<'static, Result<()>> {
        self.ask(move |done| Command::End { delete, done })
    }

    fn ask(&self, command: impl FnOnce(oneshot::Sender<Result<()>>) -> Command) -> BoxFuture<'static, Result<()>> {
        let (done, answer) = oneshot::channel();
        let _ = self.0.send(command(done));
        Box::pin(
            async move { answer.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, "journal", "it has ended"))) },
        )
    }
}

struct Thread {
    target: Target,
    inbox: Receiver<Command>,
    /// Since when there are bytes that aren't durable.
    unsynced: Option<Instant>,
    /// After a failure nothing is written: a record after a torn one could not be read.
    failed: Option<Error>,
}

impl Thread {
    fn run(mut self) {
        loop {
            let wait = self.unsynced.map(|since| DURABLE_WITHIN.saturating_sub(since.elapsed()));
            let first = match wait {
                None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(wait) => self.inbox.recv_timeout(wait),
            };
            match first {
                Ok(first) => {
                    if self.round(first) {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.sync(),
                Err(RecvTimeoutError::Disconnected) => return self.sync(),
            }
        }
    }

    /// Does everything that has gathered; true when that was the last.
    fn round(&mut self, first: Command) -> bool {
        let (mut bytes, mut waiting, mut end) = (Vec::new(), Vec::new(), None);
        for command in std::iter::once(first).chain(self.inbox.try_iter()) {
            match command {
                Command::Append(more) => bytes.extend(more),
                Command::Barrier(done) => waiting.push(done),
                Command::End { delete, done } => end = Some((delete, done)),
            }
        }
        if let Some((true, done)) = end {
            let deleted = self.delete();
            waiting
                .into_iter()
                .for_each(|barrier| drop(barrier.send(deleted.as_ref().map_err(Error::to_report).copied())));
            let _ = done.send(deleted);
            return true;
        }
        self.write(&bytes);
        let ended = end.is_some();
        waiting.extend(end.map(|(_, done)| done));
        let due = self.unsynced.is_some_and(|since| since.elapsed() >= DURABLE_WITHIN);
        if due || !waiting.is_empty() {
            self.sync();
        }
        if ended {
            // Unlocked before anybody hears of the end.
            self.target.file = None;
        }
        for done in waiting {
            let _ = done.send(self.failed.as_ref().map_or(Ok(()), |error| Err(error.to_report())));
        }
        ended
    }

    fn write(&mut self, bytes: &[u8]) {
        if bytes.is_empty() || self.failed.is_some() {
            return;
        }
        let written = self.file().and_then(|file| {
            let mut file = file;
            file.write_all(bytes).map_err(|e| Error::from_io("journal", e))
        });
        match written {
            Ok(()) => drop(self.unsynced.get_or_insert_with(Instant::now)),
            Err(error) => self.failed = Some(error),
        }
    }

    fn sync(&mut self) {
        if self.unsynced.take().is_some()
            && let Some(file) = &self.target.file
            && let Err(error) = file.sync_data()
        {
            self.failed.get_or_insert(Error::from_io("journal", error));
        }
    }

    fn file(&mut self) -> Result<&File> {
        let file = match self.target.file.take() {
            Some(file) => file,
            None => file::create(&self.target.path, &self.target.start)?,
        };
        Ok(self.target.file.insert(file))
    }

    /// Deletes the file while it is still locked, so that no other process has it.
    fn delete(&mut self) -> Result<()> {
        match self.target.file.take() {
            Some(_locked) => std::fs::remove_file(&self.target.path).map_err(|e| Error::from_io("journal", e)),
            None => Ok(()),
        }
    }
}
