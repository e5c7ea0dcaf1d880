//! Frames: what crosses a pair of pipes, one after another, each of one request. Pure but for the reading and writing of them.
//!
//! A frame is its length (4 bytes, big-endian: of what follows), a kind (1 byte), the number of its request (4 bytes, big-endian), and
//! what it carries, which may be compressed (the kind says so).

pub use crate::pack::MOST;
use crate::pack::unpack;
use bytes::{BufMut, Bytes, BytesMut};
use std::io::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes of a frame before what it carries.
const HEAD: usize = 9;

/// Bit of a kind: what the frame carries is compressed.
const PACKED: u8 = 0x80;

/// Bytes of content in a frame: little enough that a question which comes behind a few of them doesn't wait long.
pub const PIECE: usize = 256 << 10;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something is asked for: a message.
    Request,
    /// An answer, or one of several: a message.
    Answer,
    /// Content of a request or of its answer.
    Data,
    /// The asker has taken so many bytes of the answer (8 bytes, big-endian), and as many more may come.
    Taken,
    /// The asker no longer wants the answer.
    Cancel,
    /// The far end is there, though it has nothing to say.
    Alive,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// Number of its request, chosen by the asker.
    pub id: u32,
    /// What it carries.
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

    /// From its code, and whether its body is compressed.
    fn of(code: u8) -> Option<(Kind, bool)> {
        let plain = code & !PACKED;
        [Kind::Request, Kind::Answer, Kind::Data, Kind::Taken, Kind::Cancel, Kind::Alive]
            .into_iter()
            .find(|kind| kind.code() == plain)
            .map(|kind| (kind, code != plain))
    }
}

impl Frame {
    /// A sign of life.
    pub const ALIVE: Frame = Frame { kind: Kind::Alive, id: 0, body: Bytes::new() };

    /// That so many bytes were taken.
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
        self.write_as(self.kind.code(), &self.body, to).await
    }

    /// Writes it with this body, which is what [`pack`](crate::pack::pack) made of its own.
    ///
    /// Errors: the pipe's.
    pub async fn write_packed(&self, packed: &[u8], to: &mut (impl AsyncWrite + Unpin)) -> Result<()> {
        self.write_as(self.kind.code() | PACKED, packed, to).await
    }

    async fn write_as(&self, code: u8, body: &[u8], to: &mut (impl AsyncWrite + Unpin)) -> Result<()> {
        let mut head = BytesMut::with_capacity(HEAD);
        head.put_u32((HEAD - 4 + body.len()) as u32);
        head.put_u8(code);
        head.put_u32(self.id);
        to.write_all(&head).await?;
        to.write_all(body).await
    }

    /// The next one; `None` where the pipe ends between two. Compressed ones are read where both ends agreed on them (`packs`).
    ///
    /// Errors: the pipe's; `InvalidData` for what is no frame.
    pub async fn read(from: &mut (impl AsyncRead + Unpin), packs: bool) -> Result<Option<Frame>> {
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
        let (kind, packed) = Kind::of(code).ok_or_else(|| wrong("a frame is of no known kind"))?;
        if packed && !packs {
            return Err(wrong("a frame is compressed, which was not agreed on"));
        }
        let mut body = BytesMut::with_capacity(size);
        // Grows as bytes come: what a length promises takes no memory by itself.
        while body.len() < size {
            if (&mut *from).take((size - body.len()) as u64).read_buf(&mut body).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let body = if packed { unpack(&body)? } else { body.freeze() };
        Ok(Some(Frame { kind, id: u32::from_be_bytes([e, f, g, h]), body }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
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
                assert_eq!(Frame::read(&mut from, false).await.unwrap().as_ref(), Some(frame));
            }
            assert_eq!(Frame::read(&mut from, false).await.unwrap(), None);
        });
        assert_eq!(frames[3].count(), Some(u64::MAX));
    }

    #[test]
    fn a_frame_that_is_cut_or_too_long_is_an_error() {
        block(async {
            let whole = [0, 0, 0, 8, 1, 0, 0, 0, 1, b'a', b'b', b'c'];
            assert!(Frame::read(&mut &whole[..], true).await.unwrap().is_some());
            for end in 1..whole.len() {
                assert!(Frame::read(&mut &whole[..end], true).await.is_err(), "{end}");
            }
            let long = [0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 1];
            assert_eq!(Frame::read(&mut &long[..], true).await.unwrap_err().kind(), ErrorKind::InvalidData);
            let short = [0, 0, 0, 4, 1, 0, 0, 0, 1];
            assert_eq!(Frame::read(&mut &short[..], true).await.unwrap_err().kind(), ErrorKind::InvalidData);
        });
    }

    #[test]
    fn a_compressed_frame_is_read_only_where_that_was_agreed() {
        let frame = Frame { kind: Kind::Data, id: 1, body: Bytes::from(vec![0; 4 * PIECE]) };
        let mut pipe = Vec::new();
        block(async {
            frame.write_packed(&crate::pack::pack(&frame.body, 3).unwrap(), &mut pipe).await.unwrap();
            assert_eq!(Frame::read(&mut pipe.as_slice(), true).await.unwrap(), Some(frame));
            let error = Frame::read(&mut pipe.as_slice(), false).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData);
            assert!(error.to_string().starts_with("a frame is compressed, which was not agreed on"), "{error}");
        });
    }

    proptest! {
        #[test]
        fn bytes_of_any_kind_give_frames_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            block(async {
                let mut from = bytes.as_slice();
                while let Ok(Some(frame)) = Frame::read(&mut from, false).await {
                    assert!(frame.body.len() <= bytes.len());
                }
            });
        }
    }
}
