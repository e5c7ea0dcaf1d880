//! Bodies, both ways: paced, counted, checked, never copied to be sent.

use super::{
    clock::{Clock, Wait},
    exchange::Exchange,
    faults::Fault,
    limits::Pipe,
    pattern,
    settings::Keep,
    space::Piece,
};
use aws_lc_rs::digest::{Context, SHA256};
use bytes::{Buf as _, Bytes, BytesMut};
use futures::FutureExt as _;
use haul_core::{Algo, Hasher, Hashes, hash::to_hex};
use http_body_util::BodyExt as _;
use hyper::{
    HeaderMap,
    body::{Body, Frame, Incoming, SizeHint},
    header::{HeaderName, HeaderValue},
};
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{self, Poll, ready},
    time::{Duration, Instant},
};

/// A frame of an answer that isn't paced, at most.
const FRAME: u64 = 1 << 20;
/// What is sent at once when it is paced: so much time's worth.
const SLICE: f64 = 0.010;
/// Debts below are not slept off: they add up until it is worth it.
const TICK: Duration = Duration::from_micros(200);
/// Unused time that counts within a body, and for the pipe that all share: it makes good for late timers.
const CREDIT: Duration = Duration::from_millis(10);

/// One direction's limits: of the connection and of all together.
#[derive(Clone, Debug)]
pub struct Pace {
    /// The moment from which pipes count.
    pub start: Instant,
    /// To wait by.
    pub clock: Clock,
    /// The connection's pipe and rate.
    pub own: Option<(Arc<Pipe>, u64)>,
    /// The pipe and rate that all share.
    pub all: Option<(Arc<Pipe>, u64)>,
}

impl Pace {
    /// True if nothing is limited.
    pub fn is_free(&self) -> bool {
        self.own.is_none() && self.all.is_none()
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// A body begins: the connection owes nothing, and has saved nothing.
    fn begin(&self) {
        if let Some((pipe, rate)) = &self.own {
            pipe.take(*rate, 0, self.now(), Duration::ZERO);
        }
    }

    /// Takes `bytes`; gives a wait until they have passed, if it is worth one.
    fn take(&self, bytes: u64) -> Option<Wait> {
        let now = self.now();
        let taken = self.own.iter().chain(&self.all).map(|(pipe, rate)| pipe.take(*rate, bytes, now, CREDIT));
        taken.max().filter(|passed| *passed > now + TICK).map(|passed| self.clock.until(self.start + passed))
    }

    /// Bytes to send at once.
    fn slice(&self) -> u64 {
        let slowest = self.own.iter().chain(&self.all).map(|(_, rate)| *rate).min();
        slowest.map_or(FRAME, |rate| ((rate as f64 * SLICE) as u64).clamp(1024, FRAME))
    }
}

/// What an answer sends.
#[derive(Debug)]
pub struct Sending {
    pieces: std::vec::IntoIter<Piece>,
    piece: Option<Piece>,
    left: u64,
    pace: Pace,
    /// A slice that waits until it has passed.
    held: Option<(Bytes, Wait)>,
    begun: bool,
    /// A fault that occurs when this many bytes are left.
    spoilt: Option<(u64, Fault, Duration)>,
    stalled: Option<Wait>,
    exchange: Exchange,
}

impl Sending {
    /// All of some pieces.
    pub fn new(pieces: Vec<Piece>, pace: Pace, exchange: Exchange) -> Sending {
        let left = pieces.iter().map(Piece::len).sum();
        Sending {
            pieces: pieces.into_iter(),
            piece: None,
            left,
            pace,
            held: None,
            begun: false,
            spoilt: None,
            stalled: None,
            exchange,
        }
    }

    /// Ends badly in its middle.
    pub fn spoil(mut self, fault: Fault, stall: Duration) -> Sending {
        self.spoilt = Some((self.left.div_ceil(2), fault, stall));
        self
    }

    /// The next bytes, at most `most`.
    fn slice(&mut self, most: u64) -> Option<Bytes> {
        let piece = loop {
            match self.piece.take().or_else(|| self.pieces.next())? {
                empty if empty.is_empty() => {}
                piece => break piece,
            }
        };
        let len = piece.len();
        let take = most.min(len).max(1);
        let bytes = match &piece {
            Piece::Bytes(bytes) => bytes.slice(..take as usize),
            Piece::Pattern { seed, start, .. } => pattern::piece(*seed, *start, take as usize),
            Piece::Lost { range, .. } => pattern::piece(0, range.0, take as usize),
        };
        let given = bytes.len() as u64;
        self.piece = (given < len).then(|| piece.slice(given..len));
        Some(bytes)
    }

    fn gone(&mut self, bytes: Bytes) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.left = self.left.saturating_sub(bytes.len() as u64);
        self.exchange.sent(bytes.len() as u64);
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

impl Body for Sending {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        if let Some((_, wait)) = &mut this.held {
            ready!(wait.poll_unpin(cx));
        }
        if let Some((bytes, _)) = this.held.take() {
            return this.gone(bytes);
        }
        if let Some((left, fault, stall)) = this.spoilt
            && this.left <= left
        {
            if fault == Fault::Stall {
                let stalled = this.stalled.get_or_insert_with(|| this.pace.clock.wait(stall));
                ready!(stalled.poll_unpin(cx));
            }
            return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::ConnectionReset, "cut on purpose"))));
        }
        let before = this.spoilt.map_or(u64::MAX, |(left, ..)| this.left - left);
        let Some(bytes) = this.slice(this.pace.slice().min(before)) else { return Poll::Ready(None) };
        if !this.pace.is_free() {
            if !std::mem::replace(&mut this.begun, true) {
                this.pace.begin();
            }
            if let Some(mut wait) = this.pace.take(bytes.len() as u64)
                && wait.poll_unpin(cx).is_pending()
            {
                this.held = Some((bytes, wait));
                return Poll::Pending;
            }
        }
        this.gone(bytes)
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// What a request brought.
#[derive(Debug, Default)]
pub struct Received {
    /// Bytes of content.
    pub size: u64,
    /// CRC-64/NVME of them.
    pub crc: u64,
    /// Other hashes of them, as far as they were wanted.
    pub hashes: Hashes,
    /// The content.
    pub pieces: Vec<Piece>,
    /// Checksums as they were sent, in headers or after the body, that of CRC-64/NVME included.
    pub sums: Vec<(HeaderName, HeaderValue)>,
    /// Of signed chunks: each one's signature and SHA-256, that of the empty last one included, and its size.
    pub chunks: Vec<Chunk>,
    /// Lines after the last chunk, but for their signature.
    pub trailers: Vec<String>,
    /// The signature of those lines; empty if there is none.
    pub trailer_signature: String,
}

/// A signed chunk.
#[derive(Debug, Default)]
pub struct Chunk {
    /// Its signature; empty if there is none.
    pub signature: String,
    /// SHA-256 of its bytes, in hex.
    pub sha256: String,
    /// Its bytes.
    pub size: u64,
}

impl Received {
    /// The content in one piece, for documents.
    pub fn bytes(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for piece in &self.pieces {
            if let Piece::Bytes(bytes) = piece {
                all.extend_from_slice(bytes);
            }
        }
        all
    }

    /// MD5 of the content, if it was computed.
    pub fn md5(&self) -> Option<[u8; 16]> {
        self.hashes.get(Algo::Md5)?.try_into().ok()
    }
}

/// The header that carries CRC-64/NVME in base64.
pub const CRC: &str = "x-amz-checksum-crc64nvme";

/// How to receive.
#[derive(Clone, Debug)]
pub struct ReceiveOptions {
    /// What is kept.
    pub keep: Keep,
    /// What to compute besides the CRC-64/NVME.
    pub algos: Vec<Algo>,
    /// The body's chunks are signed, and their hashes are wanted.
    pub signed: bool,
}

/// Receives a request's body at its pace.
///
/// Errors: the client went away, or its chunks make no sense.
pub async fn receive(
    mut body: Incoming,
    headers: &HeaderMap,
    how: ReceiveOptions,
    pace: &Pace,
    mut counted: impl FnMut(u64),
) -> io::Result<Received> {
    let mut received = Received { sums: sums(headers), ..Received::default() };
    if body.is_end_stream() {
        received.hashes = Hasher::new(&how.algos).finish();
        return Ok(received);
    }
    let mut hasher = Hasher::new(&[&[Algo::Crc64Nvme], &how.algos[..]].concat());
    let mut chunks = is_chunked(headers).then(|| Chunks { hashes: how.signed, ..Chunks::default() });
    let mut kept = BytesMut::new();
    let expected = body.size_hint().exact().unwrap_or(u64::from(u16::MAX));
    if !pace.is_free() {
        pace.begin();
    }
    while let Some(frame) = body.frame().await {
        let Ok(mut data) = frame.map_err(io::Error::other)?.into_data() else { continue };
        counted(data.len() as u64);
        if !pace.is_free()
            && let Some(wait) = pace.take(data.len() as u64)
        {
            wait.await;
        }
        while !data.is_empty() {
            let content = match &mut chunks {
                None => std::mem::take(&mut data),
                Some(chunks) => match chunks.next(&mut data)? {
                    Some(content) => content,
                    None => continue,
                },
            };
            hasher.update(&content);
            received.size += content.len() as u64;
            if how.keep == Keep::Bytes {
                // Copied, since a small frame would hold on to the whole buffer that it was read into.
                if kept.is_empty() {
                    kept.reserve(content.len().max(expected.min(FRAME) as usize));
                }
                kept.extend_from_slice(&content);
                if kept.len() >= FRAME as usize {
                    received.pieces.push(Piece::Bytes(kept.split().freeze()));
                }
            }
        }
    }
    if let Some(mut chunks) = chunks {
        received.sums.extend(chunks.trailers()?);
        let signature = chunks.lines.iter().position(|line| line.starts_with(TRAILER_SIGNATURE));
        let signature = signature.map(|at| chunks.lines.remove(at)).unwrap_or_default();
        received.trailer_signature = signature.trim_start_matches(TRAILER_SIGNATURE).trim().to_owned();
        (received.chunks, received.trailers) = (chunks.signed, chunks.lines);
    }
    received.hashes = hasher.finish();
    received.crc = received.hashes.crc64().unwrap_or_default();
    if !kept.is_empty() {
        received.pieces.push(Piece::Bytes(kept.freeze()));
    }
    if how.keep == Keep::Sizes && received.size > 0 {
        let (crc, size) = (received.crc, received.size);
        received.pieces = vec![Piece::Lost { crc, size, range: (0, size) }];
    }
    Ok(received)
}

fn is_sum(name: &str) -> bool {
    let algorithm = name.strip_prefix("x-amz-checksum-");
    algorithm.is_some_and(|rest| !matches!(rest, "algorithm" | "type" | "mode"))
}

fn sums(headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    let sums = headers.iter().filter(|(name, _)| is_sum(name.as_str()));
    sums.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// True if the body is in the chunks of SigV4 (`aws-chunked`).
fn is_chunked(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
    text("x-amz-content-sha256").starts_with("STREAMING-") || text("content-encoding").contains("aws-chunked")
}

/// Where a body of chunks stands: `SIZE[;chunk-signature=…]\r\n` bytes `\r\n` …, `0[;…]\r\n`, trailers, `\r\n`.
#[derive(Default)]
struct Chunks {
    /// A line that isn't whole.
    line: Vec<u8>,
    /// Bytes left of this chunk.
    left: u64,
    /// The chunk of size 0 was there.
    ended: bool,
    lines: Vec<String>,
    /// Chunks are hashed.
    hashes: bool,
    /// The chunk that is under way, and the hash of what came of it.
    current: Option<(Chunk, Context)>,
    signed: Vec<Chunk>,
}

/// What a line with the signature of trailers begins with.
const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature:";

impl Chunks {
    /// The next content from what has come; `None` when there was only framing.
    fn next(&mut self, data: &mut Bytes) -> io::Result<Option<Bytes>> {
        if self.left > 0 {
            let take = self.left.min(data.len() as u64);
            self.left -= take;
            let content = data.split_to(take as usize);
            if let Some((_, hash)) = &mut self.current {
                hash.update(&content);
            }
            if self.left == 0 {
                self.end_chunk();
            }
            return Ok(Some(content));
        }
        let Some(end) = data.iter().position(|b| *b == b'\n') else {
            self.line.extend_from_slice(data);
            data.clear();
            // No client's line is as long; without a bound a body without lines would be held twice.
            return if self.line.len() > 16 << 10 { Err(broken()) } else { Ok(None) };
        };
        self.line.extend_from_slice(&data[..end]);
        data.advance(end + 1);
        let line = String::from_utf8(std::mem::take(&mut self.line)).map_err(|_| broken())?;
        let line = line.trim();
        match (self.ended, line) {
            // What ends a chunk's bytes.
            (_, "") => {}
            (true, trailer) => self.lines.push(trailer.to_owned()),
            (false, line) => {
                let (size, more) = line.split_once(';').unwrap_or((line, ""));
                self.left = u64::from_str_radix(size.trim(), 16).map_err(|_| broken())?;
                self.ended = self.left == 0;
                if self.hashes {
                    let signature = more.trim().strip_prefix("chunk-signature=").unwrap_or_default().to_owned();
                    let chunk = Chunk { signature, size: self.left, ..Chunk::default() };
                    self.current = Some((chunk, Context::new(&SHA256)));
                }
                if self.ended {
                    self.end_chunk();
                }
            }
        }
        Ok(None)
    }

    fn end_chunk(&mut self) {
        if let Some((chunk, hash)) = self.current.take() {
            self.signed.push(Chunk { sha256: to_hex(hash.finish().as_ref()), ..chunk });
        }
    }

    /// The checksums that came after the last chunk.
    fn trailers(&self) -> io::Result<Vec<(HeaderName, HeaderValue)>> {
        if !self.ended {
            return Err(broken());
        }
        let lines = self.lines.iter().filter_map(|line| line.split_once(':'));
        let lines = lines.filter(|(name, _)| is_sum(&name.trim().to_ascii_lowercase()));
        Ok(lines.filter_map(|(name, value)| Some((name.trim().parse().ok()?, value.trim().parse().ok()?))).collect())
    }
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the body's chunks make no sense")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Decoded = (Vec<u8>, Vec<(HeaderName, HeaderValue)>);

    fn decoded(body: &[u8], step: usize) -> io::Result<Decoded> {
        let (mut chunks, mut content) = (Chunks::default(), Vec::new());
        for piece in body.chunks(step) {
            let mut data = Bytes::copy_from_slice(piece);
            while !data.is_empty() {
                content.extend(chunks.next(&mut data)?.unwrap_or_default());
            }
        }
        Ok((content, chunks.trailers()?))
    }

    #[test]
    fn chunks_are_taken_apart_wherever_they_are_cut() {
        let body = b"5;chunk-signature=ab\r\nhel\nl\r\nA\r\n0123456789\r\n0;chunk-signature=cd\r\n\
            x-amz-checksum-crc32:AAAAAA==\r\nx-amz-trailer-signature:ef\r\n\r\n";
        for step in [1, 2, 3, 7, body.len()] {
            let (content, trailers) = decoded(body, step).unwrap();
            assert_eq!(content, b"hel\nl0123456789", "{step}");
            assert_eq!(trailers, [("x-amz-checksum-crc32".parse().unwrap(), "AAAAAA==".parse().unwrap())]);
        }
        assert_eq!(decoded(b"0\r\n\r\n", 1).unwrap().0, b"");
        for bad in [&b"5\r\nhello\r\n"[..], b"x\r\n", b"5\r\nhello\r\nzz\r\n"] {
            assert!(decoded(bad, 3).is_err());
        }
    }
}
