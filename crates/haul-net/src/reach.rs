//! Meaning of a failed connection: whether the host may answer yet, or what the user must type. A host that has
//! answered in this run is waited for, whatever happens to its connections; one that never did gets few tries.

use crate::{
    connect,
    fault::{Fault, innermost},
    tls,
};
use bytes::Bytes;
use haul_core::{ErrorKind, Retry};
use http::{Method, Request, StatusCode, Uri, uri::Scheme};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::{
    client::legacy::{Client, Error},
    rt::TokioExecutor,
};
use std::{io, time::Duration};

/// So long after a request without an answer an `https` host that has never answered is asked whether it speaks TLS at all: a
/// handshake takes far less, and a server that waits for the end of a request line waits for ever.
pub const SILENCE: Duration = Duration::from_secs(4);

/// That question takes no longer.
const ASK_WITHIN: Duration = Duration::from_secs(3);

/// Meaning of a request's failure; `answered` when the host has answered before.
pub async fn fault(error: Error, uri: &Uri, answered: bool, connections: &connect::ConnectSettings) -> Box<Fault> {
    let host = uri.authority().map_or("the server", |a| a.as_str());
    let tls = uri.scheme() == Some(&Scheme::HTTPS);
    let text = innermost(&error);
    let never = |message: String| Fault::new(ErrorKind::Unreachable, Retry::Never, message);
    match find::<rustls::Error>(&error) {
        Some(rustls::Error::InvalidCertificate(why)) => {
            return never(format!("{host} can't be trusted: {}", tls::advice(why)));
        }
        Some(rustls::Error::InvalidMessage(_)) if !answered => return no_tls(host),
        Some(other) if !answered => return never(format!("{host} and haul can't agree on TLS: {other}")),
        _ => {}
    }
    if let Some(proxy) = find::<connect::ProxyFailed>(&error) {
        return Fault::new(ErrorKind::Unreachable, proxy.retry(), proxy.to_string());
    }
    if !answered && !is_missing(&error) && speaks_other(uri, connections).await {
        return if tls { no_tls(host) } else { needs_tls(host) };
    }
    if !error.is_connect() {
        let mut fault = Fault::broken(format!("the connection to {host} broke: {text}"));
        fault.dropped = true;
        return fault;
    }
    let refused = is_refused(&error);
    let mut fault = if answered {
        Fault::broken(format!("can't connect to {host}: {text}"))
    } else {
        let message = if is_unknown(&error) {
            format!("can't find the host {host}: check the endpoint with haul config, and the network")
        } else if refused {
            format!("nothing listens at {host}: check the endpoint's host and port with haul config")
        } else {
            format!("can't connect to {host}: check the endpoint with haul config, and the network ({text})")
        };
        Fault::new(ErrorKind::Unreachable, Retry::Backoff, message)
    };
    fault.refused = refused;
    fault
}

/// The fault of a host that has answered, but to which no connection has come about for so long that it isn't waited for any more.
pub fn gone(error: &Error, host: &str, missed: Duration) -> Box<Fault> {
    let (text, missed) = (innermost(error), missed.as_secs());
    let message =
        format!("{host} can't be connected to any more, for {missed} seconds now ({text}): run this again when it can");
    Fault::new(ErrorKind::Unreachable, Retry::Never, message)
}

/// The fault of a host that answers, but speaks no TLS.
pub fn no_tls(host: &str) -> Box<Fault> {
    let message = format!("{host} does not speak TLS: write the endpoint as http://{host}");
    Fault::new(ErrorKind::Unreachable, Retry::Never, message)
}

/// The fault of a host that wants TLS.
pub fn needs_tls(host: &str) -> Box<Fault> {
    let message = format!("{host} speaks TLS only: write the endpoint as https://{host}");
    Fault::new(ErrorKind::Unreachable, Retry::Never, message)
}

/// True for the answer of a server (Go's, nginx, Apache) that wants TLS and was asked without.
pub fn wants_tls(status: StatusCode, body: &[u8]) -> bool {
    let phrases =
        [&b"HTTP request to an HTTPS server"[..], b"sent to HTTPS port", b"speaking plain HTTP to an SSL-enabled"];
    status == StatusCode::BAD_REQUEST && phrases.iter().any(|text| body.windows(text.len()).any(|part| part == *text))
}

/// True when the same host answers on the same port with TLS where the address says none, or without where it says TLS.
pub async fn speaks_other(uri: &Uri, connections: &connect::ConnectSettings) -> bool {
    let tls = uri.scheme() == Some(&Scheme::HTTPS);
    let (Some(host), Ok(blind)) = (uri.authority(), tls::blind()) else { return false };
    let scheme = if tls { "http" } else { "https" };
    let request = Request::builder().method(Method::GET).uri(format!("{scheme}://{host}/")).body(Empty::<Bytes>::new());
    let Ok(request) = request else { return false };
    let client: Client<_, Empty<Bytes>> =
        Client::builder(TokioExecutor::new()).build(connections.within(ASK_WITHIN).connector(blind));
    let ask = async {
        match client.request(request).await {
            Ok(answer) => {
                let (head, body) = answer.into_parts();
                let body = Limited::new(body, 1 << 16).collect().await.map(|b| b.to_bytes()).unwrap_or_default();
                !wants_tls(head.status, &body)
            }
            // A TLS connection came about; whatever happened on it then.
            Err(error) => !tls && !error.is_connect(),
        }
    };
    tokio::time::timeout(ASK_WITHIN, ask).await.unwrap_or(false)
}

/// Nobody is there who could speak anything.
fn is_missing(error: &Error) -> bool {
    is_refused(error) || is_unknown(error) || error.is_connect() && innermost(error).contains("timed out")
}

fn is_refused(error: &Error) -> bool {
    error.is_connect() && find::<io::Error>(error).is_some_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
}

fn is_unknown(error: &Error) -> bool {
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(e) = next {
        if e.to_string().starts_with("dns error") {
            return true;
        }
        next = e.source();
    }
    false
}

/// The first error of this type in the chain. (An `io::Error` shows the source of the error that it holds, not the error.)
fn find<'a, E: std::error::Error + 'static>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a E> {
    if let Some(found) = error.downcast_ref::<E>() {
        return Some(found);
    }
    let held = error.downcast_ref::<io::Error>().and_then(|io| io.get_ref());
    held.and_then(|held| find(held)).or_else(|| find(error.source()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_want_tls_say_so() {
        let bad = StatusCode::BAD_REQUEST;
        assert!(wants_tls(bad, b"Client sent an HTTP request to an HTTPS server.\n"));
        assert!(wants_tls(bad, b"<center>The plain HTTP request was sent to HTTPS port</center>"));
        assert!(!wants_tls(bad, b"<Error><Code>InvalidArgument</Code></Error>"));
        assert!(!wants_tls(StatusCode::OK, b"sent to HTTPS port"));
    }

    #[test]
    fn an_error_is_found_however_deep_it_is_held() {
        let deep = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, rustls::Error::DecryptError));
        assert_eq!(find::<rustls::Error>(&deep), Some(&rustls::Error::DecryptError));
        assert!(find::<rustls::Error>(&io::Error::other("no")).is_none());
    }
}
