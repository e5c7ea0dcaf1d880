//! Asking on the terminal: before each change (`--interactive`), and for the password of the configuration.

use haul::{Cancel, Confirm};
use haul_core::{Error, ErrorKind, Key};
use haul_terminal::Screen;
use std::{
    collections::BTreeMap,
    io::{self, BufRead as _},
    path::Path,
    sync::{Arc, Mutex},
};

/// Asks on the terminal; remembers what was said for all of a kind.
pub struct Prompt {
    screen: Arc<Screen>,
    cancel: Cancel,
    /// Answers for all further questions of a kind. Held while a question is open, so that questions come singly.
    standing: Mutex<BTreeMap<String, bool>>,
}

impl Prompt {
    /// A prompt on this screen; `q` stops the job through `cancel`.
    pub fn new(screen: Arc<Screen>, cancel: Cancel) -> Self {
        Prompt { screen, cancel, standing: Mutex::default() }
    }
}

impl Confirm for Prompt {
    fn ask(&self, what: &str, key: &Key) -> bool {
        let mut standing = self.standing.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(answer) = standing.get(what) {
            return *answer;
        }
        loop {
            if self.cancel.is_cancelled() {
                return false;
            }
            let question =
                format!("{what} \"{key}\"?\ny) yes  n) no  s) no to all of these  !) yes to all of these  q) quit");
            self.screen.tell(&question);
            let mut line = String::new();
            // No terminal to read from means no consent.
            if !matches!(std::io::stdin().lock().read_line(&mut line), Ok(n) if n > 0) {
                self.cancel.cancel();
                return false;
            }
            match line.trim() {
                "y" | "Y" => return true,
                "n" | "N" => return false,
                "s" => return *standing.entry(what.into()).or_insert(false),
                "!" => return *standing.entry(what.into()).or_insert(true),
                "q" => {
                    self.cancel.cancel();
                    return false;
                }
                _ => {}
            }
        }
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
