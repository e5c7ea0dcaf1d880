//! Upload sessions: begun with content, begun many at once, and sent the content of many by one request.

use crate::{options::BLOCK, service::Service};
use haul_core::{
    Algo, Result,
    hash::{hash_bytes, of_dropbox_blocks},
};
use haul_net::Fault;
use haul_oauth::ServiceResult;
use haul_store::{Payload, disk};
use serde::Deserialize;
use serde_json::{Value, json};

/// Characters of a request's argument at most: it goes in a header, and servers and what is before them take 8 KiB of one with certainty.
pub const ARGUMENT: usize = 7 << 10;

#[derive(Deserialize)]
struct Started {
    session_id: String,
}

#[derive(Deserialize)]
struct AllStarted {
    session_ids: Vec<String>,
}

#[derive(Deserialize)]
struct Appended {
    entries: Vec<Value>,
}

/// The hashes of a payload's blocks, concatenated.
///
/// Errors: reading the payload failed.
pub async fn blocks(payload: &Payload) -> Result<Vec<u8>> {
    let payload = payload.clone();
    disk::run(move || {
        let (mut digests, mut block) = (Vec::new(), Vec::new());
        let seal = |block: &mut Vec<u8>, digests: &mut Vec<u8>| {
            digests.extend_from_slice(hash_bytes(&[Algo::Sha256], block).get(Algo::Sha256).unwrap_or_default());
            block.clear();
        };
        payload.each(|mut bytes| {
            while !bytes.is_empty() {
                let (now, rest) = bytes.split_at(bytes.len().min(BLOCK as usize - block.len()));
                block.extend_from_slice(now);
                bytes = rest;
                if block.len() as u64 == BLOCK {
                    seal(&mut block, &mut digests);
                }
            }
        })?;
        if !block.is_empty() {
            seal(&mut block, &mut digests);
        }
        Ok(digests)
    })
    .await
}

/// The hash of what has these blocks, as the service writes it.
pub fn hex(blocks: &[u8]) -> String {
    of_dropbox_blocks(blocks).hex(Algo::Dropbox).unwrap_or_default()
}

/// Begins a session with this content.
pub async fn start(service: &Service, question: &Value, payload: Payload) -> ServiceResult<String> {
    let call = service.send("files/upload_session/start", question, payload);
    Ok(service.api.json::<Started>(&call).await?.session_id)
}

/// Begins and ends a session that has this content, with these blocks.
pub async fn start_whole(service: &Service, payload: Payload, blocks: &[u8]) -> ServiceResult<String> {
    start(service, &json!({"close": true, "content_hash": hex(blocks)}), payload).await
}

/// Begins `count` empty sessions.
pub async fn start_many(service: &Service, count: usize) -> ServiceResult<Vec<String>> {
    let call = service.ask("files/upload_session/start_batch", &json!({"num_sessions": count}));
    let ids = service.api.json::<AllStarted>(&call).await?.session_ids;
    match ids.len() == count {
        true => Ok(ids),
        false => Err(Fault::broken("the service began another number of uploads than it was asked for").into()),
    }
}

/// Request data of a session whose content, all of it, is sent together with others'.
pub fn of_many(session: &str, length: u64) -> Value {
    json!({"cursor": {"session_id": session, "offset": 0}, "length": length, "close": true})
}

/// Sends the contents of several sessions one after another; `entries` are those of [`of_many`]. The service answers for each.
pub async fn append_many(service: &Service, entries: &[Value], body: Payload) -> ServiceResult<Vec<Value>> {
    let blocks = blocks(&body).await.map_err(|error| Fault::broken(error.message().to_owned()))?;
    let question = json!({"entries": entries, "content_hash": hex(&blocks)});
    let call = service.send("files/upload_session/append_batch", &question, body);
    let answers = service.api.json::<Appended>(&call).await?.entries;
    match answers.len() == entries.len() {
        true => Ok(answers),
        false => Err(Fault::broken("the service answered for another number of files than it was sent").into()),
    }
}
