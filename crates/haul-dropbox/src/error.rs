//! Meaning of unsuccessful answers, by the tags of their error.

use haul_core::{ErrorKind, Retry};
use haul_net::Fault;
use haul_oauth::ServiceError;
use http::{HeaderMap, StatusCode};
use serde_json::Value;
use std::time::Duration;

/// Meaning of the tags of an error (`path/conflict/file`).
pub fn meaning(code: &str) -> (ErrorKind, Retry) {
    let has = |word: &str| code.split('/').any(|tag| tag == word);
    match () {
        () if has("too_many_write_operations") || has("too_many_requests") => (ErrorKind::Busy, Retry::Backoff),
        () if has("internal_error") => (ErrorKind::Io, Retry::Backoff),
        () if has("not_found") || has("not_file") || has("not_folder") => (ErrorKind::NotFound, Retry::Never),
        () if has("conflict") => (ErrorKind::Exists, Retry::Never),
        () if has("insufficient_space") || has("insufficient_quota") => (ErrorKind::NoSpace, Retry::Never),
        () if has("malformed_path") || has("disallowed_name") => (ErrorKind::Invalid, Retry::Never),
        () if has("restricted_content") || has("no_write_permission") || has("no_permission") => {
            (ErrorKind::Denied, Retry::Never)
        }
        () if has("content_hash_mismatch") => (ErrorKind::Corrupt, Retry::Backoff),
        () if has("concurrent_session_missing_data") => (ErrorKind::Corrupt, Retry::Never),
        () if has("reset") => (ErrorKind::Io, Retry::Backoff),
        () => (ErrorKind::Io, Retry::Never),
    }
}

/// In words, where the tags alone wouldn't help.
pub fn words(code: &str) -> String {
    let has = |word: &str| code.split('/').any(|tag| tag == word);
    match () {
        () if has("disallowed_name") || has("malformed_path") => {
            format!("Dropbox takes no such name ({code}): rename it")
        }
        () if has("insufficient_space") => "the account is full".into(),
        () if has("conflict") => format!("is there already ({code})"),
        () if has("not_found") => "the service has no such file or folder".into(),
        () => format!("the service says {code}"),
    }
}

/// The tags of an error, from the outermost.
pub fn code(mut error: &Value) -> String {
    let mut tags = Vec::new();
    while let Some(tag) = error[".tag"].as_str().filter(|_| tags.len() < 8) {
        tags.push(tag);
        error = if error[tag].is_null() { &error["reason"] } else { &error[tag] };
    }
    tags.join("/")
}

/// Meaning of a refusal. Its code is the service's tags.
pub fn judge(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ServiceError {
    let reply = serde_json::from_slice::<Value>(body).ok();
    let summary = reply.as_ref().and_then(|reply| reply["error_summary"].as_str()).unwrap_or_default();
    let code = summary.trim_end_matches('.').trim_end_matches('/').to_owned();
    // A body that isn't JSON is a sentence about the request.
    let text = match reply {
        Some(_) => code.clone(),
        None => String::from_utf8_lossy(body).lines().next().unwrap_or_default().chars().take(200).collect(),
    };
    let mut fault = Fault::answer(status, headers, Some(&*text).filter(|text| !text.is_empty()));
    match status.as_u16() {
        409 => {
            (fault.kind, fault.retry) = meaning(&code);
            fault.message = words(&code);
        }
        400 if text.contains("did not match pattern") => {
            (fault.kind, fault.retry) = (ErrorKind::Invalid, Retry::Never);
            fault.message = "Dropbox takes no such name: rename it".into();
        }
        429 if !matches!(fault.retry, Retry::After(_)) => {
            let wait = reply.and_then(|reply| reply["error"]["retry_after"].as_u64());
            fault.retry = wait.map_or(Retry::Backoff, |wait| Retry::after(Duration::from_secs(wait)));
        }
        _ => {}
    }
    ServiceError { fault, code }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tags_have_meanings() {
        let of = |status: u16, body: Value| {
            judge(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body.to_string().as_bytes())
        };
        let kind = |summary: &str| {
            let refused = of(409, json!({"error_summary": summary, "error": {}}));
            (refused.fault.kind, refused.fault.retry)
        };
        use ErrorKind as K;
        assert_eq!(kind("path/not_found/.."), (K::NotFound, Retry::Never));
        assert_eq!(kind("path/conflict/file/..."), (K::Exists, Retry::Never));
        assert_eq!(kind("path/insufficient_space/."), (K::NoSpace, Retry::Never));
        assert_eq!(kind("path/disallowed_name/."), (K::Invalid, Retry::Never));
        assert_eq!(kind("too_many_write_operations/."), (K::Busy, Retry::Backoff));
        assert_eq!(kind("something_new/."), (K::Io, Retry::Never));
        let busy = of(429, json!({"error": {"reason": {".tag": "too_many_requests"}, "retry_after": 15}}));
        assert_eq!((busy.fault.kind, busy.fault.retry), (K::Busy, Retry::After(Duration::from_secs(15))));
        let upload = json!({".tag": "path", "reason": {".tag": "conflict", "conflict": {".tag": "file"}}, "upload_session_id": "x"});
        assert_eq!(code(&upload), "path/conflict/file");
        assert_eq!(
            code(&json!({".tag": "lookup_failed", "lookup_failed": {".tag": "not_found"}})),
            "lookup_failed/not_found"
        );
        assert_eq!(of(400, json!("x")).code, "");
    }
}
