//! Meaning of a refusal, by Graph's code.

use haul_core::{ErrorKind, Retry};
use haul_net::Fault;
use haul_oauth::ServiceError;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use std::time::Duration;

#[derive(Deserialize, Default)]
struct ErrorResponse {
    #[serde(default)]
    error: Body,
}

#[derive(Deserialize, Default)]
struct Body {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// See [`haul_oauth::Judge`].
pub fn judge(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ServiceError {
    let Body { code, message } = serde_json::from_slice::<ErrorResponse>(body).unwrap_or_default().error;
    let mut fault = Fault::answer(status, headers, None);
    if let Some((kind, retry)) = meaning(&code).or_else(|| by_status(status)) {
        let wait = headers.get("retry-after").and_then(|wait| wait.to_str().ok()?.trim().parse().ok());
        fault.kind = kind;
        fault.retry = match wait.map(Duration::from_secs) {
            Some(wait) if retry != Retry::Never => Retry::after(wait),
            _ => retry,
        };
    }
    if !code.is_empty() {
        let server_message = message.lines().next().unwrap_or_default().trim_end_matches('.').to_owned();
        fault.message = match hint(&code) {
            Some(hint) => format!("{hint} ({code})"),
            None if server_message.is_empty() || server_message == code => {
                format!("the service answered {} ({code})", status.as_u16())
            }
            None => format!("{server_message} ({code})"),
        };
    }
    ServiceError { fault, code }
}

fn by_status(status: StatusCode) -> Option<(ErrorKind, Retry)> {
    Some(match status.as_u16() {
        409 => (ErrorKind::Exists, Retry::Never),
        // Bandwidth limit exceeded.
        509 => (ErrorKind::Busy, Retry::Backoff),
        _ => return None,
    })
}

fn meaning(code: &str) -> Option<(ErrorKind, Retry)> {
    use ErrorKind as K;
    use Retry::{Backoff, Never};
    Some(match code {
        "itemNotFound" => (K::NotFound, Never),
        "nameAlreadyExists" => (K::Exists, Never),
        "resourceModified" => (K::Changed, Never),
        "accessDenied" => (K::Denied, Never),
        "activityLimitReached" | "serviceNotAvailable" | "tooManyRequests" | "TooManyRequests" => (K::Busy, Backoff),
        "resourceLocked" => (K::Busy, Backoff),
        "quotaLimitReached" | "insufficientStorage" => (K::NoSpace, Never),
        "resyncRequired" => (K::Io, Backoff),
        "pathIsTooLong" | "nameContainsInvalidCharacters" | "invalidRequest" => (K::Invalid, Never),
        "malwareDetected" => (K::Denied, Never),
        _ => return None,
    })
}

fn hint(code: &str) -> Option<&'static str> {
    Some(match code {
        "pathIsTooLong" => "the path is longer than the service allows (400 characters)",
        "malwareDetected" => "the service takes it for a virus: set av_override to read it all the same",
        "quotaLimitReached" | "insufficientStorage" => "the drive is full",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        use ErrorKind as K;
        let table = [
            (429, "activityLimitReached", Some("7"), K::Busy, Retry::After(Duration::from_secs(7))),
            (503, "", Some("2"), K::Busy, Retry::After(Duration::from_secs(2))),
            (509, "", None, K::Busy, Retry::Backoff),
            (404, "itemNotFound", None, K::NotFound, Retry::Never),
            (409, "nameAlreadyExists", None, K::Exists, Retry::Never),
            (412, "resourceModified", None, K::Changed, Retry::Never),
            (507, "quotaLimitReached", None, K::NoSpace, Retry::Never),
            (500, "generalException", None, K::Io, Retry::Backoff),
            (400, "pathIsTooLong", None, K::Invalid, Retry::Never),
            (423, "resourceLocked", None, K::Busy, Retry::Backoff),
        ];
        for (status, code, wait, kind, retry) in table {
            let mut headers = HeaderMap::new();
            if let Some(wait) = wait {
                headers.insert("retry-after", wait.parse().unwrap());
            }
            let body = format!("{{\"error\":{{\"code\":\"{code}\",\"message\":\"It says why.\"}}}}");
            let refused = judge(StatusCode::from_u16(status).unwrap(), &headers, body.as_bytes());
            assert_eq!((refused.fault.kind, refused.fault.retry), (kind, retry), "{status} {code}");
        }
        let page = judge(StatusCode::BAD_GATEWAY, &HeaderMap::new(), b"<html>");
        assert_eq!((page.fault.kind, page.code), (K::Io, String::new()));
    }
}
