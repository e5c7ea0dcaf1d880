//! Meaning of unsuccessful answers, by the service's code.

use haul_core::{ErrorKind, Retry};
use haul_net::{Fault, FaultResult, fault::told_to_wait};
use http::{HeaderMap, StatusCode};

/// A refusal: what HTTP and the store's errors need, and the service's own word for it.
#[derive(Debug)]
pub struct ServiceError {
    /// Its meaning.
    pub fault: Box<Fault>,
    /// `BlobNotFound`, `ServerBusy` …; empty where there was no answer.
    pub code: String,
}

impl From<Box<Fault>> for ServiceError {
    fn from(fault: Box<Fault>) -> Self {
        ServiceError { fault, code: String::new() }
    }
}

impl From<ServiceError> for Box<Fault> {
    fn from(refused: ServiceError) -> Self {
        refused.fault
    }
}

/// A refusal, from an answer.
pub fn refused(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ServiceError {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(|text| text.trim().to_owned());
    // An answer to HEAD has no body, and a gateway's none of ours.
    let code = text("x-ms-error-code").or_else(|| haul_store::xml::text_of(body, "Code")).unwrap_or_default();
    let server_message = haul_store::xml::text_of(body, "Message");
    let server_message = server_message
        .as_deref()
        .and_then(|server_message| server_message.lines().next())
        .map(|line| line.trim_end_matches('.').to_owned());
    let mut fault = Fault::answer(status, headers, None);
    if let Some((kind, retry)) = meaning(&code) {
        (fault.kind, fault.retry) = (kind, retry);
        if let Some(wait) = told_to_wait(headers).filter(|_| retry != Retry::Never) {
            fault.retry = Retry::after(wait);
        }
    }
    if !code.is_empty() {
        fault.message = match (hint(&code), server_message) {
            (Some(hint), _) => format!("{hint} ({code})"),
            (None, Some(server_message)) => format!("{server_message} ({code})"),
            (None, None) => format!("the server answered {} ({code})", status.as_u16()),
        };
    }
    ServiceError { fault, code }
}

fn meaning(code: &str) -> Option<(ErrorKind, Retry)> {
    use ErrorKind as K;
    use Retry::{Backoff, Never};
    Some(match code {
        "ContainerNotFound" => (K::DirNotFound, Never),
        "BlobNotFound" | "ResourceNotFound" => (K::NotFound, Never),
        "BlobAlreadyExists" | "DirectoryIsNotEmpty" => (K::Exists, Never),
        "ConditionNotMet" | "TargetConditionNotMet" | "SourceConditionNotMet" => (K::Changed, Never),
        "AuthenticationFailed" | "InvalidAuthenticationInfo" | "NoAuthenticationInformation" => {
            (K::Unauthenticated, Never)
        }
        "AuthorizationFailure" | "AuthorizationPermissionMismatch" | "InsufficientAccountPermissions" => {
            (K::Denied, Never)
        }
        "BlobArchived" | "BlobBeingRehydrated" | "LeaseIdMissing" | "BlobImmutableDueToPolicy" => (K::Denied, Never),
        "ServerBusy" | "ContainerBeingDeleted" | "IngressOverAccountLimit" | "EgressOverAccountLimit" => {
            (K::Busy, Backoff)
        }
        "OperationTimedOut" => (K::Timeout, Backoff),
        "InternalError" => (K::Io, Backoff),
        "Md5Mismatch" | "Crc64Mismatch" => (K::Corrupt, Backoff),
        // Another writer of this name has published, which discards waiting blocks.
        "InvalidBlockList" => (K::NotFound, Never),
        "InvalidBlobOrBlock" => (K::Denied, Never),
        _ => return None,
    })
}

fn hint(code: &str) -> Option<&'static str> {
    Some(match code {
        "AuthenticationFailed" => {
            "the server doesn't accept the account's key or signature: check account, key, sas_url and this machine's clock"
        }
        "BlobArchived" => "it is in the archive tier: rehydrate it first",
        "InvalidBlobOrBlock" => {
            "another program has begun to write this file: wait a week, or set a chunk_size larger than the file"
        }
        "DirectoryIsNotEmpty" => "the directory is not empty",
        "LeaseIdMissing" => "somebody holds a lease on it",
        "SnapshotsPresent" => "it has snapshots: delete them first, or set delete_snapshots = include",
        _ => return None,
    })
}

/// Drops the code of a refusal and keeps the fault.
pub fn plain<T>(result: Result<T, ServiceError>) -> FaultResult<T> {
    result.map_err(|refused| refused.fault)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_code_has_a_meaning() {
        let of = |status: u16, code: &'static str, wait: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert("x-ms-error-code", code.parse().unwrap());
            if let Some(wait) = wait {
                headers.insert("retry-after", wait.parse().unwrap());
            }
            let refused = refused(StatusCode::from_u16(status).unwrap(), &headers, b"");
            (refused.fault.kind, refused.fault.retry)
        };
        use ErrorKind as K;
        assert_eq!(of(404, "ContainerNotFound", None), (K::DirNotFound, Retry::Never));
        assert_eq!(of(503, "ServerBusy", Some("3")), (K::Busy, Retry::After(Duration::from_secs(3))));
        assert_eq!(of(500, "OperationTimedOut", None), (K::Timeout, Retry::Backoff));
        assert_eq!(of(409, "BlobAlreadyExists", None), (K::Exists, Retry::Never));
        assert_eq!(of(412, "ConditionNotMet", Some("3")), (K::Changed, Retry::Never));
        assert_eq!(of(400, "Md5Mismatch", None), (K::Corrupt, Retry::Backoff));
        assert_eq!(of(429, "TooManyRequests", Some("1")), (K::Busy, Retry::After(Duration::from_secs(1))));
    }

    #[test]
    fn the_servers_words_are_told() {
        let body = b"<?xml version=\"1.0\"?><Error><Code>OutOfRangeInput</Code><Message>One of them is out of range.\nRequestId:x</Message></Error>";
        let refused = refused(StatusCode::BAD_REQUEST, &HeaderMap::new(), body);
        assert_eq!(refused.fault.message, "One of them is out of range (OutOfRangeInput)");
        assert_eq!(refused.code, "OutOfRangeInput");
    }
}
