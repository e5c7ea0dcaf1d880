//! Upload sessions: bytes in order, in multiples of 256 KiB but for the end.

use super::{
    State,
    reply::{Reply, refuse},
};
use bytes::Bytes;
use serde_json::Value;
use std::collections::BTreeMap;

/// All but the last request bring a multiple of this, in bytes.
const GRANULE: u64 = 256 << 10;

/// So the service words it when a day's bytes are used up.
pub const DAY: &str = "User rate limit exceeded.";

/// What an upload becomes.
#[derive(Clone, Debug)]
pub struct Goal {
    /// The file that is replaced; `None` for a new one.
    pub id: Option<String>,
    /// Its metadata, as the request that began it gave them.
    pub facts: Value,
    /// The query of the request that began it.
    pub query: BTreeMap<String, String>,
    /// The content's type.
    pub mime: String,
}

#[derive(Debug)]
struct Session {
    goal: Goal,
    bytes: Vec<u8>,
    /// The answer to the last byte.
    done: Option<Value>,
}

/// Those that are under way.
#[derive(Debug, Default)]
pub struct Sessions(BTreeMap<String, Session>);

impl Sessions {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Begins one; gives its id.
    pub fn begin(&mut self, number: u64, goal: Goal) -> String {
        let id = format!("AHsession{number}");
        self.0.insert(id.clone(), Session { goal, bytes: Vec::new(), done: None });
        id
    }

    /// Ends one; false when there is none.
    pub fn cancel(&mut self, id: &str) -> bool {
        self.0.remove(id).is_some()
    }
}

/// `bytes 0-9/100`: from, to (not included), the whole.
pub(crate) type Span = (Option<(u64, u64)>, Option<u64>);

pub(crate) fn span(header: &str) -> Option<Span> {
    let (range, whole) = header.strip_prefix("bytes ")?.split_once('/')?;
    let whole = if whole == "*" { None } else { Some(whole.parse().ok()?) };
    if range == "*" {
        return Some((None, whole));
    }
    let (first, last) = range.split_once('-')?;
    Some((Some((first.parse().ok()?, last.parse::<u64>().ok()? + 1)), whole))
}

/// Takes bytes of a session, or answers how many it has.
pub(super) fn put(state: &mut State, id: &str, range: Option<&str>, body: Bytes) -> Reply {
    let Some(mut session) = state.sessions.0.remove(id) else {
        return refuse(404, "notFound", "Upload session not found");
    };
    if let Some(done) = &session.done {
        let reply = Reply::json(done.clone());
        state.sessions.0.insert(id.to_owned(), session);
        return reply;
    }
    let len = body.len() as u64;
    let span = match range {
        Some(range) => span(range),
        // All of it at once.
        None => Some((Some((0, len)), Some(len))),
    };
    let reply = take(state, &mut session, span, &body);
    state.sessions.0.insert(id.to_owned(), session);
    reply
}

fn take(state: &mut State, session: &mut Session, span: Option<Span>, body: &[u8]) -> Reply {
    let Some((part, whole)) = span else { return refuse(400, "badContent", "Failed to parse Content-Range header") };
    if let Some((from, to)) = part {
        let has = session.bytes.len() as u64;
        let ends = whole == Some(to);
        if to - from != body.len() as u64 || from > has || whole.is_some_and(|whole| to > whole) {
            return refuse(400, "badContent", "Invalid request: the range does not follow what was received");
        }
        let new = &body[(has - from).min(to - from) as usize..];
        let keep = if ends { new.len() } else { (new.len() as u64 / GRANULE * GRANULE) as usize };
        if !state.takes(new.len() as u64) {
            return refuse(403, "userRateLimitExceeded", DAY);
        }
        state.uploaded += body.len() as u64;
        session.bytes.extend_from_slice(&new[..keep]);
    }
    let has = session.bytes.len() as u64;
    if whole == Some(has) {
        let bytes = Bytes::from(std::mem::take(&mut session.bytes));
        return match state.finish_upload(&session.goal, bytes) {
            Ok(facts) => {
                session.done = Some(facts.clone());
                Reply::json(facts)
            }
            Err(reply) => reply,
        };
    }
    let mut reply = Reply::empty(308);
    if has > 0 {
        reply.headers.push(("range", format!("bytes=0-{}", has - 1)));
    }
    reply
}
