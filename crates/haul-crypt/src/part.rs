//! A part as the other store gets it, encrypted a few blocks at a time as it is sent: neither what is plain nor what is encrypted is ever
//! whole in memory.

use crate::content::{self, BLOCK, HEADER, Nonce, SEALED, Sealer};
use bytes::{Bytes, BytesMut};
use haul_core::Result;
use haul_store::{GeneratedBytes, Payload};
use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Blocks that are encrypted at once: half of what is read from a file at once, so that with what becomes of them no more is in memory
/// than of a plain upload.
const TURN: u64 = 2;

/// The encrypted blocks of a part's plain bytes, something before them, and perhaps not the last of them.
pub struct SealedPart {
    sealer: Sealer,
    nonce: Nonce,
    /// Where the plain bytes begin: at a block.
    offset: u64,
    plain: Payload,
    /// Bytes to send first: the file's header, or the end of the part before.
    front: Bytes,
    /// Encrypted bytes in all, without what is left to the next part.
    size: u64,
    passed: Mutex<PartChecksums>,
}

/// CRC-64s of what was encrypted from the first byte on, whoever asked for it.
#[derive(Clone)]
struct PartChecksums {
    plain: crc_fast::Digest,
    sealed: crc_fast::Digest,
    turns: u64,
}

impl PartChecksums {
    fn nothing() -> PartChecksums {
        let digest = || crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
        PartChecksums { plain: digest(), sealed: digest(), turns: 0 }
    }
}

impl fmt::Debug for SealedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedPart({} bytes of {:?})", self.size, self.plain)
    }
}

impl SealedPart {
    /// `plain` bytes from `offset` on, after `front`; the last `left` encrypted bytes are left to the next part.
    pub fn new(sealer: Sealer, nonce: Nonce, offset: u64, plain: Payload, front: Bytes, left: u64) -> SealedPart {
        let size = (front.len() as u64 + content::sealed_size(plain.len()) - HEADER).saturating_sub(left);
        let passed = Mutex::new(PartChecksums::nothing());
        SealedPart { sealer, nonce, offset, plain, front, size, passed }
    }

    /// Bytes that are sent.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Where the bytes begin that are made in turn `turn`.
    fn begin(&self, turn: u64) -> u64 {
        if turn == 0 { 0 } else { self.front.len() as u64 + turn * TURN * SEALED }
    }

    fn turns(&self) -> u64 {
        self.plain.len().div_ceil(TURN * BLOCK).max(1)
    }

    /// All bytes that are made in turn `turn`, taken into `passed`.
    fn make(&self, turn: u64, passed: &mut PartChecksums) -> Result<Bytes> {
        let at = turn * TURN * BLOCK;
        let front: &[u8] = if turn == 0 { &self.front } else { &[] };
        let mut out = BytesMut::with_capacity(front.len() + (TURN * SEALED) as usize);
        out.extend_from_slice(front);
        let mut sealing = self.sealer.seal(self.nonce, (self.offset + at) / BLOCK, out);
        self.plain.slice(at..at + TURN * BLOCK).each(|piece| {
            passed.plain.update(piece);
            sealing.take(piece);
        })?;
        let mut out = sealing.end();
        out.truncate(self.size.saturating_sub(self.begin(turn)) as usize);
        passed.sealed.update(&out);
        passed.turns += 1;
        Ok(out.freeze())
    }

    /// CRC-64/NVME of the plain bytes, and of the encrypted ones that are sent.
    ///
    /// Errors: reading the plain bytes failed, where not all were sent in order.
    pub fn crc64(&self) -> Result<(u64, u64)> {
        let mut passed = self.passed().clone();
        if passed.turns < self.turns() {
            passed = PartChecksums::nothing();
            for turn in 0..self.turns() {
                self.make(turn, &mut passed)?;
            }
        }
        Ok((passed.plain.finalize(), passed.sealed.finalize()))
    }

    fn passed(&self) -> MutexGuard<'_, PartChecksums> {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GeneratedBytes for SealedPart {
    fn block(&self, at: u64, most: u64) -> Result<Bytes> {
        let front = self.front.len() as u64;
        let turn = if at < front { 0 } else { (at - front) / (TURN * SEALED) };
        let mut passed = Some(self.passed().clone()).filter(|passed| passed.turns == turn);
        let made = self.make(turn, passed.as_mut().unwrap_or(&mut PartChecksums::nothing()))?;
        if let Some(passed) = passed {
            // Two that ask for the same make the same.
            *self.passed() = passed;
        }
        let from = (at - self.begin(turn)) as usize;
        let to = made.len().min(from.saturating_add(usize::try_from(most).unwrap_or(usize::MAX)));
        Ok(made.slice(from..to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn crc64(bytes: &[u8]) -> u64 {
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
        digest.update(bytes);
        digest.finalize()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn any_range_and_piece_size_encrypts_to_the_same_bytes(
            size in 0usize..600_000, front in 0usize..40, left in 0usize..33, asked in 1u64..400_000, whole: bool,
        ) {
            let left = left.min(front);
            let plain: Vec<u8> = (0..size).map(|n| (n * 31 % 251) as u8).collect();
            let (sealer, nonce, offset) = (Sealer::new([1; 32]), Nonce([9; 24]), 5 * BLOCK);
            let mut sealing = sealer.seal(nonce, 5, (&vec![4; front][..]).into());
            sealing.take(&plain);
            let mut wanted = sealing.end();
            wanted.truncate(wanted.len() - left);
            let pieces = plain.chunks(7777).map(Bytes::copy_from_slice).collect();
            let part = SealedPart::new(sealer, nonce, offset, Payload::new(pieces), vec![4; front].into(), left as u64);
            prop_assert_eq!(part.size(), wanted.len() as u64);
            let mut got = Vec::new();
            while (got.len() as u64) < part.size() {
                let at = got.len() as u64;
                let most = if whole { part.size() - at } else { asked.min(part.size() - at) };
                got.extend_from_slice(&part.block(at, most).unwrap());
            }
            prop_assert!(got == wanted);
            prop_assert_eq!(part.crc64().unwrap(), (crc64(&plain), crc64(&wanted)));
        }
    }
}
