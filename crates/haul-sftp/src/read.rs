//! Reading: one file in as many requests as the server's answers are short, several of them under way at once.

use crate::{
    list,
    pool::{self, Fault, Handle},
    service::{Service, SessionTurn, at, version},
    wire::{Attrs, Reply, Request, open, status},
};
use bytes::Bytes;
use futures::{StreamExt, stream};
use haul_core::{Error, ErrorKind, Key, Result, Version};
use haul_store::{Body, Direction, Read, blocks};
use std::{collections::VecDeque, ops::Range, sync::Arc};
use tokio::sync::mpsc;

const OP: &str = "read";

/// Requests of one reading that are under way at once: with fewer than a session's window holds one reading alone is slow.
const AHEAD: usize = 8;

/// Bytes of a file requested before its size is known: enough for the whole of most small files.
const FIRST: u32 = 64 << 10;

/// Pieces that may wait for the reader.
const PIECES: usize = 4;

/// See [`haul_store::Store::read`].
pub async fn read(
    service: &Arc<Service>,
    key: &Key,
    want: Option<&Version>,
    range: Option<Range<u64>>,
) -> Result<Read> {
    let missing = || Error::new(ErrorKind::NotFound, OP, "no such file").with_key(key);
    if key.is_dir() || key.is_root() {
        return Err(missing());
    }
    let path = service.path(key).map_err(|_| missing())?;
    if key.is_symlink() {
        return link(service, key, &path, want, range).await;
    }
    let expected = range.as_ref().map_or(u64::from(FIRST), |range| range.end.saturating_sub(range.start));
    let turn = service.turn("Read", Direction::Down, expected).await?;
    let begun = begin(service, &turn, &path, &range).await;
    let (handle, attrs, first) = match begun {
        Ok(begun) => begun,
        Err(fault) => {
            let result = Err(fault);
            turn.end::<()>(&result);
            return Err(result.err().map(at(OP, key)).unwrap_or_else(missing));
        }
    };
    if !attrs.is_file() {
        return Err(missing());
    }
    let Some(mut entry) = service.entry(key, &attrs, true) else {
        return Err(Error::new(ErrorKind::Invalid, OP, "the server doesn't say how long this file is").with_key(key));
    };
    if want.is_some_and(|want| *want != version(&attrs)) {
        return Err(Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(key));
    }
    entry.key = key.clone();
    let range = range.unwrap_or(0..entry.size);
    let range = range.start.min(entry.size)..range.end.min(entry.size);
    let (send, pieces) = mpsc::channel(PIECES);
    let reading = Reading { service: service.clone(), turn, handle, key: key.clone(), at: range.start, end: range.end };
    let task = haul_store::task::Task::spawn(reading.run(first, send));
    // The task ends when the reader drops the pieces.
    let body = stream::unfold((pieces, task), |(mut pieces, task)| async move {
        pieces.recv().await.map(|piece| (piece, (pieces, task)))
    });
    Ok(Read { entry, body: Body::Stream(body.boxed()) })
}

/// Opens a file, and asks for its facts and first bytes at once.
async fn begin(
    service: &Service,
    turn: &SessionTurn,
    path: &[u8],
    range: &Option<Range<u64>>,
) -> Result<(Handle, Attrs, Option<(u64, u32, Result<Reply>)>), Fault> {
    let channel = &turn.claim;
    let handle = Handle::opened(channel, channel.ask(&Request::Open(path, open::READ, Attrs::default()))).await?;
    let facts = channel.ask(&Request::Fstat(&handle.name));
    let (at, want) =
        range.as_ref().map_or((0, u64::from(FIRST)), |range| (range.start, range.end.saturating_sub(range.start)));
    let len = u32::try_from(want).unwrap_or(u32::MAX).min(service.pool.read_len());
    let first = if len == 0 { None } else { Some(channel.read(&handle.name, at, len).await) };
    let attrs = pool::attrs(facts).await?;
    let first = match first {
        Some(first) => Some((at, len, first.await)),
        None => None,
    };
    Ok((handle, attrs, first))
}

/// A symlink's target as bytes.
async fn link(
    service: &Service,
    key: &Key,
    path: &[u8],
    want: Option<&Version>,
    range: Option<Range<u64>>,
) -> Result<Read> {
    let entry = list::stat(service, key).await?;
    if want.is_some() && want != entry.version.as_ref() {
        return Err(Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(key));
    }
    let target = list::target(service, path).await.map_err(at(OP, key))?;
    if target.len() as u64 != entry.size {
        return Err(Error::new(ErrorKind::Changed, OP, "changed while it was read").with_key(key));
    }
    let range = range.unwrap_or(0..entry.size);
    let within = |at: u64| at.min(target.len() as u64) as usize;
    let bytes = target.slice(within(range.start)..within(range.end.max(range.start)));
    Ok(Read { entry, body: Body::Stream(stream::iter([Ok(bytes)]).boxed()) })
}

fn too_long() -> Fault {
    Error::new(ErrorKind::Invalid, OP, "the server gave more bytes than it was asked for").into()
}

/// A reading under way.
struct Reading {
    service: Arc<Service>,
    turn: SessionTurn,
    handle: Handle,
    key: Key,
    at: u64,
    end: u64,
}

impl Reading {
    async fn run(mut self, first: Option<(u64, u32, Result<Reply>)>, send: mpsc::Sender<Result<Bytes>>) {
        let result = self.pieces(first, &send).await;
        let Reading { turn, handle, key, .. } = self;
        // The bytes were read, whatever the close answers.
        drop(handle.close());
        turn.end(&result);
        if let Err(fault) = result {
            // Nobody may take it any more.
            let _ = send.send(Err(at(OP, &key)(fault))).await;
        }
    }

    async fn pieces(
        &mut self,
        first: Option<(u64, u32, Result<Reply>)>,
        send: &mpsc::Sender<Result<Bytes>>,
    ) -> Result<(), Fault> {
        let mut in_flight = VecDeque::new();
        if let Some((at, len, reply)) = first
            && self.at < self.end
        {
            let bytes = self.content(reply?, at)?;
            if bytes.len() > len as usize {
                return Err(too_long());
            }
            let got = bytes.len() as u64;
            let bytes = bytes.slice(..got.min(self.end - self.at) as usize);
            self.short(bytes.len(), at, len);
            if !self.give(bytes, send).await {
                return Ok(());
            }
        }
        let mut next = self.at;
        loop {
            while in_flight.len() < AHEAD && next < self.end {
                let len = u64::from(self.service.pool.read_len()).min(self.end - next) as u32;
                let answer = self.turn.claim.read(&self.handle.name, next, len).await;
                in_flight.push_back((next, len, answer));
                next += u64::from(len);
            }
            let Some((at, len, answer)) = in_flight.pop_front() else { return Ok(()) };
            let bytes = self.content(answer.await?, at)?;
            if bytes.len() > len as usize {
                return Err(too_long());
            }
            if bytes.len() < len as usize {
                // The rest comes before all that was asked for behind it.
                self.short(bytes.len(), at, len);
                let rest = (at + bytes.len() as u64, len - bytes.len() as u32);
                let answer = self.turn.claim.read(&self.handle.name, rest.0, rest.1).await;
                in_flight.push_front((rest.0, rest.1, answer));
            }
            if !self.give(bytes, send).await {
                return Ok(());
            }
        }
    }

    /// Notes that the server returns at most this much at once, unless the file ends there.
    fn short(&self, got: usize, at: u64, asked: u32) {
        let got = got as u64;
        if got > 0 && got < u64::from(asked) && at + got < self.end {
            self.service.pool.reads_are_shorter(got as u32);
        }
    }

    async fn give(&mut self, bytes: Bytes, send: &mpsc::Sender<Result<Bytes>>) -> bool {
        self.at += bytes.len() as u64;
        self.turn.moved(bytes.len() as u64);
        match send.try_send(Ok(bytes)) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Closed(_)) => false,
            Err(mpsc::error::TrySendError::Full(bytes)) => {
                self.turn.waits(true);
                let taken = send.send(bytes).await.is_ok();
                self.turn.waits(false);
                taken
            }
        }
    }

    fn content(&self, reply: Reply, at: u64) -> Result<Bytes, Fault> {
        match reply {
            Reply::Data(bytes) if !bytes.is_empty() => Ok(bytes),
            Reply::Status(status::EOF, _) | Reply::Data(_) => {
                Err(blocks::ended_early(at, self.end).with_key(&self.key).into())
            }
            other => Err(Fault::unexpected(other)),
        }
    }
}
