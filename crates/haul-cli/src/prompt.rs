//! Asking on the terminal: before each change (`--interactive`), before what nobody asked for, and for the password of the configuration.

use haul::{Answer, Cancel, Confirm};
use haul_core::{Error, ErrorKind, Key};
use haul_store::Consent;
use haul_terminal::Screen;
use rustix::{
    process::getpgrp,
    termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr},
};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead as _, IsTerminal as _, Write as _, stderr, stdin, stdout},
    os::fd::{AsFd as _, OwnedFd},
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

/// Asks for a line. A terminal that edits lines itself cuts them at 4095 bytes: not one that `may_be_long`, as a token is. `None` at the end
/// of the input.
///
/// Errors: nothing can be read; `Interrupted` after Ctrl-C.
pub fn line(question: &str, may_be_long: bool) -> io::Result<Option<String>> {
    let say = |text: &str| {
        let mut out = stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    };
    let terminal = tcgetattr(stdin()).ok().filter(|_| may_be_long);
    let Some(before) = terminal else {
        say(question)?;
        let mut line = String::new();
        return Ok((stdin().lock().read_line(&mut line)? > 0).then_some(line));
    };
    let mut unedited = before.clone();
    // Ctrl-C comes as a letter: else it would leave the terminal like this.
    unedited.local_modes.remove(LocalModes::ICANON | LocalModes::ISIG | LocalModes::ECHOCTL);
    unedited.special_codes[SpecialCodeIndex::VMIN] = 1;
    unedited.special_codes[SpecialCodeIndex::VTIME] = 0;
    keep_terminal(stdin().as_fd().try_clone_to_owned()?, before);
    tcsetattr(stdin(), OptionalActions::Now, &unedited)?;
    // What is pasted at once meets the terminal as it is now.
    let line = say(question).and_then(|()| edited(stdin().lock()));
    put_terminal_back()?;
    if line.is_err() {
        say("\n")?;
    }
    line
}

/// Asks for what isn't shown as it is typed.
///
/// Errors: there is no terminal; `Interrupted` after Ctrl-C.
pub fn password(question: &str) -> io::Result<String> {
    // What asks puts the terminal back, unless the program ends meanwhile.
    if let Ok(terminal) = File::options().read(true).write(true).open("/dev/tty")
        && let Ok(before) = tcgetattr(&terminal)
    {
        keep_terminal(terminal.into(), before);
    }
    let typed = rpassword::prompt_password(question);
    put_terminal_back()?;
    typed
}

/// The terminal, and how it was before something is read that it doesn't edit itself, or doesn't show.
static BEFORE: Mutex<Option<(OwnedFd, Termios)>> = Mutex::new(None);

fn keep_terminal(terminal: OwnedFd, before: Termios) {
    *BEFORE.lock().unwrap_or_else(|e| e.into_inner()) = Some((terminal, before));
}

/// Puts the terminal back as it was, if something is being read: before the program ends in the middle of that.
///
/// Errors: the terminal refuses.
pub fn put_terminal_back() -> io::Result<()> {
    match BEFORE.lock().unwrap_or_else(|e| e.into_inner()).take() {
        Some((terminal, before)) => Ok(tcsetattr(terminal, OptionalActions::Now, &before)?),
        None => Ok(()),
    }
}

/// A line as a person types it, with the keys that a terminal would have acted on.
fn edited(input: impl io::BufRead) -> io::Result<Option<String>> {
    const INTERRUPT: u8 = 3;
    const END: u8 = 4;
    const KILL: u8 = 21;
    const SUSPEND: u8 = 26;
    const QUIT: u8 = 28;
    let mut line = Vec::new();
    for byte in input.bytes() {
        match byte? {
            INTERRUPT | SUSPEND | QUIT => return Err(io::ErrorKind::Interrupted.into()),
            END if line.is_empty() => return Ok(None),
            b'\n' | END => return Ok(Some(String::from_utf8_lossy(&line).into_owned())),
            8 | 127 => drop(line.pop()),
            KILL => line.clear(),
            other => line.push(other),
        }
    }
    Ok((!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned()))
}

/// Asks for the password of an encrypted config file; `again` after one that was wrong.
///
/// Errors: the user stopped it, or there is no terminal.
pub fn config_password(path: &Path, again: bool) -> haul_remotes::Result<String> {
    if again {
        eprintln!("Wrong password, try again.");
    }
    let path = path.display();
    password(&format!("Password of {path}: ")).map_err(|e| match e.kind() {
        io::ErrorKind::Interrupted => Error::new(ErrorKind::Cancelled, "config", "stopped at the password").into(),
        _ => {
            let what = format!("{path} is encrypted and there is no terminal to ask: set HAUL_CONFIG_PASS");
            haul_remotes::Error::system(what, e)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_change_a_line_do() {
        let of = |typed: &[u8]| edited(typed).map_err(|e| e.kind());
        assert_eq!(of(b"no\x15ab\x7fc\nrest"), Ok(Some("ac".into())));
        assert_eq!((of(b""), of(b"\x04")), (Ok(None), Ok(None)));
        assert_eq!(of(b"a\x03"), Err(io::ErrorKind::Interrupted));
        assert_eq!(of(&[b'x'; 9000]).map(|line| line.map(|line| line.len())), Ok(Some(9000)));
    }
}
