//! Several requests in one (`multipart/mixed`), as services take them that delete many files at once: each part is a request, each part of
//! the answer an answer. Pure.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::fmt::Write as _;

/// The type of a body of several requests.
pub const TYPE: &str = "multipart/mixed; boundary=haul_several-requests";
const BOUNDARY: &str = "haul_several-requests";

/// The answer to one of them.
#[derive(Debug, PartialEq)]
pub struct BatchResponse {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// Requests to delete these addresses (path and query), each with headers of its own.
pub fn deletes(requests: impl IntoIterator<Item = (String, HeaderMap)>) -> Bytes {
    let mut text = String::new();
    for (number, (target, headers)) in requests.into_iter().enumerate() {
        let _ = write!(text, "--{BOUNDARY}\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n");
        let _ = write!(text, "Content-ID: {number}\r\n\r\nDELETE {target} HTTP/1.1\r\n");
        for (name, value) in &headers {
            let _ = write!(text, "{name}: {}\r\n", String::from_utf8_lossy(value.as_bytes()));
        }
        text.push_str("Content-Length: 0\r\n\r\n\r\n");
    }
    let _ = write!(text, "--{BOUNDARY}--\r\n");
    text.into()
}

/// The answers of a batch of `count` requests, in request order. `None` unless every request has one: then the fate of each is unknown.
pub fn answers(headers: &HeaderMap, body: &[u8], count: usize) -> Option<Vec<BatchResponse>> {
    let kind = headers.get(http::header::CONTENT_TYPE)?.to_str().ok()?;
    let boundary = kind.strip_prefix("multipart/mixed")?.split("boundary=").nth(1)?;
    let line = format!("--{}", boundary.split(';').next()?.trim().trim_matches('"'));
    let text = std::str::from_utf8(body).ok()?.replace("\r\n", "\n");
    let mut found: Vec<Option<BatchResponse>> = (0..count).map(|_| None).collect();
    let mut parts = text.split(&*line);
    parts.next()?;
    let mut at = 0;
    loop {
        // Without its last line it was cut.
        let part = parts.next()?;
        if part.starts_with("--") {
            return found.into_iter().collect();
        }
        let (head, inner) = part.trim_start_matches('\n').split_once("\n\n")?;
        let id = read_headers(head)?.get("content-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
        // Google says `<response-7>`, Microsoft `7`; some say nothing and keep the order.
        let number = match id {
            Some(id) => id.trim_matches(['<', '>']).trim_start_matches("response-").parse().ok()?,
            None => at,
        };
        at += 1;
        let slot = found.get_mut(number).filter(|slot| slot.is_none())?;
        *slot = Some(one(inner)?);
    }
}

fn one(text: &str) -> Option<BatchResponse> {
    let (head, body) = text.split_once("\n\n").unwrap_or((text.trim_end_matches('\n'), ""));
    let (first, rest) = head.split_once('\n').unwrap_or((head, ""));
    let status = first.strip_prefix("HTTP/")?.split(' ').nth(1)?;
    let status = StatusCode::from_bytes(status.as_bytes()).ok()?;
    Some(BatchResponse {
        status,
        headers: read_headers(rest)?,
        body: Bytes::from(body.trim_end_matches('\n').to_owned()),
    })
}

fn read_headers(text: &str) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':')?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_str(value.trim()).ok()?);
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers() -> HeaderMap {
        let kind = HeaderValue::from_static("multipart/mixed; boundary=\"b\"");
        [(http::header::CONTENT_TYPE, kind)].into_iter().collect()
    }

    const TWO: &str = "--b\r\nContent-Type: application/http\r\nContent-ID: <response-1>\r\n\r\nHTTP/1.1 404 Not Found\r\n\
        Content-Type: application/json\r\n\r\n{\"error\":\r\n\r\n1}\r\n\r\n--b\r\nContent-Type: application/http\r\nContent-ID: 0\r\n\r\n\
        HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n\r\n--b--\r\n";

    #[test]
    fn each_request_has_its_answer() {
        let found = answers(&headers(), TWO.as_bytes(), 2).unwrap();
        assert_eq!(found.iter().map(|answer| answer.status.as_u16()).collect::<Vec<_>>(), [204, 404]);
        assert_eq!(&found[1].body[..], b"{\"error\":\n\n1}");
        let unnamed = TWO.replace("Content-ID: 0\r\n", "").replace("Content-ID: <response-1>\r\n", "");
        let found = answers(&headers(), unnamed.as_bytes(), 2).unwrap();
        assert_eq!(found.iter().map(|answer| answer.status.as_u16()).collect::<Vec<_>>(), [404, 204]);
    }

    #[test]
    fn a_batch_response_must_answer_every_request() {
        for (bad, count) in [
            (TWO.to_owned(), 3),
            (TWO.to_owned(), 1),
            (TWO.replace("--b--", ""), 2),
            (TWO.replace("<response-1>", "<response-0>"), 2),
            (TWO.replace("<response-1>", "<x>"), 2),
            (TWO.replace("HTTP/1.1 404", "404"), 2),
            (String::new(), 0),
        ] {
            assert_eq!(answers(&headers(), bad.as_bytes(), count), None, "{count} {bad}");
        }
        assert_eq!(answers(&HeaderMap::new(), TWO.as_bytes(), 2), None);
    }

    #[test]
    fn requests_stand_one_after_another() {
        let condition = [(http::header::IF_MATCH, HeaderValue::from_static("\"x\""))];
        let text =
            deletes([("/a".to_owned(), condition.into_iter().collect()), ("/b?c=d".to_owned(), HeaderMap::new())]);
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert!(
            text.contains("Content-ID: 0\r\n\r\nDELETE /a HTTP/1.1\r\nif-match: \"x\"\r\nContent-Length: 0\r\n\r\n"),
            "{text}"
        );
        assert!(text.contains("Content-ID: 1\r\n\r\nDELETE /b?c=d HTTP/1.1\r\n"), "{text}");
        assert!(text.ends_with("--haul_several-requests--\r\n"), "{text}");
    }
}
