//! Encrypted content as the other store has it: a header with a nonce, then blocks, each a NaCl secretbox (XSalsa20 and Poly1305) under
//! its own nonce. rclone's format, bit for bit.

use crate::salsa::{self, Stream};
use bytes::{Bytes, BytesMut};
use haul_core::{Error, ErrorKind, Result};
use poly1305::{Poly1305, universal_hash::KeyInit as _};
use std::ops::Range;
use subtle::ConstantTimeEq as _;

/// Magic bytes of an encrypted file.
const MAGIC: [u8; 8] = *b"RCLONE\0\0";
/// Bytes of a nonce.
pub const NONCE: usize = 24;
/// Bytes before the first block.
pub const HEADER: u64 = 32;
/// Plain bytes of each block but the last.
pub const BLOCK: u64 = 64 << 10;
/// Bytes of a block's authenticator, which comes before its content.
pub const TAG: u64 = 16;
/// Bytes of a whole block, encrypted.
pub const SEALED: u64 = BLOCK + TAG;

/// How a file's blocks are encrypted: the first one's nonce; that of each further one is greater by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce(pub [u8; NONCE]);

impl Nonce {
    /// A new one.
    ///
    /// Errors: the system gives no random numbers.
    pub fn random() -> Result<Nonce> {
        let mut nonce = [0; NONCE];
        match aws_lc_rs::rand::fill(&mut nonce) {
            Ok(()) => Ok(Nonce(nonce)),
            Err(_) => Err(Error::new(ErrorKind::Io, "encrypt", "the system gives no random numbers")),
        }
    }

    /// Header of a file with this nonce.
    pub fn header(self) -> [u8; HEADER as usize] {
        let mut header = [0; HEADER as usize];
        header[..MAGIC.len()].copy_from_slice(&MAGIC);
        header[MAGIC.len()..].copy_from_slice(&self.0);
        header
    }

    /// The nonce of a file that begins so.
    ///
    /// Errors: `Corrupt` when no encrypted file begins so.
    pub fn of_header(header: &[u8]) -> Result<Nonce> {
        let nonce = header.strip_prefix(&MAGIC).and_then(|rest| rest.try_into().ok());
        nonce.map(Nonce).ok_or_else(|| corrupt("it isn't an encrypted file: its header is another"))
    }

    /// That of block `number`: the sum as a little-endian number of 192 bits.
    fn of_block(self, number: u64) -> [u8; NONCE] {
        let (mut nonce, mut carry) = (self.0, u128::from(number));
        for byte in &mut nonce {
            carry += u128::from(*byte);
            *byte = carry as u8;
            carry >>= 8;
        }
        nonce
    }
}

fn corrupt(message: &str) -> Error {
    Error::new(ErrorKind::Corrupt, "decrypt", message)
}

/// Bytes that a file of `plain` bytes has when it is encrypted.
pub fn sealed_size(plain: u64) -> u64 {
    let rest = plain % BLOCK;
    HEADER + plain / BLOCK * SEALED + if rest > 0 { rest + TAG } else { 0 }
}

/// Bytes that an encrypted file of `sealed` bytes has when it is decrypted; `None` when no encrypted file has this size.
pub fn plain_size(sealed: u64) -> Option<u64> {
    let blocks = sealed.checked_sub(HEADER)?;
    let rest = match blocks % SEALED {
        0 => 0,
        rest => rest.checked_sub(TAG).filter(|rest| *rest > 0)?,
    };
    Some(blocks / SEALED * BLOCK + rest)
}

/// Where the encrypted bytes are that hold the plain bytes `range` of a file of `size` plain bytes, header left out. Whole blocks.
pub fn sealed_range(range: &Range<u64>, size: u64) -> Range<u64> {
    let start = HEADER + range.start / BLOCK * SEALED;
    if range.is_empty() {
        return start..start;
    }
    start..(HEADER + range.end.div_ceil(BLOCK) * SEALED).min(sealed_size(size))
}

/// Where a part that begins at `offset` of the plain bytes begins in the encrypted ones; the header belongs to the first.
pub fn sealed_offset(offset: u64) -> u64 {
    if offset == 0 { 0 } else { HEADER + offset / BLOCK * SEALED }
}

/// Bytes of a part of `size` plain bytes that begins at `offset`, with the header where it is the first.
pub fn sealed_part(offset: u64, size: u64) -> u64 {
    sealed_size(size) - if offset == 0 { 0 } else { HEADER }
}

/// Encrypts and decrypts content.
#[derive(Clone, Copy)]
pub struct Sealer {
    key: [u8; 32],
}

/// The authenticator of a block's encrypted bytes under the stream's first bytes.
fn tag(key: [u8; salsa::FIRST], sealed: &[u8]) -> [u8; TAG as usize] {
    Poly1305::new(&key.into()).compute_unpadded(sealed).into()
}

impl Sealer {
    /// With this key.
    pub fn new(key: [u8; 32]) -> Sealer {
        Sealer { key }
    }

    /// Encrypts plain bytes from block `number` on, behind what `out` has.
    pub fn seal(self, nonce: Nonce, number: u64, out: BytesMut) -> Sealing {
        Sealing { sealer: self, nonce, number, begun: out.len(), out }
    }

    /// One block in place, which has room for its authenticator in front.
    fn seal_block(&self, nonce: Nonce, number: u64, block: &mut [u8]) {
        let Some((space, content)) = block.split_first_chunk_mut::<{ TAG as usize }>() else { return };
        let key = Stream::new(&self.key, &nonce.of_block(number)).apply(content);
        *space = tag(key, content);
    }

    /// Block `number`, decrypted.
    ///
    /// Errors: `Corrupt` when it isn't what was encrypted with this key at this place.
    pub fn open(&self, nonce: Nonce, number: u64, sealed: &[u8]) -> Result<Bytes> {
        let short = || corrupt("a block is cut off");
        let (sent, content) = sealed.split_at_checked(TAG as usize).filter(|(_, c)| !c.is_empty()).ok_or_else(short)?;
        let mut plain = BytesMut::from(content);
        let key = Stream::new(&self.key, &nonce.of_block(number)).apply(&mut plain);
        if bool::from(tag(key, content).ct_eq(sent)) {
            return Ok(plain.freeze());
        }
        Err(corrupt("the content was damaged, or encrypted with another password"))
    }
}

/// Encrypts bytes as they come.
pub struct Sealing {
    sealer: Sealer,
    nonce: Nonce,
    /// The number of the block that is being filled.
    number: u64,
    /// Where it begins.
    begun: usize,
    out: BytesMut,
}

impl Sealing {
    /// Takes further bytes.
    pub fn take(&mut self, mut plain: &[u8]) {
        while !plain.is_empty() {
            if self.out.len() == self.begun {
                self.out.extend_from_slice(&[0; TAG as usize]);
            }
            let room = self.begun + SEALED as usize - self.out.len();
            let (now, rest) = plain.split_at(plain.len().min(room));
            self.out.extend_from_slice(now);
            if now.len() == room {
                self.close();
            }
            plain = rest;
        }
    }

    fn close(&mut self) {
        self.sealer.seal_block(self.nonce, self.number, &mut self.out[self.begun..]);
        (self.begun, self.number) = (self.out.len(), self.number + 1);
    }

    /// All that was encrypted; the last block may be shorter than others.
    pub fn end(mut self) -> BytesMut {
        if self.out.len() > self.begun {
            self.close();
        }
        self.out
    }
}

/// Decrypts bytes as they come: whole blocks from one on.
pub struct Opener {
    sealer: Sealer,
    nonce: Nonce,
    /// The next block's number.
    number: u64,
    held: BytesMut,
}

impl Opener {
    /// From block `number` on.
    pub fn new(sealer: Sealer, nonce: Nonce, number: u64) -> Opener {
        Opener { sealer, nonce, number, held: BytesMut::new() }
    }

    /// Takes further bytes; returns the blocks that are complete now.
    ///
    /// Errors: as [`Sealer::open`].
    pub fn take(&mut self, bytes: &[u8]) -> Result<Vec<Bytes>> {
        self.held.extend_from_slice(bytes);
        let mut opened = Vec::new();
        while self.held.len() as u64 >= SEALED {
            let block = self.held.split_to(SEALED as usize);
            opened.push(self.next(&block)?);
        }
        Ok(opened)
    }

    /// The last block, which may be shorter; `None` when nothing is left.
    ///
    /// Errors: as [`Sealer::open`].
    pub fn end(mut self) -> Result<Option<Bytes>> {
        let last = std::mem::take(&mut self.held);
        if last.is_empty() { Ok(None) } else { self.next(&last).map(Some) }
    }

    fn next(&mut self, block: &[u8]) -> Result<Bytes> {
        let plain = self.sealer.open(self.nonce, self.number, block)?;
        self.number += 1;
        Ok(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOTHING: Nonce = Nonce([0; NONCE]);

    fn sealer() -> Sealer {
        Sealer::new([0; 32])
    }

    fn sealed(nonce: Nonce, offset: usize, pieces: &[&[u8]]) -> Vec<u8> {
        let header = nonce.header();
        let front = if offset == 0 { &header[..] } else { &[] };
        let mut sealing = sealer().seal(nonce, offset as u64 / BLOCK, front.into());
        pieces.iter().for_each(|piece| sealing.take(piece));
        sealing.end().to_vec()
    }

    #[test]
    fn nonces_count_up_as_one_number() {
        let mut nonce = Nonce([0xff; NONCE]);
        assert_eq!(nonce.of_block(1), [0; NONCE]);
        nonce.0[8] = 0;
        let mut one = [0xff; NONCE];
        one[..8].fill(0);
        one[8] = 1;
        assert_eq!(nonce.of_block(1), one);
        assert_eq!(nonce.of_block(0), nonce.0);
    }

    #[test]
    fn sizes_of_all_lengths_near_a_block() {
        for plain in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK, 5 * BLOCK + 7] {
            assert_eq!(plain_size(sealed_size(plain)), Some(plain));
            let made = sealed(NOTHING, 0, &[&vec![7; plain as usize]]);
            assert_eq!(made.len() as u64, sealed_size(plain));
        }
        for sealed in [0, 31, 33, 48, 32 + SEALED + 1, 32 + SEALED + 16] {
            assert_eq!(plain_size(sealed), None, "{sealed}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn parts_make_one_file_which_comes_back(size in 0usize..300_000, part in 1usize..4, cut in 1usize..50_000) {
            let plain: Vec<u8> = (0..size).map(|n| (n * 31 % 251) as u8).collect();
            let nonce = Nonce([9; NONCE]);
            let whole = sealed(nonce, 0, &[&plain]);
            let mut parts = Vec::new();
            for (n, piece) in plain.chunks(part * BLOCK as usize).enumerate() {
                let pieces: Vec<&[u8]> = piece.chunks(cut).collect();
                let offset = n * part * BLOCK as usize;
                prop_assert_eq!(parts.len() as u64, sealed_offset(offset as u64));
                let sealed = sealed(nonce, offset, &pieces);
                prop_assert_eq!(sealed.len() as u64, sealed_part(offset as u64, piece.len() as u64));
                parts.extend(sealed);
            }
            if size == 0 {
                parts = nonce.header().to_vec();
            }
            prop_assert!(parts == whole);
            let mut opener = Opener::new(sealer(), Nonce::of_header(&whole[..32]).unwrap(), 0);
            let mut back = Vec::new();
            for piece in whole[32..].chunks(cut) {
                back.extend(opener.take(piece).unwrap().concat());
            }
            back.extend(opener.end().unwrap().unwrap_or_default());
            prop_assert!(back == plain);
        }

        #[test]
        fn a_changed_bit_is_noticed(size in 1usize..1000, at: prop::sample::Index, bit in 0u8..8) {
            let sealed = sealed(NOTHING, 0, &[&vec![1; size]]);
            let mut block = sealed[32..].to_vec();
            let at = at.index(block.len());
            block[at] ^= 1 << bit;
            prop_assert!(sealer().open(NOTHING, 0, &block).is_err());
        }
    }
}
