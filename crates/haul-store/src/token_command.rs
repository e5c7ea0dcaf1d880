//! A token that a command of the user's gives out (`bearer_token_command`): asked for once, and again when a server takes it no more.

use crate::disk;
use haul_core::{Error, ErrorKind, Result, text};
use http::HeaderValue;
use std::process::{Command, Stdio};
use tokio::sync::Mutex;

/// Gives out the token.
#[derive(Debug)]
pub struct TokenCommand {
    program: String,
    args: Vec<String>,
    kept: Mutex<Option<HeaderValue>>,
}

impl TokenCommand {
    /// Parses a command line: words separated by spaces, double quotes around a word with spaces. `None` when empty.
    pub fn new(typed: &str) -> Option<TokenCommand> {
        let mut words = text::words(typed).into_iter();
        let program = words.next().filter(|program| !program.is_empty())?;
        Some(TokenCommand { program, args: words.collect(), kept: Mutex::default() })
    }

    /// The header `Authorization`; one that is `refused` isn't given again. One asks, the others wait for what it hears.
    ///
    /// Errors: `Unauthenticated` when the command can't be run, fails, or gives no token.
    pub async fn get(&self, refused: Option<&HeaderValue>) -> Result<HeaderValue> {
        let mut kept = self.kept.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| Some(*kept) != refused) {
            return Ok(kept.clone());
        }
        let (program, args) = (self.program.clone(), self.args.clone());
        let token = disk::run(move || ask(&program, &args)).await?;
        *kept = Some(token.clone());
        Ok(token)
    }
}

fn ask(program: &str, args: &[String]) -> Result<HeaderValue> {
    let wrong = |why: String| {
        Error::new(ErrorKind::Unauthenticated, "open", format!("bearer_token_command {program} gave no token: {why}"))
    };
    let ran = Command::new(program).args(args).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let ran = ran.map_err(|e| wrong(format!("it can't be run: {e}")))?;
    if !ran.status.success() {
        return Err(wrong(ran.status.to_string()));
    }
    let token = String::from_utf8_lossy(&ran.stdout);
    let token = token.trim();
    if token.is_empty() {
        return Err(wrong("it printed nothing".into()));
    }
    let mut header =
        HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| wrong("it printed more than one line".into()))?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_token_is_asked_for_once_and_again_when_it_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let count = folder.path().join("count");
        let script = format!("sh -c \"echo x >> {0}; echo token-$(wc -l < {0})\"", count.display());
        let command = TokenCommand::new(&script).unwrap();
        let first = command.get(None).await.unwrap();
        assert_eq!(first, "Bearer token-1");
        assert_eq!(command.get(None).await.unwrap(), first);
        let second = command.get(Some(&first)).await.unwrap();
        assert_eq!(second, "Bearer token-2");
        // A late caller with the old token gets the one that was already requested.
        assert_eq!(command.get(Some(&first)).await.unwrap(), second);
    }

    #[tokio::test]
    async fn what_is_no_token_is_told() {
        for (typed, why) in [
            ("false", "bearer_token_command false gave no token: exit status: 1"),
            ("true", "bearer_token_command true gave no token: it printed nothing"),
            ("printf a\\nb", "bearer_token_command printf gave no token: it printed more than one line"),
            (
                "/no/such",
                "bearer_token_command /no/such gave no token: it can't be run: No such file or directory (os error 2)",
            ),
        ] {
            let error = TokenCommand::new(typed).unwrap().get(None).await.unwrap_err();
            assert_eq!((error.kind(), error.message()), (ErrorKind::Unauthenticated, why));
        }
        assert!(TokenCommand::new(" ").is_none());
    }
}
