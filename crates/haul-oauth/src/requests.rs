//! Requests of a log-in: a form, or a question with a token; and what a service says when it refuses.

use bytes::Bytes;
use haul_core::{ErrorKind, Retry};
use haul_net::{Fault, FaultResult, Http};
use haul_store::{Payload, body::Pieces};
use http::{HeaderValue, Method, Request, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

const FORM: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Sends a form and gives back the answer.
///
/// Errors: a refusal's message is the service's own word.
pub async fn post(http: &Http<Pieces>, url: &str, form: &[(&str, &str)]) -> FaultResult<Bytes> {
    post_form(http, url, form, None).await
}

/// As [`post`], with who asks in a header.
///
/// Errors: a refusal's message is the service's own word.
pub async fn post_form(
    http: &Http<Pieces>,
    url: &str,
    form: &[(&str, &str)],
    asks: Option<HeaderValue>,
) -> FaultResult<Bytes> {
    let encode = |text: &str| utf8_percent_encode(text, FORM).to_string();
    let text: Vec<String> = form.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    let body = Payload::from(Bytes::from(text.join("&")));
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(url)
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(header::ACCEPT, "application/json")
        .header(header::CONTENT_LENGTH, body.len());
    if let Some(asks) = asks {
        request = request.header(header::AUTHORIZATION, asks);
    }
    answer(http, request.body(Pieces::new(body)), url).await
}

/// Sends JSON with this token and gives back the answer.
///
/// Errors: a refusal's message is the service's own word.
pub async fn post_json(http: &Http<Pieces>, url: &str, token: HeaderValue, body: &Value) -> FaultResult<Bytes> {
    let body = Payload::from(Bytes::from(body.to_string()));
    let request = Request::builder()
        .method(Method::POST)
        .uri(url)
        .header(header::AUTHORIZATION, token)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONTENT_LENGTH, body.len())
        .body(Pieces::new(body));
    answer(http, request, url).await
}

/// The answer to a GET of an address with these headers.
///
/// Errors: a refusal's message is the service's own word.
pub async fn fetch(http: &Http<Pieces>, url: &str, headers: &[(&str, &str)]) -> FaultResult<Bytes> {
    let request =
        headers.iter().fold(Request::builder().uri(url), |request, (name, value)| request.header(*name, *value));
    answer(http, request.body(Pieces::new(Payload::default())), url).await
}

/// The service's answer to a GET of an address with this token.
///
/// Errors: a refusal's message is the service's own word.
pub async fn get(http: &Http<Pieces>, url: &str, token: HeaderValue) -> FaultResult<Bytes> {
    let request = Request::builder()
        .uri(url)
        .header(header::AUTHORIZATION, token)
        .header(header::ACCEPT, "application/json")
        .body(Pieces::new(Payload::default()));
    answer(http, request, url).await
}

/// The service's answer to an empty POST to an address with this token.
///
/// Errors: a refusal's message is the service's own word.
pub async fn post_as(http: &Http<Pieces>, url: &str, token: HeaderValue) -> FaultResult<Bytes> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(url)
        .header(header::AUTHORIZATION, token)
        .header(header::CONTENT_LENGTH, 0)
        .body(Pieces::new(Payload::default()));
    answer(http, request, url).await
}

async fn answer(http: &Http<Pieces>, request: http::Result<Request<Pieces>>, url: &str) -> FaultResult<Bytes> {
    let bad = |_| Fault::new(ErrorKind::Invalid, Retry::Never, format!("{url:?} is no address"));
    let reply = http.send(request.map_err(bad)?).await?;
    let (status, headers) = (reply.status, reply.headers.clone());
    let body = reply.bytes().await?;
    if status.is_success() {
        return Ok(body);
    }
    let output: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut fault = Fault::answer(status, &headers, None);
    // As RFC 6749, section 5.2, has it; and as services have it for other requests.
    let (word, why) = match &output["error"] {
        Value::String(word) => (Some(&**word), &output["error_description"]),
        // As Dropbox has it.
        _ if output["error_summary"].is_string() => (output["error_summary"].as_str(), &Value::Null),
        error => (error["code"].as_str().or(error["status"].as_str()), &error["message"]),
    };
    let why = why.as_str().and_then(|why| why.lines().next()).filter(|line| !line.is_empty());
    let words: Vec<&str> = word.into_iter().chain(why).collect();
    if !words.is_empty() {
        fault.message = words.join(": ");
    }
    Err(fault)
}
