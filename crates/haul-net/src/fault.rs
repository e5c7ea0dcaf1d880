//! Meaning of a failed request, as far as HTTP alone shows it. The service's own text in its answers is for its store to read.

use haul_core::{Error, ErrorKind, Key, Retry, concurrency::RequestResult};
use http::{HeaderMap, StatusCode};
use std::time::Duration;

/// A failed request, before it is known which key it was about.
#[derive(Debug)]
pub struct Fault {
    /// Kind of the error.
    pub kind: ErrorKind,
    /// Whether it may be tried again.
    pub retry: Retry,
    /// 0 when there was no answer.
    pub status: u16,
    /// For the user.
    pub message: String,
    /// The connection was refused.
    pub refused: bool,
    /// The connection was closed before an answer began.
    pub dropped: bool,
}

/// A result of a request.
pub type FaultResult<T> = Result<T, Box<Fault>>;

impl Fault {
    /// A fault without an answer.
    pub fn new(kind: ErrorKind, retry: Retry, message: impl Into<String>) -> Box<Fault> {
        Box::new(Fault { kind, retry, status: 0, message: message.into(), refused: false, dropped: false })
    }

    /// A broken connection or answer, which may be better the next time.
    pub fn broken(message: impl Into<String>) -> Box<Fault> {
        Fault::new(ErrorKind::Io, Retry::Backoff, message)
    }

    /// No progress within the time allowed.
    pub fn timeout(message: impl Into<String>) -> Box<Fault> {
        Fault::new(ErrorKind::Timeout, Retry::Backoff, message)
    }

    /// An answer that isn't success, by its status (RFC 9110, and RFC 4918 for WebDAV's); `server_text` is the server's own word, if it
    /// gave one.
    pub fn answer(status: StatusCode, headers: &HeaderMap, server_text: Option<&str>) -> Box<Fault> {
        let (kind, retry) = meaning(status);
        let retry = match told_to_wait(headers) {
            Some(wait) if retry != Retry::Never => Retry::after(wait),
            _ => retry,
        };
        let server_text = server_text
            .map(|server_text| format!(": {}", server_text.trim().replace(['\n', '\r'], " ")))
            .unwrap_or_default();
        let message = match status.as_u16() {
            code if status.is_redirection() => {
                let to = headers.get(http::header::LOCATION).and_then(|v| v.to_str().ok()).unwrap_or("another place");
                format!("the server answered {code} and points to {to}: correct url with haul config")
            }
            code => format!("the server answered {code}{server_text}"),
        };
        Box::new(Fault { status: status.as_u16(), ..*Fault::new(kind, retry, message) })
    }

    /// The sign it gives of the service's load. An answer that refuses one request for its own sake is an
    /// answer like any other.
    pub fn outcome(&self) -> RequestResult {
        match (self.kind, self.retry) {
            _ if self.is_locked() => RequestResult::Done,
            (ErrorKind::Busy, Retry::After(wait)) => RequestResult::Throttled(Some(wait)),
            (ErrorKind::Busy, _) => RequestResult::Throttled(None),
            // A host that never answered isn't busy.
            _ if self.refused && self.kind != ErrorKind::Unreachable => RequestResult::Throttled(None),
            _ if self.dropped => RequestResult::Dropped,
            _ if (300..500).contains(&self.status) => RequestResult::Done,
            _ => RequestResult::Failed,
        }
    }

    /// Another request was at work on the same: that says nothing of the load that the service takes.
    pub fn is_locked(&self) -> bool {
        self.status == 423
    }

    /// As the error of `op`.
    pub fn error(self, op: &'static str) -> Error {
        Error::new(self.kind, op, self.message).with_retry(self.retry)
    }

    /// As the error of `op` on `key`.
    pub fn at(self, op: &'static str, key: &Key) -> Error {
        self.error(op).with_key(key)
    }

    /// The server may have done what we asked although it didn't say so.
    pub fn is_ambiguous(&self) -> bool {
        self.status == 0 || self.status >= 500
    }
}

/// Turns a fault into the error of `op` on `key`.
pub fn at<'a>(op: &'static str, key: &'a Key) -> impl Fn(Box<Fault>) -> Error + 'a {
    move |fault| fault.at(op, key)
}

fn meaning(status: StatusCode) -> (ErrorKind, Retry) {
    use ErrorKind as K;
    use Retry::{Backoff, Never};
    match status.as_u16() {
        401 => (K::Unauthenticated, Never),
        403 => (K::Denied, Never),
        404 | 410 => (K::NotFound, Never),
        408 => (K::Timeout, Backoff),
        412 => (K::Changed, Never),
        // Locked by another client, who lets go of it sooner or later.
        423 | 429 | 503 => (K::Busy, Backoff),
        405 | 501 => (K::Unsupported, Never),
        507 => (K::NoSpace, Never),
        500..=599 => (K::Io, Backoff),
        _ => (K::Invalid, Never),
    }
}

/// The innermost cause says most: `connection refused`.
pub fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// The wait in `Retry-After`, in seconds or as a date (RFC 9110, 10.2.3); a date is compared with the answer's own, so that no clock here
/// counts, and is ignored if the answer has none.
pub fn told_to_wait(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok()).map(str::trim);
    let retry_after = text(http::header::RETRY_AFTER)?;
    if let Ok(seconds) = retry_after.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = |text| jiff::fmt::rfc2822::parse(text).ok().map(|date| date.timestamp().as_second());
    let wait = date(retry_after)?.saturating_sub(date(text(http::header::DATE)?)?);
    Some(Duration::from_secs(u64::try_from(wait).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_a_meaning() {
        use ErrorKind as K;
        for (status, kind, retry) in [
            (401, K::Unauthenticated, false),
            (403, K::Denied, false),
            (404, K::NotFound, false),
            (410, K::NotFound, false),
            (409, K::Invalid, false),
            (412, K::Changed, false),
            (423, K::Busy, true),
            (429, K::Busy, true),
            (500, K::Io, true),
            (503, K::Busy, true),
            (507, K::NoSpace, false),
        ] {
            let fault = Fault::answer(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), None);
            assert_eq!((fault.kind, fault.retry != Retry::Never), (kind, retry), "{status}");
            let throttled = matches!(fault.outcome(), RequestResult::Throttled(_));
            assert_eq!(throttled, matches!(status, 429 | 503), "{status}");
        }
        let wait = HeaderMap::from_iter([(http::header::RETRY_AFTER, "7".parse().unwrap())]);
        let fault = Fault::answer(StatusCode::SERVICE_UNAVAILABLE, &wait, Some("come\nback"));
        assert_eq!(
            (fault.retry, &*fault.message),
            (Retry::After(Duration::from_secs(7)), "the server answered 503: come back")
        );
    }

    #[test]
    fn the_time_to_wait_is_seconds_or_a_date() {
        const DATE: Option<&str> = Some("Fri, 31 Dec 1999 23:59:00 GMT");
        for (told, date, seconds) in [
            (Some(" 120 "), None, Some(120)),
            (Some("Fri, 31 Dec 1999 23:59:59 GMT"), DATE, Some(59)),
            (Some("Fri, 31 Dec 1999 23:58:00 GMT"), DATE, Some(0)),
            (Some("Fri, 31 Dec 1999 23:59:59 GMT"), None, None),
            (Some("soon"), DATE, None),
            (None, DATE, None),
        ] {
            let header = |name, text: Option<&str>| text.map(|text| (name, text.parse().unwrap()));
            let both = [header(http::header::RETRY_AFTER, told), header(http::header::DATE, date)];
            let headers = both.into_iter().flatten().collect();
            assert_eq!(told_to_wait(&headers), seconds.map(Duration::from_secs), "{told:?} {date:?}");
        }
    }
}
