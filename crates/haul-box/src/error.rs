//! Meaning of a refusal, by the service's code.

use crate::facts::is_id;
use haul_core::{ErrorKind, Retry};
use haul_net::{Fault, fault::told_to_wait};
use haul_oauth::ServiceError;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize, Default)]
struct ErrorResponse {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    context_info: Value,
}

/// The code of a name that is taken.
const IN_USE: &str = "item_name_in_use";

/// See [`haul_oauth::Judge`]. The code of a name that is taken says by what: `item_name_in_use/file/ID`.
pub fn judge(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ServiceError {
    let ErrorResponse { mut code, message, context_info } = serde_json::from_slice(body).unwrap_or_default();
    let mut fault = Fault::answer(status, headers, None);
    if let Some((kind, retry)) = meaning(&code).or_else(|| by_status(status)) {
        fault.kind = kind;
        fault.retry = match told_to_wait(headers) {
            Some(wait) if retry != Retry::Never => Retry::after(wait),
            _ => retry,
        };
    }
    if !code.is_empty() {
        let message = message.unwrap_or_default();
        let server_message = message.lines().next().unwrap_or_default().trim_end_matches('.');
        fault.message = match hint(&code) {
            Some(hint) => format!("{hint} ({code})"),
            None if server_message.is_empty() || server_message == code => {
                format!("the service answered {} ({code})", status.as_u16())
            }
            None => format!("{server_message} ({code})"),
        };
    }
    if code == IN_USE {
        // Uploads return one, folders a list.
        let conflicts = &context_info["conflicts"];
        let first = conflicts.get(0).unwrap_or(conflicts);
        if let (Some(kind), Some(id)) = (first["type"].as_str(), first["id"].as_str()) {
            code = format!("{IN_USE}/{kind}/{id}");
        }
    }
    ServiceError { fault, code }
}

/// Item that has a requested name already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictingItem {
    pub is_folder: bool,
    pub id: String,
}

/// The item that has the name, from a refusal; `None` for other refusals, and where the answer doesn't say.
pub fn taken(refused: &ServiceError) -> Option<ConflictingItem> {
    let (kind, id) = refused.code.strip_prefix(IN_USE)?.strip_prefix('/')?.split_once('/')?;
    is_id(id).then(|| ConflictingItem { is_folder: kind == "folder", id: id.to_owned() })
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
        "not_found" | "trashed" | "session_expired" => (K::NotFound, Never),
        IN_USE | "folder_not_empty" => (K::Exists, Never),
        "precondition_failed" | "sync_item_precondition_failed" => (K::Changed, Never),
        "rate_limit_exceeded" | "too_many_requests" => (K::Busy, Backoff),
        "operation_blocked_temporary" | "name_temporarily_reserved" | "service_unavailable" => (K::Busy, Backoff),
        "access_denied_insufficient_permissions" | "access_denied_item_locked" | "forbidden" => (K::Denied, Never),
        "storage_limit_exceeded" => (K::NoSpace, Never),
        "item_name_invalid" | "item_name_too_long" | "file_size_limit_exceeded" => (K::Invalid, Never),
        "bad_digest" | "digest_mismatch" => (K::Corrupt, Backoff),
        _ => return None,
    })
}

fn hint(code: &str) -> Option<&'static str> {
    Some(match code {
        "storage_limit_exceeded" => "the account is full",
        "item_name_invalid" | "item_name_too_long" => "Box takes no such name: rename it",
        "file_size_limit_exceeded" => "the file is larger than the account's plan allows",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn refused(status: u16, body: &str, wait: Option<&str>) -> ServiceError {
        let mut headers = HeaderMap::new();
        if let Some(wait) = wait {
            headers.insert("retry-after", wait.parse().unwrap());
        }
        judge(StatusCode::from_u16(status).unwrap(), &headers, body.as_bytes())
    }

    #[test]
    fn refusals() {
        use ErrorKind as K;
        let table = [
            (429, "rate_limit_exceeded", Some("7"), K::Busy, Retry::After(Duration::from_secs(7))),
            (429, "", Some("2"), K::Busy, Retry::After(Duration::from_secs(2))),
            (503, "", None, K::Busy, Retry::Backoff),
            (403, "operation_blocked_temporary", None, K::Busy, Retry::Backoff),
            (409, "name_temporarily_reserved", None, K::Busy, Retry::Backoff),
            (404, "trashed", None, K::NotFound, Retry::Never),
            (410, "session_expired", None, K::NotFound, Retry::Never),
            (409, "item_name_in_use", None, K::Exists, Retry::Never),
            (412, "precondition_failed", None, K::Changed, Retry::Never),
            (403, "storage_limit_exceeded", None, K::NoSpace, Retry::Never),
            (400, "item_name_invalid", None, K::Invalid, Retry::Never),
            (400, "folder_not_empty", None, K::Exists, Retry::Never),
            (500, "internal_server_error", None, K::Io, Retry::Backoff),
        ];
        for (status, code, wait, kind, retry) in table {
            let body =
                format!("{{\"type\":\"error\",\"code\":\"{code}\",\"message\":\"It says why.\",\"status\":{status}}}");
            let refused = refused(status, &body, wait);
            assert_eq!((refused.fault.kind, refused.fault.retry), (kind, retry), "{status} {code}");
        }
        let page = refused(502, "<html>", None);
        assert_eq!((page.fault.kind, page.code), (K::Io, String::new()));
    }

    #[test]
    fn what_has_a_name_is_told_alone_or_in_a_list() {
        let one = "{\"type\":\"file\",\"id\":\"12\",\"name\":\"x\"}";
        let list = "[{\"type\":\"folder\",\"id\":\"13\"}]";
        let body = |what: &str| format!("{{\"code\":\"item_name_in_use\",\"context_info\":{{\"conflicts\":{what}}}}}");
        assert_eq!(taken(&refused(409, &body(one), None)), Some(ConflictingItem { is_folder: false, id: "12".into() }));
        assert_eq!(taken(&refused(409, &body(list), None)), Some(ConflictingItem { is_folder: true, id: "13".into() }));
        assert_eq!(taken(&refused(409, &body("[]"), None)), None);
        assert_eq!(taken(&refused(404, "{\"code\":\"not_found\"}", None)), None);
    }
}
