//! Writes to services whose upload sessions take bytes in order only (Drive, OneDrive). Parts may arrive at any time; each waits for its
//! turn. The engine begins parts in order, so the part that others wait for is under way.

use crate::{Part, Payload, SentPart};
use futures::future::BoxFuture;
use haul_core::{Error, ErrorKind, Result, Retry};
use tokio::sync::{Mutex, watch};

/// An upload session of a service.
pub trait Session: Send + Sync + 'static {
    /// Sends bytes, the first of which is at `offset` of the whole; `last` when the whole ends with them. How many bytes of the whole
    /// it has then: it need not have taken all.
    ///
    /// Errors: nothing is known then of what it has.
    fn append(&self, offset: u64, payload: Payload, last: bool) -> BoxFuture<'_, Result<u64>>;

    /// Bytes of the whole that the session has received.
    ///
    /// Errors: `NotFound` when the session is missing or expired.
    fn has(&self) -> BoxFuture<'_, Result<u64>>;
}

/// One write by a session.
#[derive(Debug)]
pub struct InOrder<S> {
    /// The session.
    pub session: S,
    size: Option<u64>,
    /// See [`InOrder::new`], in bytes; 0 for any number.
    granule: u64,
    state: Mutex<State>,
    /// The offset whose turn it is: all before it is there, or kept.
    turn: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    /// Bytes that the session has.
    has: u64,
    /// That is certain.
    sure: bool,
    /// The end of what came, which isn't sent yet.
    kept: Payload,
}

impl<S: Session> InOrder<S> {
    /// A write of `size` bytes (`None`: unknown) of which the session has the first `has`. With a `granule`, the service is sent multiples
    /// of it whatever the part sizes are, and the last bytes, at most one granule, are sent by [`InOrder::finish`] alone: for services that
    /// show a file as soon as they have all of it.
    pub fn new(session: S, size: Option<u64>, has: u64, granule: u64) -> InOrder<S> {
        let state = Mutex::new(State { has, sure: true, kept: Payload::default() });
        InOrder { session, size, granule, state, turn: watch::Sender::new(has) }
    }

    /// Those of the parts that an earlier run sent which the session has.
    pub fn proved(sent: Vec<SentPart>, has: u64) -> Vec<Part> {
        let there = sent.into_iter().filter(|sent| sent.offset.saturating_add(sent.part.size) <= has);
        there.map(|sent| sent.part).collect()
    }

    /// See [`crate::Upload::part`].
    pub async fn part(&self, index: u64, offset: u64, payload: Payload) -> Result<Part> {
        let (size, end) = (payload.len(), offset + payload.len());
        let part = Part { index, size, tag: Vec::new() };
        let gone = |_| Error::new(ErrorKind::Cancelled, "write", "stopped");
        self.turn.subscribe().wait_for(|turn| *turn >= offset).await.map_err(gone)?;
        let mut state = self.state.lock().await;
        if *self.turn.borrow() >= end && size > 0 {
            return Ok(part);
        }
        // All bytes that aren't sent yet, as one; of a payload that isn't in memory, only as many as are needed to flush the kept ones.
        let (from, all) = match state.kept.len() {
            0 => (offset, payload),
            kept => {
                let fills = (self.granule - kept % self.granule).min(payload.len());
                let (now, pieces) = match payload.pieces() {
                    Some(pieces) => (payload.len(), pieces.to_vec()),
                    None => {
                        let first = payload.slice(0..fills);
                        (fills, vec![crate::disk::run(move || first.concat()).await?.into()])
                    }
                };
                let before = state.kept.pieces().unwrap_or_default();
                let joined = payload.with_pieces([before, &pieces].concat());
                if now == payload.len() {
                    (offset - kept, joined)
                } else {
                    self.send(&mut state, offset - kept, joined, false).await?;
                    (offset + now, payload.slice(now..payload.len()))
                }
            }
        };
        let keep = match self.size {
            _ if self.granule == 0 || all.is_empty() => 0,
            // It ends where the service takes no end: an encrypted part.
            Some(whole) if end < whole => (end % self.granule).min(all.len()),
            _ => (all.len() - 1) % self.granule + 1,
        };
        let cut = all.len() - keep;
        let last = self.granule == 0 && self.size == Some(end);
        if cut > 0 || last {
            self.send(&mut state, from, all.slice(0..cut), last).await?;
        }
        let rest = all.slice(cut..all.len());
        // The kept bytes outlive the memory that they came in.
        state.kept = match keep {
            0 => Payload::default(),
            _ => {
                let copied = rest.clone();
                rest.with_pieces(vec![crate::disk::run(move || copied.concat()).await?.into()])
            }
        };
        self.turn.send_replace(end);
        Ok(part)
    }

    /// Sends the kept bytes, or reports that the whole is `size` bytes when there are none; may be repeated after an error.
    pub async fn finish(&self, size: u64) -> Result<()> {
        let mut state = self.state.lock().await;
        let kept = state.kept.clone();
        self.send(&mut state, size.saturating_sub(kept.len()), kept, true).await
    }

    async fn send(&self, state: &mut State, offset: u64, payload: Payload, last: bool) -> Result<()> {
        let end = offset + payload.len();
        if !state.sure {
            state.has = self.session.has().await?;
            state.sure = true;
        }
        // Bytes that were to be the last were never sent as others; that there are none must be said at least once.
        let mut say = last && payload.is_empty();
        while state.has < end || say {
            if state.has < offset {
                let message = format!("the service lost bytes that it had: it has {} of {offset}", state.has);
                return Err(Error::new(ErrorKind::Corrupt, "write", message));
            }
            let from = state.has.min(end);
            state.sure = false;
            let has = self.session.append(from, payload.slice(from - offset..end - offset), last).await?;
            if has > end || has < from || has == from && from < end {
                let message = format!("the service has {has} bytes after {from}..{end} were sent");
                return Err(Error::new(ErrorKind::Io, "write", message).with_retry(Retry::Backoff));
            }
            (state.has, state.sure) = (has, true);
            say = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures::{FutureExt, future::join_all};
    use std::sync::Mutex as Plain;

    /// A service that takes multiples of 4 bytes, shows the whole when told that it is complete, and fails on demand.
    #[derive(Default)]
    struct Made {
        has: Plain<Vec<u8>>,
        /// Of each request: fails before it is taken, or after.
        faults: Plain<Vec<Option<bool>>>,
        requests: Plain<Vec<(u64, usize, bool)>>,
    }

    impl Session for Made {
        fn append(&self, offset: u64, payload: Payload, last: bool) -> BoxFuture<'_, Result<u64>> {
            let bytes = payload.concat().unwrap();
            self.requests.lock().unwrap().push((offset, bytes.len(), last));
            let fault = self.faults.lock().unwrap().pop().flatten();
            let lost = || Err(Error::new(ErrorKind::Io, "append", "lost").with_retry(Retry::Backoff));
            let mut has = self.has.lock().unwrap();
            assert_eq!(offset, has.len() as u64, "in order");
            if fault == Some(false) {
                return async move { lost() }.boxed();
            }
            let takes = if last { bytes.len() } else { bytes.len() / 4 * 4 };
            has.extend(&bytes[..takes]);
            let now = has.len() as u64;
            async move { if fault == Some(true) { lost() } else { Ok(now) } }.boxed()
        }

        fn has(&self) -> BoxFuture<'_, Result<u64>> {
            let has = self.has.lock().unwrap().len() as u64;
            async move { Ok(has) }.boxed()
        }
    }

    fn payload(bytes: &'static [u8]) -> Payload {
        Payload::new(bytes.chunks(3).map(Bytes::from_static).collect())
    }

    #[tokio::test]
    async fn parts_wait_for_their_turn() {
        let write = InOrder::new(Made::default(), Some(10), 0, 0);
        let parts = [(2, 8, &b"ij"[..]), (1, 4, b"efgh"), (0, 0, b"abcd")];
        let sent = join_all(parts.map(|(index, offset, bytes)| write.part(index, offset, payload(bytes)))).await;
        assert!(sent.iter().all(Result::is_ok), "{sent:?}");
        assert_eq!(*write.session.has.lock().unwrap(), b"abcdefghij");
        assert_eq!(*write.session.requests.lock().unwrap(), [(0, 4, false), (4, 4, false), (8, 2, true)]);
    }

    #[tokio::test]
    async fn what_is_uncertain_is_asked_for() {
        let faults = Plain::new(vec![Some(false), Some(true), Some(false)]);
        let write = InOrder::new(Made { faults, ..Made::default() }, Some(10), 0, 0);
        for (index, offset, bytes) in [(0, 0, &b"abcdefgh"[..]), (1, 8, b"ij")] {
            while let Err(error) = write.part(index, offset, payload(bytes)).await {
                assert_eq!(error.retry(), Retry::Backoff);
            }
        }
        assert_eq!(*write.session.has.lock().unwrap(), b"abcdefghij");
        // The second of the first part came, though its answer was lost; nothing was sent twice.
        assert_eq!(*write.session.requests.lock().unwrap(), [(0, 8, false), (0, 8, false), (8, 2, true), (8, 2, true)]);
    }

    #[tokio::test]
    async fn the_end_is_kept_until_it_may_show() {
        for size in [Some(11), None] {
            let write = InOrder::new(Made::default(), size, 0, 4);
            write.part(0, 0, payload(b"abcdefgh")).await.unwrap();
            write.part(1, 8, payload(b"ijk")).await.unwrap();
            assert_eq!(*write.session.has.lock().unwrap(), b"abcdefgh");
            write.finish(11).await.unwrap();
            assert_eq!(*write.session.has.lock().unwrap(), b"abcdefghijk");
        }
        let write = InOrder::new(Made::default(), None, 0, 4);
        write.part(0, 0, payload(b"abcd")).await.unwrap();
        assert!(write.session.requests.lock().unwrap().is_empty(), "it may be all");
        write.part(1, 4, payload(b"efgh")).await.unwrap();
        *write.session.faults.lock().unwrap() = vec![Some(true), Some(false)];
        assert!(write.finish(8).await.is_err());
        assert!(write.finish(8).await.is_err());
        assert_eq!(*write.session.has.lock().unwrap(), b"abcdefgh");
        write.finish(8).await.unwrap();
        let empty = InOrder::new(Made::default(), Some(0), 0, 4);
        empty.finish(0).await.unwrap();
        assert_eq!(*empty.session.requests.lock().unwrap(), [(0, 0, true)]);
    }

    /// Bytes that are made as they are sent.
    #[derive(Debug)]
    struct Letters(&'static [u8]);

    impl crate::GeneratedBytes for Letters {
        fn block(&self, at: u64, most: u64) -> Result<Bytes> {
            let rest = &self.0[at as usize..];
            Ok(Bytes::from_static(&rest[..rest.len().min(most as usize).min(3)]))
        }
    }

    #[tokio::test]
    async fn parts_of_any_size_are_sent_in_multiples() {
        let all: &'static [u8] = b"abcdefghijklmnopqrstuvwxyz";
        for made in [true, false] {
            for size in [Some(26), None] {
                let write = InOrder::new(Made::default(), size, 0, 4);
                let mut at = 0;
                for (index, len) in [5, 1, 1, 9, 3, 7].into_iter().enumerate() {
                    let bytes = &all[at..at + len];
                    let payload = payload(bytes);
                    let payload =
                        if made { payload.with_made(std::sync::Arc::new(Letters(bytes)), len as u64) } else { payload };
                    write.part(index as u64, at as u64, payload).await.unwrap();
                    at += len;
                }
                write.finish(26).await.unwrap();
                assert_eq!(*write.session.has.lock().unwrap(), all);
                let requests = write.session.requests.lock().unwrap();
                let (end, before) = requests.split_last().unwrap();
                assert!(before.iter().all(|(at, len, last)| at % 4 == 0 && len % 4 == 0 && !last), "{requests:?}");
                assert!(end.2, "{requests:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_resumed_write_goes_on_where_the_service_is() {
        let made = Made { has: Plain::new(b"abcdefghijkl".to_vec()), ..Made::default() };
        let sent = |index, offset, size| SentPart { part: Part { index, size, tag: vec![] }, offset, crc64: 0 };
        let proved = InOrder::<Made>::proved(vec![sent(0, 0, 8), sent(1, 8, 8)], 12);
        assert_eq!(proved.iter().map(|part| part.index).collect::<Vec<_>>(), [0]);
        let write = InOrder::new(made, Some(18), 12, 0);
        write.part(1, 8, payload(b"ijklmnop")).await.unwrap();
        write.part(2, 16, payload(b"qr")).await.unwrap();
        assert_eq!(*write.session.has.lock().unwrap(), b"abcdefghijklmnopqr");
        assert_eq!(write.session.requests.lock().unwrap()[0], (12, 4, false));
        let lost = Made { has: Plain::new(b"ab".to_vec()), ..Made::default() };
        let write = InOrder::new(lost, Some(10), 4, 0);
        write.state.lock().await.sure = false;
        assert_eq!(write.part(1, 4, payload(b"efgh")).await.unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
