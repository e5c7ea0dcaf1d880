//! Answers, and refusals as Google words them.

use crate::serve::Body;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

/// An answer to be.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// Headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Bytes,
}

impl Reply {
    /// Without a body.
    pub fn empty(status: u16) -> Reply {
        Reply { status, headers: Vec::new(), body: Bytes::new() }
    }

    /// Success, with facts.
    pub fn json(value: Value) -> Reply {
        let headers = vec![("content-type", "application/json; charset=UTF-8".to_owned())];
        Reply { status: 200, headers, body: value.to_string().into() }
    }

    /// As it is sent.
    pub fn build(self) -> Response<Body> {
        let mut response = Response::new(Full::new(self.body).map_err(|e| match e {}).boxed_unsync());
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        for (name, value) in self.headers {
            if let Ok(value) = value.parse() {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

/// A refusal as Google words them.
pub fn refuse(status: u16, reason: &str, message: &str) -> Reply {
    let error = json!({ "code": status, "message": message, "errors": [
        { "domain": "global", "reason": reason, "message": message }
    ] });
    Reply { status, ..Reply::json(json!({ "error": error })) }
}
