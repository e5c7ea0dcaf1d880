//! Reading: facts, then content as it comes, then the checksum of what was sent.

use crate::{
    crc64,
    list::near,
    message::Answer,
    wire::{Exchange, Incoming, unexpected},
};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use haul_core::{Algo, Error, ErrorKind, Hasher, Result, Retry};
use haul_store::{Body, Read};

/// The answer to a read.
///
/// Errors: the far end's.
pub async fn read(mut exchange: Exchange) -> Result<Read> {
    match exchange.next().await? {
        Incoming::Answer(Answer::Entry(entry)) => {
            // Who drops it before all came tells the far end.
            exchange.goes_on();
            Ok(Read { entry: near(entry), body: Body::Stream(content(exchange)) })
        }
        _ => Err(unexpected()),
    }
}

/// Content up to the checksum, which must be that of what came.
pub fn content(exchange: Exchange) -> BoxStream<'static, Result<Bytes>> {
    let begun = Some((exchange, Hasher::new(&[Algo::Crc64Nvme])));
    let next = async |state: Option<(Exchange, Hasher)>| {
        let (mut exchange, mut hasher) = state?;
        match exchange.next().await {
            Ok(Incoming::Data(bytes)) => {
                hasher.update(&bytes);
                Some((Ok(bytes), Some((exchange, hasher))))
            }
            Ok(Incoming::Answer(Answer::Sent(sent))) if sent == crc64(&hasher.finish()) => None,
            Ok(Incoming::Answer(Answer::Sent(_))) => Some((Err(other_bytes("read")), None)),
            Ok(Incoming::Answer(_)) => Some((Err(unexpected()), None)),
            Err(error) => Some((Err(error), None)),
        }
    };
    stream::unfold(begun, next).boxed()
}

/// Received bytes differ from those sent.
pub fn other_bytes(op: &'static str) -> Error {
    Error::new(ErrorKind::Corrupt, op, "what arrived has another checksum than what was sent")
        .with_retry(Retry::Backoff)
}
