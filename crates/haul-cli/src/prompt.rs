//! Asking on the terminal: before each change (`--interactive`), before what nobody asked for, and for the password of the configuration.

use haul::{Answer, Cancel, Confirm};
use haul_core::{Error, ErrorKind, Key};
use haul_store::Consent;
use haul_terminal::Screen;
use rustix::{process::getpgrp, termios::tcgetpgrp};
use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, IsTerminal as _, stderr, stdin},
    path::Path,
    sync::{Arc, Mutex},
};
use tokio::sync;

/// Asks on the terminal; remembers what was said for all of a kind.
pub struct Prompt {
    screen: Arc<Screen>,
    cancel: Cancel,
    /// Answers for all further questions of a kind. Held while a question is open, so that questions come singly.
    standing: Mutex<BTreeMap<String, Answer>>,
}

impl Prompt {
    /// A prompt on this screen, that asks nothing more once `cancel` is set.
    pub fn new(screen: Arc<Screen>, cancel: Cancel) -> Self {
        Prompt { screen, cancel, standing: Mutex::default() }
    }
}

impl Confirm for Prompt {
    fn ask(&self, what: &str, key: &Key) -> Answer {
        let mut standing = self.standing.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(answer) = standing.get(what) {
            return *answer;
        }
        loop {
            if self.cancel.is_cancelled() {
                return Answer::Quit;
            }
            let question =
                format!("{what} \"{key}\"?\ny) yes  n) no  s) no to all of these  !) yes to all of these  q) quit");
            self.screen.tell(&question);
            let mut line = String::new();
            // No terminal to read from means no consent.
            if !matches!(std::io::stdin().lock().read_line(&mut line), Ok(n) if n > 0) {
                return Answer::Quit;
            }
            match line.trim() {
                "y" | "Y" => return Answer::Yes,
                "n" | "N" => return Answer::No,
                "s" => return *standing.entry(what.into()).or_insert(Answer::No),
                "!" => return *standing.entry(what.into()).or_insert(Answer::Yes),
                "q" => return Answer::Quit,
                _ => {}
            }
        }
    }
}

/// Asks a person at the terminal before something is done that nobody asked for, each question once a run. Nobody is there, and the
/// answer is no, where standard input or standard error is no terminal, the run is in the background, or a display is drawn.
pub fn consent(screen: Arc<Screen>, cancel: Cancel) -> Consent {
    // Held while a question is open, so that questions come singly.
    let answers = Arc::<sync::Mutex<BTreeMap<String, bool>>>::default();
    Consent::new(move |question| {
        let (screen, cancel, answers) = (screen.clone(), cancel.clone(), answers.clone());
        Box::pin(async move {
            let mut answers = answers.lock().await;
            if let Some(answer) = answers.get(&question) {
                return Ok(*answer);
            }
            if !is_attended() || screen.is_drawn() {
                return Ok(false);
            }
            let stopped = || Error::new(ErrorKind::Cancelled, "open", "stopped at the question");
            let answer = yes(&question, &cancel).await.ok_or_else(stopped)?;
            answers.insert(question, answer);
            Ok(answer)
        })
    })
}

/// True if a person can read a question and answer it. Reading would stop a background process.
fn is_attended() -> bool {
    let in_front = || tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp());
    stdin().is_terminal() && stderr().is_terminal() && in_front()
}

/// Asks on the terminal; only a clear yes is one. `None` if the run was stopped meanwhile.
pub async fn yes(question: &str, cancel: &Cancel) -> Option<bool> {
    eprint!("{question} [y/N] ");
    let ask = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        let read = stdin().lock().read_line(&mut answer);
        read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
    });
    tokio::select! {
        () = cancel.cancelled() => None,
        answer = ask => Some(answer.unwrap_or(false)),
    }
}

/// Asks for the password of an encrypted config file; `again` after one that was wrong.
///
/// Errors: the user stopped it, or there is no terminal.
pub fn config_password(path: &Path, again: bool) -> haul_remotes::Result<String> {
    if again {
        eprintln!("Wrong password, try again.");
    }
    let path = path.display();
    rpassword::prompt_password(format!("Password of {path}: ")).map_err(|e| match e.kind() {
        io::ErrorKind::Interrupted => Error::new(ErrorKind::Cancelled, "config", "stopped at the password").into(),
        _ => {
            let what = format!("{path} is encrypted and there is no terminal to ask: set HAUL_CONFIG_PASS");
            haul_remotes::Error::system(what, e)
        }
    })
}
