//! Reaching a far end: a program whose standard input and output lead to it (ssh, or any other).

use futures::future::BoxFuture;
use haul_core::{Error, Result};
use std::{
    fmt,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, BufReader, BufWriter},
    process::{Child, Command},
};

/// Pipes are read and written in blocks of this size.
const BLOCK: usize = 256 << 10;

/// What is kept of what the program prints as errors.
const WORDS: usize = 4 << 10;

/// When the pipe has ended, the program has so long to say why.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A pair of pipes to a far end.
pub struct Pipe {
    /// What the far end says.
    pub input: Box<dyn AsyncRead + Send + Unpin>,
    /// What it is told.
    pub output: Box<dyn AsyncWrite + Send + Unpin>,
    /// The program between, if there is one.
    pub process: Option<Process>,
}

/// A program that runs for as long as this lives.
pub struct Process {
    child: Child,
    words: Arc<Mutex<Vec<u8>>>,
    listener: tokio::task::JoinHandle<()>,
}

/// Makes connections.
pub trait Dial: fmt::Debug + Send + Sync {
    /// A new one.
    ///
    /// Errors: none can be had.
    fn dial(&self) -> BoxFuture<'_, Result<Pipe>>;
}

impl Process {
    /// What it printed as errors at the end, in one line; waits a little for the rest of it.
    pub async fn last_words(mut self) -> String {
        let _ = tokio::time::timeout(LAST_WORDS, &mut self.listener).await;
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&words);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let line = lines.collect::<Vec<_>>().join("; ");
        line.chars().filter(|c| !c.is_control()).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Its input has ended, so it ends by itself; one that hangs is not waited for.
        let _ = self.child.start_kill();
    }
}

/// A command line for the shell.
#[derive(Clone, Debug)]
pub struct ShellCommand(pub String);

impl Dial for ShellCommand {
    fn dial(&self) -> BoxFuture<'_, Result<Pipe>> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(&self.0);
        Box::pin(async move { run(command) })
    }
}

/// Runs a program that leads to a far end.
///
/// Errors: it can't be started.
pub fn run(mut command: Command) -> Result<Pipe> {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|e| Error::from_io("connect", e))?;
    let taken = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(mut stderr)) = taken else { unreachable!("all three are piped") };
    let words = Arc::<Mutex<Vec<u8>>>::default();
    let kept = words.clone();
    let listener = tokio::spawn(async move {
        let mut block = [0; 1024];
        while let Ok(got @ 1..) = stderr.read(&mut block).await {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend_from_slice(&block[..got]);
            let over = kept.len().saturating_sub(WORDS);
            kept.drain(..over);
        }
    });
    Ok(Pipe {
        input: Box::new(BufReader::with_capacity(BLOCK, stdout)),
        output: Box::new(BufWriter::with_capacity(BLOCK, stdin)),
        process: Some(Process { child, words, listener }),
    })
}
