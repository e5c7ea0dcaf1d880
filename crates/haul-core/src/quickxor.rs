//! QuickXorHash, as OneDrive and SharePoint have it
//! (<https://learn.microsoft.com/onedrive/developer/code-snippets/quickxorhash>): byte `i` is XORed into a ring of 160 bits at bit
//! `11 · i`, and the length into the last 64 of them. Every 160 bytes it begins at bit 0 again, so that bytes are first XORed
//! into a block of that size.

/// Bytes after which the places repeat.
const BLOCK: usize = 160;
/// Bytes of a value.
pub const SIZE: usize = 20;

/// A value in the making.
#[derive(Clone)]
pub struct QuickXor {
    block: [u8; BLOCK],
    at: usize,
    len: u64,
}

impl Default for QuickXor {
    fn default() -> Self {
        QuickXor { block: [0; BLOCK], at: 0, len: 0 }
    }
}

impl QuickXor {
    /// Takes in the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min((BLOCK - self.at) % BLOCK));
        self.xor(first);
        let (blocks, last) = rest.as_chunks::<BLOCK>();
        for block in blocks {
            self.block.iter_mut().zip(block).for_each(|(mine, new)| *mine ^= new);
        }
        self.xor(last);
    }

    /// Bytes that end within the block.
    fn xor(&mut self, bytes: &[u8]) {
        self.block[self.at..].iter_mut().zip(bytes).for_each(|(mine, new)| *mine ^= new);
        self.at = (self.at + bytes.len()) % BLOCK;
    }

    /// The value of the bytes.
    pub fn finish(&self) -> [u8; SIZE] {
        let mut ring = [0; SIZE];
        for (index, byte) in self.block.iter().enumerate() {
            put(&mut ring, 11 * index, *byte);
        }
        length(&mut ring, self.len);
        ring
    }
}

/// XORs eight bits into the ring, from this one on.
fn put(ring: &mut [u8; SIZE], bit: usize, byte: u8) {
    let bit = bit % (8 * SIZE);
    let [low, high] = (u16::from(byte) << (bit % 8)).to_le_bytes();
    ring[bit / 8] ^= low;
    ring[(bit / 8 + 1) % SIZE] ^= high;
}

fn length(ring: &mut [u8; SIZE], len: u64) {
    ring[SIZE - 8..].iter_mut().zip(len.to_le_bytes()).for_each(|(mine, new)| *mine ^= new);
}

/// The value of a whole from those of its pieces, in order, each with its length; `None` when a piece has none.
pub fn combine<'a>(pieces: impl IntoIterator<Item = (Option<&'a [u8]>, u64)>) -> Option<[u8; SIZE]> {
    let (mut whole, mut offset) = ([0; SIZE], 0u64);
    for (value, len) in pieces {
        let mut ring = <[u8; SIZE]>::try_from(value?).ok()?;
        length(&mut ring, len);
        let turn = 11 * (offset % BLOCK as u64) as usize;
        ring.iter().enumerate().for_each(|(index, byte)| put(&mut whole, turn + 8 * index, *byte));
        offset += len;
    }
    length(&mut whole, offset);
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::to_hex;

    fn of(bytes: &[u8]) -> String {
        let mut hash = QuickXor::default();
        hash.update(bytes);
        to_hex(&hash.finish())
    }

    #[test]
    fn published_values() {
        // "J" is rclone's, whose others are beside it in the tests of the binary; an empty file has all zeros.
        assert_eq!(of(b""), "0".repeat(40));
        assert_eq!(of(b"J"), "4a00000000000000000000000100000000000000");
    }

    #[test]
    fn pieces_make_the_whole() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i * i / 7) as u8).collect();
        // As the description has it, bit by bit.
        let mut bits = [false; 160];
        for (i, byte) in bytes.iter().enumerate() {
            (0..8).for_each(|bit| bits[(11 * i + bit) % 160] ^= byte >> bit & 1 == 1);
        }
        let mut slow: Vec<u8> =
            bits.chunks(8).map(|eight| eight.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit))).collect();
        (0..8).for_each(|i| slow[12 + i] ^= 5000u64.to_le_bytes()[i]);
        assert_eq!(of(&bytes), to_hex(&slow));
        for size in [1, 159, 160, 161, 333, 4999] {
            let parts = bytes.chunks(size).map(|part| {
                let mut hash = QuickXor::default();
                part.chunks(77).for_each(|piece| hash.update(piece));
                (hash.finish(), part.len() as u64)
            });
            let parts: Vec<_> = parts.collect();
            let whole = combine(parts.iter().map(|(value, len)| (Some(&value[..]), *len)));
            assert_eq!(to_hex(&whole.unwrap()), to_hex(&slow), "{size}");
        }
    }
}
