//! Frames: what crosses a pair of pipes, one after another, each of one request. Pure but for the reading and writing of them.
//!
//! A frame is its length (4 bytes, big-endian: of what follows), a kind (1 byte), the number of its request (4 bytes, big-endian), and
//! what it carries. Bits of the kind say whether that is compressed, and whether it is kept for frames that follow.

pub use crate::compression::MOST;
use crate::{
    compression::{unpack, unpack_behind},
    history::ReceiverHistory,
};
use bytes::{Buf as _, BufMut, Bytes, BytesMut};
use std::io::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes of a frame before what it carries.
const HEAD: usize = 9;

/// Bit of a kind: what the frame carries is compressed.
const PACKED: u8 = 0x80;

/// Bit of a kind: the plain bytes of this frame of content are kept, and those before it are the prefix if it is compressed.
const KEPT: u8 = 0x40;

/// Bytes of content in a frame: little enough that a question which comes behind a few of them doesn't wait long.
pub const PIECE: usize = 256 << 10;

/// Bytes that are read ahead of what is asked for: several small frames at once, and of a large one little that is copied once more.
pub const AHEAD: usize = 32 << 10;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something is asked for: a message.
    Request,
    /// An answer, or one of several: a message.
    Answer,
    /// Content of a request or of its answer.
    Data,
    /// The asker has consumed this many bytes of the answer (8 bytes, big-endian), and as many more may follow.
    Taken,
    /// The asker no longer wants the answer.
    Cancel,
    /// The far end is there, though it has nothing to say.
    Alive,
}

/// Flags of a frame's body on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// It is compressed.
    pub packed: bool,
    /// Its plain bytes are kept for frames that follow, and it may refer to those that were.
    pub kept: bool,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Kind.
    pub kind: Kind,
    /// Number of its request, chosen by the asker.
    pub id: u32,
    /// Body.
    pub body: Bytes,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Kind::Request => 1,
            Kind::Answer => 2,
            Kind::Data => 3,
            Kind::Taken => 4,
            Kind::Cancel => 5,
            Kind::Alive => 6,
        }
    }

    /// From its code, and what that says besides. Only content is kept.
    fn of(code: u8) -> Option<(Kind, Marks)> {
        let plain = code & !(PACKED | KEPT);
        let marks = Marks { packed: code & PACKED != 0, kept: code & KEPT != 0 };
        [Kind::Request, Kind::Answer, Kind::Data, Kind::Taken, Kind::Cancel, Kind::Alive]
            .into_iter()
            .find(|kind| kind.code() == plain && (!marks.kept || *kind == Kind::Data))
            .map(|kind| (kind, marks))
    }
}

impl Marks {
    fn code(self) -> u8 {
        (u8::from(self.packed) * PACKED) | (u8::from(self.kept) * KEPT)
    }
}

impl Frame {
    /// A sign of life.
    pub const ALIVE: Frame = Frame { kind: Kind::Alive, id: 0, body: Bytes::new() };

    /// Reports that `bytes` bytes were consumed.
    pub fn taken(id: u32, bytes: u64) -> Frame {
        Frame { kind: Kind::Taken, id, body: Bytes::copy_from_slice(&bytes.to_be_bytes()) }
    }

    /// The count of a [`Kind::Taken`].
    pub fn count(&self) -> Option<u64> {
        Some(u64::from_be_bytes(self.body.as_ref().try_into().ok()?))
    }

    /// Writes it.
    ///
    /// Errors: the pipe's.
    pub async fn write(&self, to: &mut (impl AsyncWrite + Unpin)) -> Result<()> {
        self.write_as(Marks::default(), &self.body, to).await
    }

    /// Writes the frame with these flags and the body that they describe, in place of its own.
    ///
    /// Errors: the pipe's.
    pub async fn write_as(&self, marks: Marks, body: &[u8], to: &mut (impl AsyncWrite + Unpin)) -> Result<()> {
        let mut head = BytesMut::with_capacity(HEAD);
        head.put_u32((HEAD - 4 + body.len()) as u32);
        head.put_u8(self.kind.code() | marks.code());
        head.put_u32(self.id);
        // In one write: alone, the head of a large frame would be a separate ssh packet.
        to.write_all_buf(&mut head.chain(body)).await
    }

    /// The next one, where nothing was agreed on.
    ///
    /// Errors: as [`Frame::read`].
    pub async fn read_plain(from: &mut (impl AsyncRead + Unpin)) -> Result<Option<Frame>> {
        Frame::read(from, &mut ReceiverHistory::default()).await
    }

    /// The next frame; `None` where the pipe ends between two. Compressed frames, and those kept as history, are read where both ends
    /// agreed on them.
    ///
    /// Errors: the pipe's; `InvalidData` when it isn't a frame.
    pub async fn read(from: &mut (impl AsyncRead + Unpin), reading: &mut ReceiverHistory) -> Result<Option<Frame>> {
        let mut head = [0; HEAD];
        if from.read(&mut head[..1]).await? == 0 {
            return Ok(None);
        }
        from.read_exact(&mut head[1..]).await?;
        let [a, b, c, d, code, e, f, g, h] = head;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let wrong = |what: &str| Error::new(ErrorKind::InvalidData, format!("{what} ({})", head.escape_ascii()));
        let size = length
            .checked_sub(HEAD - 4)
            .filter(|size| *size <= MOST)
            .ok_or_else(|| wrong("a frame's length is wrong"))?;
        let (kind, marks) = Kind::of(code).ok_or_else(|| wrong("a frame is of no known kind"))?;
        if marks.packed && !reading.packs {
            return Err(wrong("a frame is compressed, which was not agreed on"));
        }
        if marks.kept && reading.history.is_none() {
            return Err(wrong("a frame is to be kept for others, which was not agreed on"));
        }
        let mut body = BytesMut::with_capacity(size);
        // Grows as bytes arrive: an announced length alone takes no memory.
        while body.len() < size {
            if (&mut *from).take((size - body.len()) as u64).read_buf(&mut body).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let id = u32::from_be_bytes([e, f, g, h]);
        let body = match (&mut reading.history, marks) {
            (Some(history), Marks { kept: true, packed }) => {
                let body =
                    if packed { unpack_behind(&body, |length| history.last(id, length))? } else { body.freeze() };
                history.keep(id, body.clone());
                body
            }
            _ if marks.packed => unpack(&body)?,
            _ => body.freeze(),
        };
        Ok(Some(Frame { kind, id, body }))
    }
}

/// The next frame as it crosses: its head, of which the fifth byte is the kind's code, and what it carries.
#[cfg(test)]
pub async fn crossing(from: &mut (impl AsyncRead + Unpin)) -> ([u8; HEAD], Vec<u8>) {
    let mut head = [0; HEAD];
    from.read_exact(&mut head).await.expect("a head");
    let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let mut body = vec![0; length + 4 - HEAD];
    from.read_exact(&mut body).await.expect("a body");
    (head, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        compression::{pack, pack_behind},
        history::History,
    };
    use proptest::prelude::*;

    fn block<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }

    /// Compressed frames were agreed on, kept ones not.
    fn packed() -> ReceiverHistory {
        ReceiverHistory { packs: true, history: None }
    }

    #[test]
    fn what_is_written_is_read() {
        let frames = [
            Frame { kind: Kind::Request, id: 1, body: Bytes::from_static(b"ask") },
            Frame { kind: Kind::Data, id: u32::MAX, body: Bytes::from(vec![7; 3 * PIECE]) },
            Frame { kind: Kind::Cancel, id: 0, body: Bytes::new() },
            Frame::taken(9, u64::MAX),
        ];
        let mut pipe = Vec::new();
        block(async {
            for frame in &frames {
                frame.write(&mut pipe).await.unwrap();
            }
            let mut from = pipe.as_slice();
            for frame in &frames {
                assert_eq!(Frame::read_plain(&mut from).await.unwrap().as_ref(), Some(frame));
            }
            assert_eq!(Frame::read_plain(&mut from).await.unwrap(), None);
        });
        assert_eq!(frames[3].count(), Some(u64::MAX));
    }

    #[test]
    fn a_frame_that_is_cut_or_too_long_is_an_error() {
        block(async {
            let whole = [0, 0, 0, 8, 1, 0, 0, 0, 1, b'a', b'b', b'c'];
            assert!(Frame::read(&mut &whole[..], &mut packed()).await.unwrap().is_some());
            for end in 1..whole.len() {
                assert!(Frame::read(&mut &whole[..end], &mut packed()).await.is_err(), "{end}");
            }
            let long = [0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 1];
            assert_eq!(Frame::read_plain(&mut &long[..]).await.unwrap_err().kind(), ErrorKind::InvalidData);
            let short = [0, 0, 0, 4, 1, 0, 0, 0, 1];
            assert_eq!(Frame::read_plain(&mut &short[..]).await.unwrap_err().kind(), ErrorKind::InvalidData);
        });
    }

    #[test]
    fn a_compressed_frame_is_read_only_where_that_was_agreed() {
        let frame = Frame { kind: Kind::Data, id: 1, body: Bytes::from(vec![0; 4 * PIECE]) };
        let mut pipe = Vec::new();
        block(async {
            let marks = Marks { packed: true, kept: false };
            frame.write_as(marks, &pack(&frame.body, 3).unwrap(), &mut pipe).await.unwrap();
            assert_eq!(Frame::read(&mut pipe.as_slice(), &mut packed()).await.unwrap(), Some(frame));
            let error = Frame::read_plain(&mut pipe.as_slice()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData);
            assert!(error.to_string().starts_with("a frame is compressed, which was not agreed on"), "{error}");
        });
    }

    #[test]
    fn a_frame_that_is_kept_is_read_only_behind_what_it_was_packed_behind() {
        let kept = || ReceiverHistory { history: Some(History::default()), ..packed() };
        let before = haul_testkit::folder::noise(1, PIECE);
        let frame = |body: &[u8]| Frame { kind: Kind::Data, id: 1, body: Bytes::copy_from_slice(body) };
        let (plain, marks) = (Marks { packed: false, kept: true }, Marks { packed: true, kept: true });
        // zstd heeds no prefix that lies where the body does.
        let body = pack_behind(&before, &before.clone(), 3).unwrap();
        assert!(body.len() < 1000, "it is all in the prefix");
        let read = |first: Option<Vec<u8>>, body: Vec<u8>| {
            let mut pipe = Vec::new();
            block(async {
                if let Some(first) = first {
                    frame(&first).write_as(plain, &first, &mut pipe).await.unwrap();
                }
                frame(&before).write_as(marks, &body, &mut pipe).await.unwrap();
                let (mut from, mut reading) = (pipe.as_slice(), kept());
                let mut last = None;
                while let Some(frame) = Frame::read(&mut from, &mut reading).await? {
                    last = Some(frame.body);
                }
                Ok::<_, Error>(last.unwrap())
            })
        };
        assert_eq!(read(Some(before.clone()), body.clone()).unwrap(), before);
        let refused = |first, body| read(first, body).unwrap_err().to_string();
        assert_eq!(refused(None, body.clone()), "a compressed frame follows on more than there was");
        assert_eq!(refused(Some(vec![0; PIECE]), body.clone()), "a compressed frame is damaged");
        for at in 8..body.len() {
            let mut body = body.clone();
            body[at] ^= 1;
            // Bits that nobody heeds there may be.
            if let Ok(read) = read(Some(before.clone()), body) {
                assert_eq!(read, before, "{at}");
            }
        }
        let mut pipe = Vec::new();
        block(frame(&before).write_as(plain, &before, &mut pipe)).unwrap();
        let error = block(Frame::read(&mut pipe.as_slice(), &mut packed())).unwrap_err().to_string();
        assert!(error.starts_with("a frame is to be kept for others, which was not agreed on"), "{error}");
    }

    proptest! {
        #[test]
        fn bytes_of_any_kind_give_frames_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            block(async {
                let mut from = bytes.as_slice();
                while let Ok(Some(frame)) = Frame::read_plain(&mut from).await {
                    assert!(frame.body.len() <= bytes.len());
                }
                let mut from = bytes.as_slice();
                let mut reading = ReceiverHistory { history: Some(History::default()), ..packed() };
                while let Ok(Some(frame)) = Frame::read(&mut from, &mut reading).await {
                    assert!(frame.body.len() <= MOST);
                }
            });
        }
    }
}
