//! Several requests in one (`multipart/mixed`): each part is a request, each part of the answer an answer.

use super::{
    State,
    serve::{Refusal, Reply, SimRequest, refuse},
};
use bytes::Bytes;
use hyper::{HeaderMap, Method, header::HeaderName};
use std::fmt::Write as _;

/// Requests that one may have.
const MOST: usize = 100;
const BOUNDARY: &str = "batch_of-answers";

/// Answers them, one after the other.
///
/// Errors: it can't be read, or is of too many.
pub fn answer(state: &mut State, sim_request: &SimRequest) -> Result<Reply, Refusal> {
    let parts = parts(sim_request).ok_or_else(|| refuse(400, "badRequest", "Failed to parse batch request"))?;
    if parts.len() > MOST {
        return Err(refuse(400, "badRequest", &format!("The batch request has more than {MOST} calls.")));
    }
    let mut text = String::new();
    for Part { id, method, target, mut headers, body } in parts {
        for (name, value) in &sim_request.headers {
            if !name.as_str().starts_with("content-") && !headers.contains_key(name) {
                headers.append(name.clone(), value.clone());
            }
        }
        let reply = state.one_of_batch(&SimRequest::new(method, &target, headers, body));
        let _ = write!(text, "--{BOUNDARY}\r\nContent-Type: application/http\r\n");
        if let Some(id) = id {
            let _ = write!(text, "Content-ID: <response-{id}>\r\n");
        }
        let status = http::StatusCode::from_u16(reply.status).unwrap_or_default();
        let body: Vec<u8> = reply.body.concat();
        let words = status.canonical_reason().unwrap_or("Unknown");
        let _ = write!(text, "\r\nHTTP/1.1 {} {words}\r\n", reply.status);
        for (name, value) in &reply.headers {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        let _ = write!(text, "Content-Length: {}\r\n\r\n{}\r\n", body.len(), String::from_utf8_lossy(&body));
    }
    let _ = write!(text, "--{BOUNDARY}--\r\n");
    Ok(Reply::text(200, &format!("multipart/mixed; boundary={BOUNDARY}"), text))
}

struct Part {
    /// Without its brackets.
    id: Option<String>,
    method: Method,
    target: String,
    headers: HeaderMap,
    body: Bytes,
}

fn parts(sim_request: &SimRequest) -> Option<Vec<Part>> {
    let boundary =
        sim_request.header("content-type")?.split("boundary=").nth(1)?.split(';').next()?.trim().trim_matches('"');
    let text = std::str::from_utf8(&sim_request.body).ok()?.replace("\r\n", "\n");
    let line = format!("--{boundary}");
    let mut pieces = text.split(&line);
    pieces.next()?;
    let mut parts = Vec::new();
    for piece in pieces {
        if piece.starts_with("--") {
            return Some(parts);
        }
        parts.push(part(piece.strip_prefix('\n')?)?);
    }
    // Its end is missing.
    None
}

fn part(text: &str) -> Option<Part> {
    let (outer, inner) = text.split_once("\n\n")?;
    let outer = headers(outer)?;
    let kind = outer.get("content-type")?.to_str().ok()?;
    if !kind.eq_ignore_ascii_case("application/http") {
        return None;
    }
    let id = outer.get("content-id").and_then(|id| id.to_str().ok());
    let id = id.map(|id| id.trim_start_matches('<').trim_end_matches('>').to_owned());
    let (head, body) = inner.split_once("\n\n").unwrap_or((inner, ""));
    let (first, rest) = head.split_once('\n').unwrap_or((head, ""));
    let mut words = first.split(' ');
    let (method, target) = (words.next()?.parse().ok()?, words.next()?);
    // Google's own client names the whole address.
    let target = match target.split_once("://") {
        Some((_, rest)) => &rest[rest.find('/')?..],
        None => target,
    };
    let body = Bytes::from(body.trim_end_matches('\n').to_owned());
    Some(Part { id, method, target: target.to_owned(), headers: headers(rest)?, body })
}

fn headers(text: &str) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':')?;
        headers.append(HeaderName::from_bytes(name.trim().as_bytes()).ok()?, value.trim().parse().ok()?);
    }
    Some(headers)
}
