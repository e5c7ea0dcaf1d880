//! Upload sessions: the service says how long parts are, they come in any order, and none comes twice.

use super::drive::No;
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The service takes no smaller file in parts.
const LEAST: u64 = 20_000_000;

#[derive(Debug, Default)]
pub struct Sessions {
    all: BTreeMap<String, Session>,
    count: u64,
}

#[derive(Debug)]
pub struct Session {
    pub place: UploadTarget,
    pub total: u64,
    part: u64,
    pieces: BTreeMap<u64, Piece>,
    /// Commits that were asked for.
    pub commits: usize,
}

/// Where the file goes.
#[derive(Clone, Debug)]
pub enum UploadTarget {
    New { parent: String, name: String },
    Version(String),
}

#[derive(Clone, Debug)]
struct Piece {
    id: String,
    bytes: Bytes,
    sha1: String,
}

impl Piece {
    fn value(&self, offset: u64) -> Value {
        json!({"part_id": self.id, "offset": offset, "size": self.bytes.len(), "sha1": self.sha1})
    }
}

pub const GONE: No = (404, "not_found");
const BAD: No = (400, "bad_request");

impl Sessions {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn create(&mut self, place: UploadTarget, total: u64, part: u64) -> Result<String, No> {
        if total < LEAST {
            return Err((400, "upload_session_file_size_too_small"));
        }
        self.count += 1;
        let id = format!("{:032X}", self.count * 7919);
        self.all.insert(id.clone(), Session { place, total, part, pieces: BTreeMap::new(), commits: 0 });
        Ok(id)
    }

    pub fn get(&mut self, id: &str) -> Result<&mut Session, No> {
        self.all.get_mut(id).ok_or(GONE)
    }

    pub fn remove(&mut self, id: &str) -> Result<Session, No> {
        self.all.remove(id).ok_or(GONE)
    }

    pub fn value(&mut self, id: &str, base: &str) -> Result<Value, No> {
        let session = self.get(id)?;
        let at = format!("{base}/files/upload_sessions/{id}");
        Ok(json!({
            "type": "upload_session", "id": id, "session_expires_at": "2999-01-01T00:00:00Z",
            "part_size": session.part, "total_parts": session.total.div_ceil(session.part),
            "num_parts_processed": session.pieces.len(),
            "session_endpoints": {
                "upload_part": at, "status": at, "abort": at, "list_parts": format!("{at}/parts"),
                "commit": format!("{at}/commit"), "log_event": format!("{at}/log"),
            },
        }))
    }
}

impl Session {
    /// Takes a part, `range` being `bytes 0-7/100`.
    pub fn take(
        &mut self,
        range: &str,
        digest: &str,
        bytes: Bytes,
        sha1: &str,
        sha1_base64: &str,
    ) -> Result<Value, No> {
        let span = || {
            let (span, total) = range.strip_prefix("bytes ")?.split_once('/')?;
            let (from, to) = span.split_once('-')?;
            Some((from.parse::<u64>().ok()?, to.parse::<u64>().ok()? + 1, total.parse::<u64>().ok()?))
        };
        let (from, to, total) = span().ok_or(BAD)?;
        if total != self.total || to > total || to - from != bytes.len() as u64 {
            return Err((416, "range_invalid"));
        }
        if digest != format!("sha={sha1_base64}") {
            return Err((400, "bad_digest"));
        }
        if !from.is_multiple_of(self.part) || to != (from + self.part).min(total) {
            return Err((400, "part_size_mismatch"));
        }
        if self.pieces.contains_key(&from) {
            return Err((416, "range_overlaps_existing_part"));
        }
        let piece = Piece { id: format!("{:08X}", from / self.part + 1), bytes, sha1: sha1.to_owned() };
        let value = piece.value(from);
        self.pieces.insert(from, piece);
        Ok(json!({ "part": value }))
    }

    pub fn parts(&self, offset: usize, limit: usize) -> Value {
        let all = self.pieces.iter().skip(offset).take(limit);
        let entries: Vec<Value> = all.map(|(at, piece)| piece.value(*at)).collect();
        json!({"entries": entries, "offset": offset, "limit": limit, "total_count": self.pieces.len()})
    }

    /// The content, if all of it is there and these are its parts.
    pub fn whole(&self, parts: &Value) -> Result<Bytes, No> {
        let parts = parts.as_array().ok_or(BAD)?;
        let same = |((at, piece), listed): ((&u64, &Piece), &Value)| {
            let sha1 = listed["sha1"].as_str();
            listed["part_id"] == piece.id.as_str()
                && listed["offset"] == *at
                && listed["size"] == piece.bytes.len()
                && sha1.is_none_or(|sha1| sha1 == piece.sha1)
        };
        let size: usize = self.pieces.values().map(|piece| piece.bytes.len()).sum();
        if parts.len() != self.pieces.len() || !self.pieces.iter().zip(parts).all(same) || size as u64 != self.total {
            return Err((400, "parts_mismatch"));
        }
        Ok(self.pieces.values().map(|piece| &piece.bytes[..]).collect::<Vec<_>>().concat().into())
    }
}
