//! Meaning of ssh's messages. Pure.

use haul_core::{Error, ErrorKind, Retry};
use std::process::ExitStatus;

/// Lines that say nothing of why it ended.
const ASIDE: [&str; 5] =
    ["Warning: Permanently added", "Pseudo-terminal will not", "debug", "** ", "Shared connection to"];

/// Lines of an answer's message.
const LINES: usize = 3;

/// ssh's own failures; a command there may end with it too, but none of ours does.
pub const OWN: i32 = 255;

/// Why a session didn't come about.
#[derive(Debug)]
pub struct SessionError {
    /// The error for people.
    pub error: Error,
    /// The server takes no further session on this connection.
    pub is_full: bool,
}

/// The refusal of a command that isn't ssh.
pub fn of_command(line: &str, status: Option<ExitStatus>, lines: &[String]) -> SessionError {
    let last = lines[lines.len().saturating_sub(LINES)..].join("; ");
    let message = ended("the command", status, &last);
    SessionError { error: Error::new(ErrorKind::Unreachable, "connect", format!("{line}: {message}")), is_full: false }
}

/// How a program ended, and what it said last.
fn ended(program: &str, status: Option<ExitStatus>, last: &str) -> String {
    let how = match status.map(|status| (status.code(), status)) {
        Some((Some(code), _)) => format!("ended with code {code}"),
        Some((None, status)) => format!("was ended ({status})"),
        None => "closed its output".to_owned(),
    };
    if last.is_empty() { format!("{program} {how} without a word") } else { format!("{program} {how}: {last}") }
}

/// From how ssh ended (`None`: it hasn't yet) and what it had said.
pub fn refusal(host: &str, typed: &str, status: Option<ExitStatus>, lines: &[String]) -> SessionError {
    let has = |words: &str| lines.iter().any(|line| line.contains(words));
    let relevant: Vec<&str> =
        lines.iter().map(String::as_str).filter(|line| !ASIDE.iter().any(|aside| line.starts_with(aside))).collect();
    let last = relevant[relevant.len().saturating_sub(LINES)..].join("; ");
    let last = last.strip_prefix("ssh: ").unwrap_or(&last);
    let (kind, retry, message) = if has("REMOTE HOST IDENTIFICATION HAS CHANGED") {
        let message = "ssh refused it: its key is not the one in known_hosts. Find out why before you remove that";
        (ErrorKind::Unreachable, Retry::Never, message.to_owned())
    } else if has("Host key verification failed") {
        let message = format!("ssh doesn't know its key: type `{typed}` once and compare it");
        (ErrorKind::Unreachable, Retry::Never, message)
    } else if has("Permission denied (") || has("Too many authentication failures") {
        (ErrorKind::Unauthenticated, Retry::Never, format!("ssh: {last}"))
    } else if has("subsystem request failed") {
        let message = "the server has no SFTP, or this user may not use it: see Subsystem in its sshd_config";
        (ErrorKind::Unsupported, Retry::Never, message.to_owned())
    } else if is_full(lines) {
        (
            ErrorKind::Busy,
            Retry::Backoff,
            "the server takes no more sessions on this connection (MaxSessions)".to_owned(),
        )
    } else if has("kex_exchange_identification") || has("Connection reset by") || has("Connection closed by") {
        let message = format!(
            "ssh: {last} (it may limit log-ins at once, MaxStartups, or refuse this address for a while, PerSourcePenalties)"
        );
        (ErrorKind::Unreachable, Retry::Backoff, message)
    } else if has("Could not resolve") || has("Bad configuration option") || has("Bad owner or permissions") {
        (ErrorKind::Unreachable, Retry::Never, format!("ssh: {last}"))
    } else if has("ssh: connect to host") {
        (ErrorKind::Unreachable, Retry::Backoff, format!("ssh: {last}"))
    } else {
        let own = status.and_then(|status| status.code()) == Some(OWN);
        (ErrorKind::Io, if own { Retry::Backoff } else { Retry::Never }, ended("ssh", status, last))
    };
    let error = Error::new(kind, "connect", format!("{host}: {message}")).with_retry(retry);
    SessionError { error, is_full: is_full(lines) }
}

fn is_full(lines: &[String]) -> bool {
    lines
        .iter()
        .any(|line| line.contains("Session open refused by peer") || line.contains("administratively prohibited"))
}

/// A line as it may be shown: no control characters, not without end.
pub fn clean(line: &[u8]) -> String {
    const MOST: usize = 400;
    let text = String::from_utf8_lossy(line);
    text.chars().filter(|c| !c.is_control()).take(MOST).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn each_of_sshs_words_has_its_meaning() {
        let refusal_of = |code: i32, lines: &[&str]| {
            let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            let refusal = refusal("h", "ssh h", Some(ExitStatus::from_raw(code << 8)), &lines);
            (refusal.error.kind(), refusal.error.retry(), refusal.error.message().to_owned(), refusal.is_full)
        };
        use ErrorKind as K;
        use Retry::{Backoff, Never};
        for (code, lines, kind, retry, message) in [
            (
                255,
                &["ssh: Could not resolve hostname h: Name or service not known"][..],
                K::Unreachable,
                Never,
                "h: ssh: Could not resolve hostname h: Name or service not known",
            ),
            (
                255,
                &["ssh: connect to host h port 22: Connection refused"],
                K::Unreachable,
                Backoff,
                "h: ssh: connect to host h port 22: Connection refused",
            ),
            (
                255,
                &["Warning: Permanently added 'h' (ED25519) to the list", "a@h: Permission denied (publickey)."],
                K::Unauthenticated,
                Never,
                "h: ssh: a@h: Permission denied (publickey).",
            ),
            (
                255,
                &["Host key verification failed."],
                K::Unreachable,
                Never,
                "h: ssh doesn't know its key: type `ssh h` once and compare it",
            ),
            (
                255,
                &["@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @", "Host key verification failed."],
                K::Unreachable,
                Never,
                "h: ssh refused it: its key is not the one in known_hosts. Find out why before you remove that",
            ),
            (
                255,
                &["subsystem request failed on channel 0"],
                K::Unsupported,
                Never,
                "h: the server has no SFTP, or this user may not use it: see Subsystem in its sshd_config",
            ),
            (
                255,
                &["kex_exchange_identification: read: Connection reset by peer"],
                K::Unreachable,
                Backoff,
                "h: ssh: kex_exchange_identification: read: Connection reset by peer (it may limit log-ins at once, MaxStartups, or refuse this address for a while, PerSourcePenalties)",
            ),
            (
                1,
                &["This account is currently not available."],
                K::Io,
                Never,
                "h: ssh ended with code 1: This account is currently not available.",
            ),
            (127, &[], K::Io, Never, "h: ssh ended with code 127 without a word"),
        ] {
            assert_eq!(refusal_of(code, lines), (kind, retry, message.to_owned(), false));
        }
        let full =
            refusal_of(255, &["mux_client_request_session: session request failed: Session open refused by peer"]);
        assert_eq!((full.0, full.3), (K::Busy, true));
    }

    #[test]
    fn a_line_is_shown_without_what_moves_a_terminal() {
        assert_eq!(clean(b"\x1b[31mred\x07\r\n"), "[31mred");
        assert_eq!(clean(&[b'a'; 1000]).len(), 400);
    }
}
