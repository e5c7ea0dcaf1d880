//! Upload sessions: in order, or of pieces in any order.

use super::Refusal;
use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const BLOCK: u64 = 4 << 20;
const MOST: usize = 150 << 20;

#[derive(Debug, Default)]
pub struct Sessions {
    all: BTreeMap<String, Session>,
}

#[derive(Debug, Default)]
struct Session {
    concurrent: bool,
    closed: bool,
    pieces: BTreeMap<u64, Bytes>,
}

impl Session {
    fn end(&self) -> u64 {
        self.pieces.iter().map(|(at, piece)| at + piece.len() as u64).max().unwrap_or(0)
    }

    /// All of it, where no piece is missing.
    fn whole(&self) -> Option<Bytes> {
        if self.pieces.len() == 1 {
            return self.pieces.get(&0).cloned();
        }
        let mut whole = BytesMut::new();
        for (at, piece) in &self.pieces {
            if *at != whole.len() as u64 {
                return None;
            }
            whole.extend_from_slice(piece);
        }
        Some(whole.freeze())
    }
}

impl Sessions {
    pub fn start(&mut self, argument: &Value, body: Bytes) -> Result<Value, Refusal> {
        let kind = argument["session_type"][".tag"].as_str().or(argument["session_type"].as_str());
        let (concurrent, close) = (kind == Some("concurrent"), argument["close"].as_bool() == Some(true));
        if concurrent && !body.is_empty() {
            return Err("concurrent_session_data_not_allowed");
        }
        if concurrent && close {
            return Err("concurrent_session_close_not_allowed");
        }
        if body.len() > MOST {
            return Err("payload_too_large");
        }
        // As long as the service's.
        let id = format!("pid_upload_session:{:049}", self.all.len());
        let mut pieces = BTreeMap::new();
        if !body.is_empty() {
            pieces.insert(0, body);
        }
        self.all.insert(id.clone(), Session { concurrent, closed: close, pieces });
        Ok(json!({"session_id": id}))
    }

    fn of(&mut self, cursor: &Value) -> Result<(&mut Session, u64), Refusal> {
        let session = self.all.get_mut(cursor["session_id"].as_str().unwrap_or_default()).ok_or("not_found")?;
        Ok((session, cursor["offset"].as_u64().unwrap_or(0)))
    }

    /// The offset at which a request's session continues.
    pub fn end(&self, argument: &Value) -> Option<u64> {
        Some(self.all.get(argument["cursor"]["session_id"].as_str()?)?.end())
    }

    pub fn append(&mut self, argument: &Value, body: Bytes) -> Result<Value, Refusal> {
        let (session, offset) = self.of(&argument["cursor"])?;
        let close = argument["close"].as_bool() == Some(true);
        if session.closed {
            return Err("closed");
        }
        if body.len() > MOST {
            return Err("payload_too_large");
        }
        if session.concurrent {
            if !offset.is_multiple_of(BLOCK) && !body.is_empty() {
                return Err("concurrent_session_invalid_offset");
            }
            if !close && !(body.len() as u64).is_multiple_of(BLOCK) {
                return Err("concurrent_session_invalid_data_size");
            }
        } else if offset != session.end() {
            return Err("incorrect_offset");
        }
        if !body.is_empty() {
            session.pieces.insert(offset, body);
        }
        session.closed = close;
        Ok(Value::Null)
    }

    /// The content of a session that ends.
    pub fn finish(&mut self, argument: &Value, body: Bytes, of_batch: bool) -> Result<Bytes, Refusal> {
        let (session, offset) = self.of(&argument["cursor"]).map_err(|_| "lookup_failed/not_found")?;
        if session.concurrent {
            if !body.is_empty() {
                return Err("concurrent_session_data_not_allowed");
            }
            if !session.closed {
                return Err("concurrent_session_not_closed");
            }
        } else if of_batch && !session.closed {
            return Err("lookup_failed/not_closed");
        }
        if offset != session.end() {
            let missing =
                if session.concurrent { "concurrent_session_missing_data" } else { "lookup_failed/incorrect_offset" };
            return Err(missing);
        }
        if !body.is_empty() {
            session.pieces.insert(offset, body);
        }
        session.closed = true;
        session.whole().or_else(|| session.pieces.is_empty().then(Bytes::new)).ok_or("concurrent_session_missing_data")
    }
}
