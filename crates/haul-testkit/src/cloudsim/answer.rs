//! What requests come to: an answer, or a refusal in S3's words.

use super::{space::Piece, xml};
use bytes::Bytes;
use hyper::{
    HeaderMap, StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};
use std::borrow::Cow;

/// What an operation comes to.
pub type OperationResult = Result<Answer, Refusal>;

/// What an operation answers.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// The body.
    pub pieces: Vec<Piece>,
}

impl Answer {
    /// Without a body.
    pub fn new(status: StatusCode) -> Answer {
        Answer { status, headers: HeaderMap::new(), pieces: Vec::new() }
    }

    /// With a document.
    pub fn xml(status: StatusCode, text: String) -> Answer {
        let mut answer = Answer::new(status);
        answer.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        answer.pieces.push(Piece::Bytes(Bytes::from(text)));
        answer
    }

    /// With a header whose value is known to be legal (dropped otherwise).
    pub fn with(mut self, name: &'static str, value: impl AsRef<str>) -> Answer {
        if let Ok(value) = HeaderValue::from_str(value.as_ref()) {
            self.headers.insert(name, value);
        }
        self
    }
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status.
    pub status: StatusCode,
    /// S3's code.
    pub code: &'static str,
    /// For people.
    pub message: Cow<'static, str>,
    /// Further elements of the document.
    pub more: Vec<(&'static str, String)>,
    /// A header, of answers without a document too.
    pub header: Option<(&'static str, String)>,
}

impl Refusal {
    /// With a status, S3's code and a message.
    pub const fn new(status: StatusCode, code: &'static str, message: &'static str) -> Refusal {
        Refusal { status, code, message: Cow::Borrowed(message), more: Vec::new(), header: None }
    }

    /// Of status 400, with S3's code and a message.
    pub fn bad(code: &'static str, message: String) -> Refusal {
        Refusal { message: Cow::Owned(message), ..Refusal::new(StatusCode::BAD_REQUEST, code, "") }
    }

    /// With one element more.
    pub fn with(mut self, element: &'static str, value: &str) -> Refusal {
        self.more.push((element, value.to_owned()));
        self
    }

    /// As an answer; `HEAD` gets no body.
    pub fn answer(self, has_body: bool) -> Answer {
        let mut answer = if has_body { self.document() } else { Answer::new(self.status) };
        if let Some((name, value)) = self.header {
            answer = answer.with(name, value);
        }
        answer
    }

    fn document(&self) -> Answer {
        let mut text = format!("{}<Error><Code>{}</Code><Message>", xml::HEAD, self.code);
        xml::escape(&self.message, &mut text);
        text.push_str("</Message>");
        for (name, value) in &self.more {
            text += &format!("<{name}>");
            xml::escape(value, &mut text);
            text += &format!("</{name}>");
        }
        text.push_str("<RequestId>cloudsim</RequestId></Error>");
        Answer::xml(self.status, text)
    }
}

/// What S3 says when it fails.
pub const INTERNAL: Refusal =
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "We encountered an internal error.");
/// What isn't known here.
pub const NOT_IMPLEMENTED: Refusal = Refusal::new(
    StatusCode::NOT_IMPLEMENTED,
    "NotImplemented",
    "A header you provided implies functionality that is not implemented.",
);
/// A request that can't be read.
pub const MALFORMED: Refusal = Refusal::new(StatusCode::BAD_REQUEST, "MalformedXML", "The document can't be read.");
/// A parameter or header that makes no sense.
pub const ARGUMENT: Refusal = Refusal::new(StatusCode::BAD_REQUEST, "InvalidArgument", "A parameter makes no sense.");
