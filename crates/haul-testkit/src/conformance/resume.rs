//! What finding an unfinished write again promises.

use super::{CaseResult, collect, files, get, key, put, skip_unless};
use crate::tree::content;
use bytes::Bytes;
use haul_core::{Algo, Entry, ErrorKind, hash::hash_bytes};
use haul_store::{LateFacts, ListRequest, Part, Payload, Read, Resumable, SentPart, Store, Upload, WriteSpec};
use std::sync::Arc;

/// A write that was left half done, as a journal would remember it.
struct Half {
    token: Vec<u8>,
    sent: Vec<SentPart>,
    bytes: Vec<u8>,
    /// Bytes of a part.
    part: u64,
}

impl Half {
    fn spec(&self) -> WriteSpec {
        WriteSpec { size: Some(self.bytes.len() as u64), ..Default::default() }
    }

    fn payload(&self, index: u64) -> Payload {
        let (from, to) = (index * self.part, ((index + 1) * self.part).min(self.bytes.len() as u64));
        Payload::from(Bytes::copy_from_slice(&self.bytes[from as usize..to as usize]))
    }

    async fn send(&self, upload: &dyn Upload, index: u64) -> haul_core::Result<Part> {
        upload.part(index, index * self.part, self.payload(index)).await
    }
}

/// The store's facet for resuming; [`half`] has made a write with a token.
fn writes(store: &Arc<dyn Store>) -> &dyn Resumable {
    store.resumable().expect("a store that gives a token finds the write again")
}

/// Begins a write of four parts to `name`, sends those of `which`, and forgets it.
async fn half(store: &dyn Store, name: &str, which: &[u64]) -> Result<Half, String> {
    let limits = store.caps().parts.filter(|limits| limits.count > 1).ok_or("it takes one stream only")?;
    let part = limits.min.max(64 << 10);
    let bytes = content(5, part * 3 + 17);
    let mut half = Half { token: Vec::new(), sent: Vec::new(), bytes, part };
    let upload = store.write(&key(name), half.spec()).await.expect("begun");
    let Some(token) = upload.token().await.expect("a token") else { return Err("it can't find one again".into()) };
    assert!(store.resumable().is_some(), "a token is for a store that finds the write again");
    assert_eq!(upload.token().await.expect("a token").as_ref(), Some(&token), "it stays the same");
    half.token = token;
    for index in which {
        let payload = half.payload(*index);
        let crc = hash_bytes(&[Algo::Crc64Nvme], &payload.concat().unwrap_or_default());
        let crc64 = crc.crc64().expect("a CRC");
        let part = upload.part(*index, index * part, payload).await.expect("sent");
        half.sent.push(SentPart { part, offset: index * half.part, crc64 });
    }
    Ok(half)
}

pub(super) async fn a_resumed_write_publishes_the_whole(store: Arc<dyn Store>) -> CaseResult {
    skip_unless(!store.caps().parts.is_some_and(|limits| limits.waits), "parts wait for those before them")?;
    let half = half(&*store, "d/f", &[2, 0]).await?;
    let resume = writes(&store).resume(&key("d/f"), &half.token, half.sent.clone(), half.spec());
    let (upload, mut parts) = resume.await.expect("found again");
    parts.sort_by_key(|part| part.index);
    assert_eq!(parts.iter().map(|p| (p.index, p.size)).collect::<Vec<_>>(), [(0, half.part), (2, half.part)]);
    assert_eq!(upload.token().await.expect("a token"), Some(half.token.clone()), "it can be found once more");
    // One that is there already may come again.
    for index in [3, 0, 1] {
        let part = upload.part(index, index * half.part, half.payload(index)).await.expect("sent");
        parts.retain(|p| p.index != index);
        parts.push(part);
    }
    parts.sort_by_key(|part| part.index);
    let stored = upload.publish(parts, LateFacts::default()).await.expect("published");
    assert_eq!(stored.size, half.bytes.len() as u64);
    assert!(get(&*store, "d/f").await == half.bytes, "other bytes came back");
    assert_eq!(files(&*store, ListRequest::all()).await, ["d/f"]);
    Ok(())
}

pub(super) async fn only_parts_that_are_there_are_believed(store: Arc<dyn Store>) -> CaseResult {
    let half = half(&*store, "f", &[0, 1]).await?;
    let mut sent_parts = half.sent.clone();
    // What a journal says of another content, and of a part that never came.
    sent_parts[1].crc64 ^= 1;
    sent_parts[1].part.tag.extend_from_slice(b"0");
    let mut never = half.sent[0].clone();
    (never.part.index, never.offset) = (2, 2 * half.part);
    sent_parts.push(never);
    let (upload, mut parts) =
        writes(&store).resume(&key("f"), &half.token, sent_parts, half.spec()).await.expect("found again");
    assert_eq!(parts, [half.sent[0].part.clone()]);
    for index in 1..4 {
        parts.push(upload.part(index, index * half.part, half.payload(index)).await.expect("sent"));
    }
    upload.publish(parts, LateFacts::default()).await.expect("published");
    assert!(get(&*store, "f").await == half.bytes, "other bytes came back");
    Ok(())
}

pub(super) async fn a_write_that_ended_is_gone(store: Arc<dyn Store>) -> CaseResult {
    for publish in [true, false] {
        let half = half(&*store, "f", &[0, 1, 2, 3]).await?;
        let resume = || writes(&store).resume(&key("f"), &half.token, half.sent.clone(), half.spec());
        let (upload, parts) = resume().await.expect("found again");
        match publish {
            true => drop(upload.publish(parts, LateFacts::default()).await.expect("published")),
            false => upload.abort().await.expect("aborted"),
        }
        let error = resume().await.err().expect("it has ended");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
        writes(&store).discard(&key("f"), &half.token).await.expect("gone already is fine");
        assert!(get(&*store, "f").await == half.bytes, "what is there stays");
    }
    Ok(())
}

pub(super) async fn a_write_given_up_later_leaves_nothing(store: Arc<dyn Store>) -> CaseResult {
    put(&*store, "d/f", b"old").await;
    let half = half(&*store, "d/f", &[0, 1]).await?;
    assert_eq!(files(&*store, ListRequest::all()).await, ["d/f"], "what is half done doesn't show");
    writes(&store).discard(&key("d/f"), &half.token).await.expect("discarded");
    let error =
        writes(&store).resume(&key("d/f"), &half.token, half.sent.clone(), half.spec()).await.err().expect("gone");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
    assert_eq!(get(&*store, "d/f").await, b"old");
    Ok(())
}

pub(super) async fn another_writes_token_is_refused(store: Arc<dyn Store>) -> CaseResult {
    let half = half(&*store, "d/f", &[0]).await?;
    for (name, token) in [("f", &half.token[..]), ("d/f", b"d/g"), ("d/f", b"../x"), ("d/f", b"")] {
        let error = writes(&store).resume(&key(name), token, Vec::new(), half.spec()).await.err().expect("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
        assert_eq!(writes(&store).discard(&key(name), token).await.unwrap_err().kind(), ErrorKind::Invalid);
    }
    writes(&store).discard(&key("d/f"), &half.token).await.expect("discarded");
    Ok(())
}

pub(super) async fn what_was_sent_is_read_back(store: Arc<dyn Store>) -> CaseResult {
    let half = half(&*store, "f", &[0, 1]).await?;
    let resume = writes(&store).resume(&key("f"), &half.token, half.sent.clone(), half.spec());
    let (upload, _) = resume.await.expect("found again");
    let range = 5..half.part + 7;
    let body = match upload.read_back(range.clone()).await {
        Ok(body) => body,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
            upload.abort().await.expect("aborted");
            return Err("what was sent can't be read before it is published".into());
        }
    };
    let read = Read { entry: Entry::file(key("f"), 0), body };
    assert!(collect(read).await.expect("read") == half.bytes[range.start as usize..range.end as usize]);
    upload.abort().await.expect("aborted");
    Ok(())
}

/// Other stores don't report this case as skipped: a single sender of all parts is no missing ability.
pub(super) async fn several_send_parts_of_one_write(store: Arc<dyn Store>) -> CaseResult {
    let Ok(half) = half(&*store, "d/f", &[]).await else { return Ok(()) };
    let find = || async {
        let found = writes(&store).resume(&key("d/f"), &half.token, Vec::new(), half.spec()).await;
        found.map(|(upload, _)| upload)
    };
    let Some(first) = find().await.ok().filter(|upload| upload.is_shared()) else { return Ok(()) };
    let (second, last) = (find().await.expect("found again"), find().await.expect("found again"));
    let (two, zero) = futures::join!(half.send(&*first, 2), half.send(&*second, 0));
    let (three, one) = futures::join!(half.send(&*second, 3), half.send(&*first, 1));
    let parts = [zero, one, two, three].map(|part| part.expect("sent"));
    // Whoever was taken for dead sends the same once more.
    half.send(&*second, 0).await.expect("sent");
    drop((first, second));
    let stored = last.publish(parts.to_vec(), LateFacts::default()).await.expect("published");
    assert_eq!(stored.size, half.bytes.len() as u64);
    assert!(get(&*store, "d/f").await == half.bytes, "other bytes came back");
    assert_eq!(files(&*store, ListRequest::all()).await, ["d/f"]);
    let error = find().await.err().expect("it has ended");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    Ok(())
}
