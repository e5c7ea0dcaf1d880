//! Content that comes: by one request, or by a session that takes it in order, in multiples of 256 KiB but for the end.

use super::{
    State,
    serve::{Refusal, Reply, SimRequest, refuse},
    space::Object,
};
use crate::drivesim::{serve::related, uploads::span};
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// All but the last request bring a multiple of this, in bytes.
const GRANULE: u64 = 256 << 10;

#[derive(Clone, Debug)]
struct Goal {
    bucket: String,
    name: String,
    facts: Value,
    condition: String,
}

#[derive(Debug)]
struct Session {
    goal: Goal,
    content: Vec<Bytes>,
    has: u64,
    /// The answer to the last byte.
    done: Option<Value>,
}

/// Those that are under way.
#[derive(Debug, Default)]
pub struct Sessions(BTreeMap<String, Session>);

impl State {
    /// Answers a request that brings content, or begins or ends an upload.
    ///
    /// Errors: the refusal.
    pub fn upload(&mut self, kind: &'static str, sim_request: &SimRequest) -> Result<Reply, Refusal> {
        let id = sim_request.param("upload_id");
        match kind {
            "session.piece" | "session.state" => return self.piece(sim_request, id),
            "session.cancel" => {
                let gone = || refuse(404, "notFound", "No such upload");
                return self.sessions.0.remove(id).map(|_| Reply::empty(499)).ok_or_else(gone);
            }
            _ => {}
        }
        let below: Vec<&str> = sim_request.place().1.iter().map(String::as_str).collect();
        let ["b", bucket, "o"] = &below[..] else { return Err(refuse(404, "notFound", "Not Found")) };
        self.space.bucket(bucket)?;
        let content_type = sim_request.header("content-type").unwrap_or_default();
        let (mut facts, bytes) = match sim_request.param("uploadType") {
            "multipart" => {
                let parts = related(content_type, &sim_request.body);
                let (facts, mime, bytes) =
                    parts.ok_or_else(|| refuse(400, "badContent", "Malformed multipart body."))?;
                let mut facts: Value =
                    serde_json::from_slice(&facts).map_err(|_| refuse(400, "parseError", "Parse Error"))?;
                if facts["contentType"].is_null() {
                    facts["contentType"] = mime.into();
                }
                (facts, bytes)
            }
            "media" => (json!({ "contentType": content_type }), sim_request.body.clone()),
            "resumable" => (sim_request.facts()?, Bytes::new()),
            _ => return Err(refuse(400, "badContent", "Unknown uploadType")),
        };
        if facts["contentType"].is_null() {
            facts["contentType"] =
                sim_request.header("x-upload-content-type").unwrap_or("application/octet-stream").into();
        }
        let name = Some(sim_request.param("name")).filter(|name| !name.is_empty()).or(facts["name"].as_str());
        let name = name.ok_or_else(|| refuse(400, "required", "Required parameter: name"))?.to_owned();
        let condition = sim_request.param("ifGenerationMatch").to_owned();
        let goal = Goal { bucket: (*bucket).to_owned(), name, facts, condition };
        if kind == "session.begin" {
            let id = format!("session-{}", self.space.count());
            self.sessions.0.insert(id.clone(), Session { goal, content: Vec::new(), has: 0, done: None });
            let at = format!(
                "http://{}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={id}",
                sim_request.host()
            );
            return Ok(Reply::empty(200).with("location", at).with("x-guploader-uploadid", id));
        }
        self.came += bytes.len() as u64;
        let made = self.finish(sim_request, &goal, vec![bytes])?;
        sim_request.json_reply(&made)
    }

    fn finish(&mut self, sim_request: &SimRequest, goal: &Goal, content: Vec<Bytes>) -> Result<Value, Refusal> {
        let Goal { bucket, name, facts, condition } = goal;
        self.space.meets(bucket, name, condition)?;
        let mut object = Object::new(content, true);
        object.describe(facts, false)?;
        let object = self.space.put(bucket, name, object)?;
        Ok(object.facts(sim_request.host(), bucket, name))
    }

    fn piece(&mut self, sim_request: &SimRequest, id: &str) -> Result<Reply, Refusal> {
        let Some(mut session) = self.sessions.0.remove(id) else {
            return Err(refuse(404, "notFound", "No such upload"));
        };
        let reply = match &session.done {
            Some(done) => sim_request.json_reply(done),
            None => self.take(sim_request, &mut session),
        };
        self.sessions.0.insert(id.to_owned(), session);
        reply
    }

    fn take(&mut self, sim_request: &SimRequest, session: &mut Session) -> Result<Reply, Refusal> {
        let body = &sim_request.body;
        let len = body.len() as u64;
        let span = match sim_request.header("content-range") {
            Some(range) => span(range),
            // All of it at once.
            None => Some((Some((0, len)), Some(len))),
        };
        let bad = |why: &str| refuse(400, "badContent", why);
        let (part, whole) = span.ok_or_else(|| bad("Failed to parse Content-Range header."))?;
        if let Some((from, to)) = part {
            let has = session.has;
            if to - from != len || from > has || whole.is_some_and(|whole| to > whole) {
                return Err(bad("Invalid request: the range does not follow what was received."));
            }
            let new = body.slice((has - from).min(len) as usize..);
            let keep = if whole == Some(to) { new.len() as u64 } else { new.len() as u64 / GRANULE * GRANULE };
            self.came += len;
            session.content.push(new.slice(..keep as usize));
            session.has += keep;
        }
        if whole == Some(session.has) {
            let made = self.finish(sim_request, &session.goal, std::mem::take(&mut session.content))?;
            session.done = Some(made.clone());
            return sim_request.json_reply(&made);
        }
        // Google's client for Go, which rclone has, asks for the status in a header, since others take 308 for a redirection.
        let reply = match sim_request.header("x-guploader-no-308") {
            Some("yes") => Reply::empty(200).with("x-http-status-code-override", "308"),
            _ => Reply::empty(308),
        };
        Ok(match session.has {
            0 => reply,
            has => reply.with("range", format!("bytes=0-{}", has - 1)),
        })
    }
}
