//! Bytes that are computed instead of stored: an endless sequence for each seed, of which any range costs next to
//! nothing. Simple enough to be written again in a few lines of any language, so that a script can check content.
//!
//! **The sequence of a seed.** A block of 1 MiB is made of 131,072 words of 64 bits, little-endian: word `i` is
//! splitmix64's output number `i` (counted from 0) for that seed. The sequence repeats this block; in block number
//! `b` (counted from 0) the first word is XORed with `b`. So byte `n` lies in block `n >> 20`, and no two blocks are
//! equal.

use bytes::Bytes;
use haul_core::{Algo, Hasher};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// Size of a block in bytes.
pub const BLOCK: u64 = 1 << 20;
/// Blocks kept for seeds that were asked for, 1 MiB each; when there are more, all are made again.
const KEPT: usize = 64;

/// splitmix64's step from a state to an output (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
/// OOPSLA 2014).
pub fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// splitmix64's output number `n` for a seed.
pub fn splitmix(seed: u64, n: u64) -> u64 {
    mix(seed.wrapping_add(n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// Block number 0 of a seed, shared.
fn block(seed: u64) -> Bytes {
    static BLOCKS: Mutex<BTreeMap<u64, Bytes>> = Mutex::new(BTreeMap::new());
    let mut blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(block) = blocks.get(&seed) {
        return block.clone();
    }
    let block: Vec<u8> = (0..BLOCK / 8).flat_map(|i| splitmix(seed, i).to_le_bytes()).collect();
    let block = Bytes::from(block);
    if blocks.len() >= KEPT {
        blocks.clear();
    }
    blocks.insert(seed, block.clone());
    block
}

/// The first bytes of a range, without a copy: at least one and at most `most` of them, up to the end of a block or
/// of its first word.
pub fn piece(seed: u64, offset: u64, most: usize) -> Bytes {
    let block = block(seed);
    let (number, at) = (offset / BLOCK, (offset % BLOCK) as usize);
    if at < 8 && number > 0 {
        let first = u64::from_le_bytes(std::array::from_fn(|i| block[i])) ^ number;
        let end = (at + most).min(8);
        return Bytes::copy_from_slice(&first.to_le_bytes()[at..end]);
    }
    block.slice(at..block.len().min(at.saturating_add(most)))
}

/// The bytes of a range.
pub fn bytes(seed: u64, offset: u64, len: u64) -> Vec<u8> {
    let mut all = Vec::with_capacity(len as usize);
    each(seed, offset, len, |piece| all.extend_from_slice(piece));
    all
}

/// Gives the bytes of a range in pieces, in order.
pub fn each(seed: u64, offset: u64, len: u64, mut take: impl FnMut(&[u8])) {
    let (mut at, end) = (offset, offset + len);
    while at < end {
        let piece = piece(seed, at, usize::try_from(end - at).unwrap_or(usize::MAX));
        take(&piece);
        at += piece.len() as u64;
    }
}

/// CRC-64/NVME of a range: of a long one without looking at its bytes.
pub fn crc(seed: u64, offset: u64, len: u64) -> u64 {
    let end = offset + len;
    let (first, last) = (offset.div_ceil(BLOCK), end / BLOCK);
    if last < first + 2 {
        let mut hasher = Hasher::new(&[Algo::Crc64Nvme]);
        each(seed, offset, len, |piece| hasher.update(piece));
        return finished(hasher);
    }
    let rest = crc(seed, 8, BLOCK - 8);
    let mut whole = crc(seed, offset, first * BLOCK - offset);
    for number in first..last {
        whole = combine(whole, crc(seed, number * BLOCK, 8), 8);
        whole = combine(whole, rest, BLOCK - 8);
    }
    combine(whole, crc(seed, last * BLOCK, end - last * BLOCK), end - last * BLOCK)
}

/// MD5 of a range, which must look at every byte.
pub fn md5(seed: u64, offset: u64, len: u64) -> [u8; 16] {
    let mut hasher = Hasher::new(&[Algo::Md5]);
    each(seed, offset, len, |piece| hasher.update(piece));
    hasher.finish().get(Algo::Md5).and_then(|md5| md5.try_into().ok()).unwrap_or_default()
}

/// The CRC-64/NVME that a hasher of it has come to.
pub fn finished(hasher: Hasher) -> u64 {
    hasher.finish().crc64().unwrap_or_default()
}

/// CRC-64/NVME of two pieces of content, one after the other.
pub fn combine(first: u64, second: u64, second_len: u64) -> u64 {
    if second_len == 0 {
        return first;
    }
    crc_fast::checksum_combine(crc_fast::CrcAlgorithm::Crc64Nvme, first, second, second_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        // The reference implementation's first outputs for the seed 1234567 (Vigna, splitmix64.c).
        assert_eq!(splitmix(1_234_567, 0), 6_457_827_717_110_365_317);
        assert_eq!(splitmix(1_234_567, 1), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_range_is_what_the_whole_says() {
        let whole = bytes(7, 0, 3 * BLOCK + 100);
        assert_eq!(whole[..8], splitmix(7, 0).to_le_bytes());
        assert_eq!(whole[BLOCK as usize..][..8], (splitmix(7, 0) ^ 1).to_le_bytes());
        assert_eq!(whole[8..1000], whole[BLOCK as usize + 8..][..992]);
        for (offset, len) in [(0, 1), (5, 10), (BLOCK - 3, 20), (BLOCK + 2, 3), (2 * BLOCK + 7, 2), (9, 2 * BLOCK + 50)]
        {
            assert_eq!(bytes(7, offset, len), whole[offset as usize..][..len as usize], "{offset}+{len}");
        }
    }

    #[test]
    fn checksums_of_long_ranges_are_put_together() {
        for (offset, len) in
            [(0, 0), (3, 5 * BLOCK), (0, 4 * BLOCK), (BLOCK, 3 * BLOCK + 1), (BLOCK - 1, 2 * BLOCK + 3)]
        {
            let mut hasher = Hasher::new(&[Algo::Crc64Nvme]);
            hasher.update(&bytes(9, offset, len));
            assert_eq!(crc(9, offset, len), finished(hasher), "{offset}+{len}");
        }
    }
}
