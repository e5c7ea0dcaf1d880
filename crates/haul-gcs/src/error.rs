//! Meaning of unsuccessful answers, by the service's reason.

use haul_core::{ErrorKind, Retry};
use haul_net::Fault;
use haul_oauth::ServiceError;
use haul_store::xml;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

#[derive(Deserialize)]
struct ErrorResponse {
    error: ErrorDetail,
}

#[derive(Deserialize)]
struct ErrorDetail {
    #[serde(default)]
    message: String,
    #[serde(default)]
    errors: Vec<Reason>,
}

#[derive(Deserialize)]
struct Reason {
    #[serde(default)]
    reason: String,
}

/// The other interface says the same in XML.
fn of_xml(body: &[u8]) -> Option<ErrorDetail> {
    let reason = xml::text_of(body, "Code")?;
    Some(ErrorDetail { message: xml::text_of(body, "Message").unwrap_or_default(), errors: vec![Reason { reason }] })
}

/// Meaning of a refusal. Its code is the service's reason.
pub fn judge(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ServiceError {
    let reply = serde_json::from_slice::<ErrorResponse>(body).ok().map(|body| body.error).or_else(|| of_xml(body));
    let message = reply.as_ref().map(|reply| reply.message.lines().next().unwrap_or_default().trim_end_matches('.'));
    let code =
        reply.as_ref().and_then(|reply| reply.errors.first()).map(|first| first.reason.clone()).unwrap_or_default();
    let mut fault = Fault::answer(status, headers, message.filter(|message| !message.is_empty()));
    let meant = match (status.as_u16(), &*code) {
        (403 | 429, "rateLimitExceeded" | "userRateLimitExceeded" | "backendError") => {
            Some((ErrorKind::Busy, Retry::Backoff))
        }
        (404, _) if message.is_some_and(|message| message.contains("bucket does not exist")) => {
            Some((ErrorKind::DirNotFound, Retry::Never))
        }
        // An object that is under a hold, or in a bucket that keeps what it has.
        (412, _) | (304, _) => Some((ErrorKind::Changed, Retry::Never)),
        (404, "NoSuchBucket") => Some((ErrorKind::DirNotFound, Retry::Never)),
        (400, "BadDigest" | "CrcMismatch") => Some((ErrorKind::Corrupt, Retry::Backoff)),
        (409, "conflict") => Some((ErrorKind::Exists, Retry::Never)),
        _ => None,
    };
    if let Some((kind, retry)) = meant {
        (fault.kind, fault.retry) = (kind, if matches!(fault.retry, Retry::After(_)) { fault.retry } else { retry });
    }
    ServiceError { fault, code }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, reason: &str, message: &str) -> ServiceError {
        let body = format!(
            "{{\"error\":{{\"code\":{status},\"message\":\"{message}\",\"errors\":[{{\"reason\":\"{reason}\"}}]}}}}"
        );
        judge(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body.as_bytes())
    }

    #[test]
    fn a_reason_has_a_meaning() {
        use ErrorKind as K;
        let kind = |refused: ServiceError| (refused.fault.kind, refused.fault.retry);
        assert_eq!(kind(of(403, "userRateLimitExceeded", "")), (K::Busy, Retry::Backoff));
        assert_eq!(kind(of(403, "forbidden", "x does not have access")), (K::Denied, Retry::Never));
        assert_eq!(kind(of(404, "notFound", "The specified bucket does not exist.")), (K::DirNotFound, Retry::Never));
        assert_eq!(kind(of(404, "notFound", "No such object: b/x")), (K::NotFound, Retry::Never));
        assert_eq!(kind(of(412, "conditionNotMet", "")), (K::Changed, Retry::Never));
        assert_eq!(kind(of(503, "backendError", "")), (K::Busy, Retry::Backoff));
        let refused = of(403, "forbidden", "x does not have access.");
        assert_eq!(
            (&*refused.code, &*refused.fault.message),
            ("forbidden", "the server answered 403: x does not have access")
        );
        let other = |status: u16, code: &str| {
            let body = format!("<?xml version='1.0'?><Error><Code>{code}</Code><Message>Words.</Message></Error>");
            judge(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body.as_bytes())
        };
        assert_eq!(other(404, "NoSuchUpload").fault.message, "the server answered 404: Words");
        assert_eq!(kind(other(404, "NoSuchUpload")), (K::NotFound, Retry::Never));
        assert_eq!(kind(other(404, "NoSuchBucket")), (K::DirNotFound, Retry::Never));
        assert_eq!(kind(other(400, "CrcMismatch")), (K::Corrupt, Retry::Backoff));
        assert_eq!(judge(StatusCode::BAD_GATEWAY, &HeaderMap::new(), b"<html>").code, "");
    }
}
