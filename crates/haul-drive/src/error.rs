//! Meaning of unsuccessful answers, by the service's reason.

use haul_core::{ErrorKind, Retry};
use haul_net::Fault;
use haul_oauth::ServiceError;
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

/// So Google words it when the day's 750 GB are used up; of too many requests it says more.
const DAY: &str = "User rate limit exceeded";
/// Which is what a person needs to know of it.
const DAY_TOLD: &str = "Google takes no more for now: too many requests at once, or the day's 750 GB are used up (--drive-stop-on-upload-limit ends the run then)";

/// Meaning of a refusal. Its code is the service's reason.
pub fn judge(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ServiceError {
    let reply = serde_json::from_slice::<ErrorResponse>(body).ok().map(|body| body.error);
    let message = reply.as_ref().map(|reply| reply.message.lines().next().unwrap_or_default().trim_end_matches('.'));
    let code =
        reply.as_ref().and_then(|reply| reply.errors.first()).map(|first| first.reason.clone()).unwrap_or_default();
    let mut fault = Fault::answer(status, headers, message.filter(|message| !message.is_empty()));
    let meant = match (status.as_u16(), &*code) {
        (403 | 429, "rateLimitExceeded" | "userRateLimitExceeded") if message == Some(DAY) => {
            Some((ErrorKind::Busy, Retry::Backoff, Some(DAY_TOLD)))
        }
        (403 | 429, "rateLimitExceeded" | "userRateLimitExceeded" | "sharingRateLimitExceeded" | "backendError") => {
            Some((ErrorKind::Busy, Retry::Backoff, None))
        }
        (_, "storageQuotaExceeded" | "quotaExceeded") => {
            Some((ErrorKind::NoSpace, Retry::Never, Some("there is no space left in this Drive")))
        }
        (_, "teamDriveFileLimitExceeded" | "sharedDriveFileLimitExceeded") => {
            Some((ErrorKind::NoSpace, Retry::Never, Some("this shared drive has as many files as it may have")))
        }
        (_, "numChildrenInNonRootLimitExceeded") => {
            Some((ErrorKind::NoSpace, Retry::Never, Some("this folder has as many files as it may have")))
        }
        (_, "downloadQuotaExceeded") => {
            let message = "Google lets nobody download this file for now, as too many did: try again tomorrow";
            Some((ErrorKind::Denied, Retry::Never, Some(message)))
        }
        (_, "cannotDownloadAbusiveFile") => {
            let message = "Google takes this file for malware or spam: to read it all the same, set acknowledge_abuse";
            Some((ErrorKind::Denied, Retry::Never, Some(message)))
        }
        (409, _) => Some((ErrorKind::Exists, Retry::Never, None)),
        _ => None,
    };
    if let Some((kind, retry, message)) = meant {
        (fault.kind, fault.retry) = (kind, if matches!(fault.retry, Retry::After(_)) { fault.retry } else { retry });
        if let Some(message) = message {
            message.clone_into(&mut fault.message);
        }
    }
    ServiceError { fault, code }
}

/// As [`judge`], but the daily upload quota ends the run.
pub fn judge_stop(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ServiceError {
    let mut refused = judge(status, headers, body);
    if refused.fault.kind == ErrorKind::Busy && refused.fault.message == DAY_TOLD {
        (refused.fault.kind, refused.fault.retry) = (ErrorKind::Limit, Retry::Never);
        refused.fault.message = "Google takes no more uploads today (750 GB a day): go on tomorrow".into();
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(reason: &str, message: &str) -> String {
        format!("{{\"error\":{{\"message\":\"{message}\",\"errors\":[{{\"reason\":\"{reason}\"}}]}}}}")
    }

    #[test]
    fn a_reason_has_a_meaning() {
        use ErrorKind as K;
        for (status, reason, kind, again) in [
            (403, "userRateLimitExceeded", K::Busy, true),
            (403, "rateLimitExceeded", K::Busy, true),
            (429, "rateLimitExceeded", K::Busy, true),
            (403, "storageQuotaExceeded", K::NoSpace, false),
            (403, "teamDriveFileLimitExceeded", K::NoSpace, false),
            (403, "cannotDownloadAbusiveFile", K::Denied, false),
            (403, "downloadQuotaExceeded", K::Denied, false),
            (403, "insufficientFilePermissions", K::Denied, false),
            (404, "notFound", K::NotFound, false),
            (409, "fileIdInUse", K::Exists, false),
            (401, "authError", K::Unauthenticated, false),
            (500, "internalError", K::Io, true),
            (503, "backendError", K::Busy, true),
        ] {
            let refused = judge(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body(reason, "m").as_bytes());
            assert_eq!((refused.fault.kind, refused.fault.retry != Retry::Never), (kind, again), "{reason}");
            assert_eq!(refused.code, reason);
        }
        assert_eq!(judge(StatusCode::BAD_GATEWAY, &HeaderMap::new(), b"<html>").code, "");
    }

    #[test]
    fn the_daily_limit_is_distinguished_from_throttling() {
        let status = StatusCode::FORBIDDEN;
        let day = body("userRateLimitExceeded", "User rate limit exceeded.");
        let stop = judge_stop(status, &HeaderMap::new(), day.as_bytes());
        assert_eq!((stop.fault.kind, stop.fault.retry), (ErrorKind::Limit, Retry::Never));
        assert_eq!(stop.fault.message, "Google takes no more uploads today (750 GB a day): go on tomorrow");
        let waits = judge(status, &HeaderMap::new(), day.as_bytes()).fault;
        assert_eq!((waits.kind, waits.retry, &*waits.message), (ErrorKind::Busy, Retry::Backoff, DAY_TOLD));
        let moment = body("userRateLimitExceeded", "User Rate Limit Exceeded. Rate of requests for user exceed …");
        assert_eq!(judge_stop(status, &HeaderMap::new(), moment.as_bytes()).fault.kind, ErrorKind::Busy);
    }
}
