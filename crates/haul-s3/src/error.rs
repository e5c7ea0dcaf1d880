//! Meaning of failed requests.

use super::xml::{self, Step};
use haul_core::{Error, ErrorKind, Key, Retry, concurrency::RequestResult};
use haul_net::fault::told_to_wait;
use http::{HeaderMap, StatusCode};

/// A failed request: what the server or the connection said, before it is known which key it was about.
#[derive(Debug)]
pub struct Fault {
    pub kind: ErrorKind,
    pub retry: Retry,
    /// 0 when there was no answer.
    pub status: u16,
    /// S3's code, such as `NoSuchKey`; empty when there is none.
    pub code: String,
    pub message: String,
    /// The region that the server says is right.
    pub region: Option<String>,
    /// The connection was refused.
    pub refused: bool,
    /// The connection was closed before an answer began.
    pub dropped: bool,
}

/// A request that was never answered.
impl From<Box<haul_net::Fault>> for Box<Fault> {
    fn from(fault: Box<haul_net::Fault>) -> Self {
        let haul_net::Fault { kind, retry, status, message, refused, dropped } = *fault;
        Box::new(Fault { status, refused, dropped, ..*Fault::new(kind, retry, message) })
    }
}

/// A result of a request.
pub type FaultResult<T> = Result<T, Box<Fault>>;

impl Fault {
    /// A fault without an answer.
    pub fn new(kind: ErrorKind, retry: Retry, message: impl Into<String>) -> Box<Fault> {
        Box::new(Fault {
            kind,
            retry,
            status: 0,
            code: String::new(),
            message: message.into(),
            region: None,
            refused: false,
            dropped: false,
        })
    }

    /// A broken connection or answer, which may be better the next time.
    pub fn broken(message: impl Into<String>) -> Box<Fault> {
        Fault::new(ErrorKind::Io, Retry::Backoff, message)
    }

    /// No progress within the time allowed.
    pub fn timeout(message: impl Into<String>) -> Box<Fault> {
        Fault::new(ErrorKind::Timeout, Retry::Backoff, message)
    }

    /// From an answer that isn't success.
    pub fn answer(status: StatusCode, headers: &HeaderMap, body: &[u8], bucket: Option<&str>) -> Box<Fault> {
        let code_text = xml::text_of(body, "Code");
        if code_text.is_none() && status == StatusCode::NOT_FOUND && !body.trim_ascii().is_empty() {
            // A page that something else than S3 sends proves nothing to be missing, nor deleted.
            let message = "the server answered 404, but not as S3 does: is the endpoint an S3 server?";
            return Box::new(Fault { status: 404, ..*Fault::new(ErrorKind::Invalid, Retry::Never, message) });
        }
        let code = code_text.unwrap_or_else(|| code_of_status(status, bucket).to_owned());
        let server_message = xml::text_of(body, "Message").unwrap_or_default();
        let header = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let region = header("x-amz-bucket-region").or_else(|| xml::text_of(body, "Region")).filter(|r| !r.is_empty());
        let mut fault = Fault::coded(status.as_u16(), &code, &server_message, bucket);
        if let Some(wait) = told_to_wait(headers)
            && fault.retry != Retry::Never
        {
            fault.retry = Retry::after(wait);
        }
        fault.region = region;
        fault
    }

    /// From S3's code; also for the errors inside answers of status 200.
    pub fn coded(status: u16, code: &str, said: &str, bucket: Option<&str>) -> Box<Fault> {
        let (kind, retry) = meaning(status, code);
        let bucket = bucket.unwrap_or("?");
        let server_message = said.trim().replace(['\n', '\r'], " ");
        let message = match code {
            "NoSuchBucket" => format!("bucket {bucket} does not exist"),
            "InvalidBucketName" => format!("no bucket can be called {bucket} (InvalidBucketName): correct its name"),
            "PreconditionFailed" => "the content is no longer what was expected (PreconditionFailed)".to_owned(),
            "NoSuchKey" => "no such key (NoSuchKey)".to_owned(),
            "RequestTimeTooSkewed" => {
                "this machine's clock differs too much from the server's (RequestTimeTooSkewed): set the clock"
                    .to_owned()
            }
            "InvalidAccessKeyId" => {
                format!("the server doesn't know our access key ({code}): correct access_key_id with haul config")
            }
            "SignatureDoesNotMatch" => format!(
                "the server doesn't accept our signature ({code}): correct secret_access_key with haul config, and see \
                 that the clock is right"
            ),
            "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" => {
                format!("{}: renew session_token", message(status, code, &server_message))
            }
            "AuthorizationHeaderMalformed"
            | "IllegalLocationConstraintException"
            | "InvalidLocationConstraint"
            | "InvalidRegion" => {
                format!("{}: correct region with haul config", message(status, code, &server_message))
            }
            "PermanentRedirect" | "TemporaryRedirect" | "Redirect" => {
                format!(
                    "bucket {bucket} is served by another endpoint ({code}): set region and endpoint with haul config"
                )
            }
            _ if kind == ErrorKind::Unauthenticated => {
                format!(
                    "{}: set access_key_id and secret_access_key with haul config",
                    message(status, code, &server_message)
                )
            }
            _ => message(status, code, &server_message),
        };
        Box::new(Fault {
            kind,
            retry,
            status,
            code: code.to_owned(),
            message,
            region: None,
            refused: false,
            dropped: false,
        })
    }

    /// Effect on the lane's concurrency. An answer that refuses one request for reasons of its own is an
    /// answer like any other.
    pub fn outcome(&self) -> RequestResult {
        match (self.kind, self.retry) {
            _ if self.is_conflict() => RequestResult::Done,
            (ErrorKind::Busy, Retry::After(wait)) => RequestResult::Throttled(Some(wait)),
            (ErrorKind::Busy, _) => RequestResult::Throttled(None),
            // A host that never answered isn't busy.
            _ if self.refused && self.kind != ErrorKind::Unreachable => RequestResult::Throttled(None),
            _ if self.dropped => RequestResult::Dropped,
            _ if (400..500).contains(&self.status) => RequestResult::Done,
            _ => RequestResult::Failed,
        }
    }

    /// Another request was at work on the same: that says nothing of the service's load.
    pub fn is_conflict(&self) -> bool {
        self.status == 409
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
        self.status == 0 || self.status >= 500 || self.code == "NoSuchUpload" || self.code == "InternalError"
    }
}

fn message(status: u16, code: &str, said: &str) -> String {
    match (code, said) {
        ("", "") => format!("the server answered {status}"),
        (code, "") => format!("the server answered {status} {code}"),
        ("", said) => format!("the server answered {status}: {said}"),
        (code, said) => format!("{} ({code})", said.trim_end_matches('.')),
    }
}

/// Answers to HEAD have no body, so only the status says what happened.
fn code_of_status(status: StatusCode, bucket: Option<&str>) -> &'static str {
    match status.as_u16() {
        404 if bucket.is_some() => "NoSuchKey",
        412 => "PreconditionFailed",
        _ => "",
    }
}

fn meaning(status: u16, code: &str) -> (ErrorKind, Retry) {
    use ErrorKind as K;
    use Retry::{Backoff, Never};
    match code {
        "NoSuchKey" | "NoSuchVersion" | "NoSuchUpload" => (K::NotFound, Never),
        "NoSuchBucket" => (K::DirNotFound, Never),
        "AccessDenied" | "AllAccessDisabled" | "AccountProblem" | "InvalidObjectState" | "MethodNotAllowed" => {
            (K::Denied, Never)
        }
        "InvalidAccessKeyId"
        | "SignatureDoesNotMatch"
        | "ExpiredToken"
        | "InvalidToken"
        | "TokenRefreshRequired"
        | "CredentialsNotSupported"
        // With a wrong clock no credentials are valid.
        | "RequestTimeTooSkewed"
        | "Unauthorized" => (K::Unauthenticated, Never),
        "SlowDown"
        | "SlowDownRead"
        | "SlowDownWrite"
        | "RequestLimitExceeded"
        | "Throttling"
        | "ThrottlingException"
        | "TooManyRequests"
        | "ServiceUnavailable"
        | "Busy"
        | "ServerBusy"
        | "BandwidthLimitExceeded"
        // Another request was at work on the same key or bucket. Nothing was done, and whether a condition holds is still open.
        | "OperationAborted"
        | "ConditionalRequestConflict" => (K::Busy, Backoff),
        "RequestTimeout" => (K::Timeout, Backoff),
        "InternalError" => (K::Io, Backoff),
        "PreconditionFailed" => (K::Changed, Never),
        "BadDigest"
        | "XAmzContentSHA256Mismatch"
        | "XAmzContentChecksumMismatch"
        | "InvalidDigest"
        | "IncompleteBody" => (K::Corrupt, Backoff),
        // A part's receipt was damaged in transit: completing again is useless, sending the file again helps.
        "InvalidPart" | "InvalidPartOrder" => (K::Corrupt, Never),
        "QuotaExceeded" | "XMinioStorageFull" | "InsufficientCapacity" | "StorageFull" => (K::NoSpace, Never),
        "NotImplemented" => (K::Unsupported, Never),
        "BucketAlreadyExists" | "BucketAlreadyOwnedByYou" | "BucketNotEmpty" => (K::Exists, Never),
        _ => match status {
            400 | 405 | 411 | 414 => (K::Invalid, Never),
            401 => (K::Unauthenticated, Never),
            403 => (K::Denied, Never),
            404 => (K::NotFound, Never),
            408 => (K::Timeout, Backoff),
            409 | 412 => (K::Changed, Never),
            429 | 503 => (K::Busy, Backoff),
            501 => (K::Unsupported, Never),
            507 => (K::NoSpace, Never),
            500..=599 => (K::Io, Backoff),
            _ => (K::Invalid, Never),
        },
    }
}

/// Checks the answer to a request that S3 answers with nothing, or with a few words of XML: what sends a web page instead has
/// done nothing.
pub fn nothing(document: &[u8]) -> FaultResult<()> {
    let mut root = String::new();
    let read = xml::walk(document, |step| match step {
        Step::Open(name) if root.is_empty() => root = name.to_owned(),
        _ => {}
    });
    match (document.trim_ascii().is_empty(), read, root.as_str()) {
        (true, ..) => Ok(()),
        (_, Some(()), root) if !root.is_empty() && root != "Error" && !root.eq_ignore_ascii_case("html") => Ok(()),
        _ => Err(Fault::broken("the answer is not one of S3: is the endpoint an S3 server?")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn answer(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> Error {
        let headers = headers.iter().map(|(k, v)| (k.parse().unwrap(), v.parse().unwrap())).collect();
        Fault::answer(StatusCode::from_u16(status).unwrap(), &headers, body.as_bytes(), Some("b")).error("read")
    }

    fn coded(status: u16, code: &str, said: &str) -> Error {
        answer(status, &[], &format!("<Error><Code>{code}</Code><Message>{said}</Message></Error>"))
    }

    #[test]
    fn codes_and_what_they_mean() {
        use ErrorKind as K;
        for (status, code, kind, retry) in [
            (404, "NoSuchKey", K::NotFound, false),
            (404, "NoSuchBucket", K::DirNotFound, false),
            (403, "AccessDenied", K::Denied, false),
            (403, "InvalidAccessKeyId", K::Unauthenticated, false),
            (403, "SignatureDoesNotMatch", K::Unauthenticated, false),
            (403, "RequestTimeTooSkewed", K::Unauthenticated, false),
            (503, "SlowDown", K::Busy, true),
            (400, "RequestTimeout", K::Timeout, true),
            (500, "InternalError", K::Io, true),
            (412, "PreconditionFailed", K::Changed, false),
            (409, "ConditionalRequestConflict", K::Busy, true),
            (409, "OperationAborted", K::Busy, true),
            (400, "BadDigest", K::Corrupt, true),
            (507, "XMinioStorageFull", K::NoSpace, false),
            (501, "NotImplemented", K::Unsupported, false),
            (400, "InvalidArgument", K::Invalid, false),
        ] {
            let error = coded(status, code, "words");
            assert_eq!((error.kind(), error.retry() != Retry::Never), (kind, retry), "{code}");
        }
    }

    #[test]
    fn a_status_alone_has_a_meaning() {
        use ErrorKind as K;
        for (status, kind) in [(403, K::Denied), (412, K::Changed), (503, K::Busy), (502, K::Io)] {
            assert_eq!(answer(status, &[], "").kind(), kind, "{status}");
            assert_eq!(answer(status, &[], "<html>no").kind(), kind, "{status}");
        }
        assert_eq!(answer(404, &[], "").kind(), K::NotFound);
        let page = answer(404, &[], "<html>no");
        assert_eq!((page.kind(), page.retry()), (K::Invalid, Retry::Never));
        let message = "the server answered 404, but not as S3 does: is the endpoint an S3 server?";
        assert_eq!(page.message(), message);
    }

    #[test]
    fn messages() {
        for (status, code, said, message) in [
            (404, "NoSuchBucket", "x", "read: bucket b does not exist"),
            (403, "AccessDenied", "Access Denied.", "read: Access Denied (AccessDenied)"),
            (
                403,
                "SignatureDoesNotMatch",
                "The request signature we calculated does not match …",
                "read: the server doesn't accept our signature (SignatureDoesNotMatch): correct secret_access_key with haul \
                 config, and see that the clock is right",
            ),
            (
                403,
                "InvalidAccessKeyId",
                "No such key.",
                "read: the server doesn't know our access key (InvalidAccessKeyId): correct access_key_id with haul config",
            ),
            (
                403,
                "RequestTimeTooSkewed",
                "x",
                "read: this machine's clock differs too much from the server's (RequestTimeTooSkewed): set the clock",
            ),
            (
                400,
                "AuthorizationHeaderMalformed",
                "The region is wrong.",
                "read: The region is wrong (AuthorizationHeaderMalformed): correct region with haul config",
            ),
            (
                301,
                "PermanentRedirect",
                "x",
                "read: bucket b is served by another endpoint (PermanentRedirect): set region and endpoint with haul config",
            ),
            (401, "", "", "read: the server answered 401: set access_key_id and secret_access_key with haul config"),
            (500, "InternalError", "We\nfailed", "read: We failed (InternalError)"),
        ] {
            assert_eq!(coded(status, code, said).to_string(), message);
        }
        assert_eq!(answer(500, &[], "").to_string(), "read: the server answered 500");
        assert_eq!(answer(403, &[], "").to_string(), "read: the server answered 403");
    }

    #[test]
    fn retry_after_is_honoured() {
        let error = answer(503, &[("retry-after", "7")], "<Error><Code>SlowDown</Code></Error>");
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Busy, Retry::After(Duration::from_secs(7))));
    }

    #[test]
    fn an_html_page_is_no_empty_answer() {
        assert!(nothing(b"").is_ok() && nothing(b"\n").is_ok());
        assert!(nothing(b"<CreateBucketResponse><Bucket>b</Bucket></CreateBucketResponse>").is_ok());
        for page in [&b"<html><body>Log in</body></html>"[..], b"<!doctype html><p>Log in", b"Welcome", b"<Error/>"] {
            assert!(nothing(page).is_err(), "{}", page.escape_ascii());
        }
    }
}
