//! Bodies of requests to S3: in chunks with their checksum after them, where it is asked for; and checksums in base64.

use base64::{Engine, engine::general_purpose::STANDARD as B64};
use bytes::Bytes;
use futures::{StreamExt, stream, stream::BoxStream};
use haul_core::{Algo, Result};
use haul_store::{Payload, Relay, body::Pieces};

/// The header whose value follows a body that is hashed as it passes.
pub const TRAILER: &str = "x-amz-checksum-crc64nvme";

/// Bytes of a chunk of such a body: servers take up to 16 MiB (MinIO), and 8 KiB at least (AWS) but for the last.
const CHUNK: u64 = 1 << 20;

/// All of `payload`; of one of another store in chunks with its checksum after them, if there is to be a `trailer`.
pub fn pieces(payload: Payload, trailer: bool) -> Pieces {
    match payload.relay().cloned() {
        Some(relay) if trailer => Pieces::in_form(payload, chunked_len(relay.size()), chunked(&relay)),
        _ => Pieces::new(payload),
    }
}

/// The bytes of a stretch in chunks, and their checksum after them (`aws-chunked` in S3's words).
fn chunked(relay: &Relay) -> BoxStream<'static, Result<Bytes>> {
    let (relay, size) = (relay.clone(), relay.size());
    let pieces = relay.pieces(&[Algo::Crc64Nvme]);
    let frames = stream::unfold(Some((pieces, 0)), move |passing| {
        let relay = relay.clone();
        async move {
            let (mut pieces, at) = passing?;
            match pieces.next().await {
                Some(Ok(piece)) => {
                    let next = at + piece.len() as u64;
                    Some((Ok(frames(piece, at, size)), Some((pieces, next))))
                }
                Some(Err(error)) => Some((Err(error), None)),
                None => Some((Ok(vec![trailer(&relay)]), None)),
            }
        }
    });
    frames
        .flat_map(|frames| match frames {
            Ok(frames) => stream::iter(frames.into_iter().map(Ok).collect::<Vec<_>>()),
            Err(error) => stream::iter(vec![Err(error)]),
        })
        .boxed()
}

/// A piece of `size` bytes that begins at `at` of them, with the beginnings and ends of the chunks that it is of.
fn frames(mut piece: Bytes, mut at: u64, size: u64) -> Vec<Bytes> {
    let mut frames = Vec::with_capacity(3);
    while !piece.is_empty() {
        let begin = at - at % CHUNK;
        let end = (begin + CHUNK).min(size);
        if at == begin {
            frames.push(Bytes::from(format!("{:x}\r\n", end - begin)));
        }
        let part = piece.split_to(piece.len().min((end - at) as usize));
        at += part.len() as u64;
        frames.push(part);
        if at == end {
            frames.push(Bytes::from_static(b"\r\n"));
        }
    }
    frames
}

fn trailer(relay: &Relay) -> Bytes {
    let crc = relay.hashes().and_then(|hashes| hashes.get(Algo::Crc64Nvme).map(to_base64));
    format!("0\r\n{TRAILER}:{}\r\n\r\n", crc.unwrap_or_default()).into()
}

/// Length of `size` bytes as [`chunked`] sends them.
fn chunked_len(size: u64) -> u64 {
    let around = |chunk: u64| format!("{chunk:x}\r\n\r\n").len() as u64;
    let (whole, rest) = (size / CHUNK, size % CHUNK);
    let rest = if rest > 0 { around(rest) } else { 0 };
    let crc = Algo::Crc64Nvme.size().div_ceil(3) as u64 * 4;
    size + whole * around(CHUNK) + rest + format!("0\r\n{TRAILER}:\r\n\r\n").len() as u64 + crc
}

/// One hash of some bytes in base64.
pub fn base64_of(algo: Algo, bytes: &[u8]) -> String {
    B64.encode(haul_core::hash::hash_bytes(&[algo], bytes).get(algo).unwrap_or_default())
}

/// Bytes in base64.
pub fn to_base64(bytes: &[u8]) -> String {
    B64.encode(bytes)
}

/// Base64 of `algo`'s length as bytes.
pub fn from_base64(algo: Algo, text: &str) -> Option<Vec<u8>> {
    B64.decode(text.trim()).ok().filter(|v| v.len() == algo.size())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// All of a key of another store that holds `bytes`.
    async fn of_store(bytes: &[u8]) -> Payload {
        let store: Arc<dyn haul_store::Store> = Arc::new(haul_mem::MemStore::new());
        let upload = store.write(&haul_core::Key::new("f"), Default::default()).await.unwrap();
        let pieces = bytes.chunks(300_000).map(Bytes::copy_from_slice).collect();
        let part = upload.part(0, 0, Payload::new(pieces)).await.unwrap();
        upload.publish(vec![part], Default::default()).await.map_err(|u| u.error).unwrap();
        let entry = store.stat(&haul_core::Key::new("f")).await.unwrap();
        Payload::of_store(store, entry, 0..bytes.len() as u64, vec![])
    }

    /// As AWS describes it: size in hexadecimal, bytes, size 0, the checksum.
    #[tokio::test]
    async fn what_passes_through_goes_in_chunks_with_its_checksum_after_them() {
        for size in [1, CHUNK, CHUNK + 1, 2 * CHUNK + 7] {
            let bytes: Vec<u8> = (0..size).map(|i| ((i * 7) >> 3) as u8).collect();
            let body = pieces(of_store(&bytes).await, true);
            let announced = http_body::Body::size_hint(&body).exact().unwrap();
            let frames = http_body_util::BodyStream::new(body).map(|f| f.unwrap().into_data().unwrap());
            let sent = frames.collect::<Vec<Bytes>>().await.concat();
            assert_eq!(sent.len() as u64, announced, "{size}");
            let (mut rest, mut content) = (&sent[..], Vec::new());
            loop {
                let end = rest.windows(2).position(|w| w == b"\r\n").unwrap();
                let len = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
                rest = &rest[end + 2..];
                if len == 0 {
                    break;
                }
                content.extend_from_slice(&rest[..len]);
                assert_eq!(&rest[len..len + 2], b"\r\n");
                rest = &rest[len + 2..];
            }
            assert!(content == bytes);
            let crc = base64_of(Algo::Crc64Nvme, &bytes);
            assert_eq!(std::str::from_utf8(rest).unwrap(), format!("x-amz-checksum-crc64nvme:{crc}\r\n\r\n"));
        }
    }
}
