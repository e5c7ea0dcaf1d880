//! XSalsa20's stream: by the cipher's crate, or eight blocks side by side where the processor has AVX2, which takes a quarter of the
//! time (Salsa20 has no instruction of its own, and the crate works on one block after another).

// The only unsafe code of this crate: reading vector registers as bytes, and calling what was compiled for registers that were found to
// be there.
#![allow(unsafe_code)]

use salsa20::{
    XSalsa20,
    cipher::{KeyIvInit as _, StreamCipher as _},
};

/// Bytes that the stream gives to the authenticator's key before any content.
pub const FIRST: usize = 32;

/// One message's stream.
pub struct Stream {
    key: [u8; 32],
    nonce: [u8; 24],
}

impl Stream {
    /// Of this key and nonce.
    pub fn new(key: &[u8; 32], nonce: &[u8; 24]) -> Stream {
        Stream { key: *key, nonce: *nonce }
    }

    /// The stream's first bytes; `content` is encrypted or decrypted by those that follow.
    pub fn apply(&self, content: &mut [u8]) -> [u8; FIRST] {
        #[cfg(target_arch = "x86_64")]
        if content.len() >= x86::BLOCKS && is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, which is all that it was compiled for.
            return unsafe { x86::apply(&x86::state(&self.key, &self.nonce), content) };
        }
        self.apply_by_crate(content)
    }

    fn apply_by_crate(&self, content: &mut [u8]) -> [u8; FIRST] {
        let mut cipher = XSalsa20::new(&self.key.into(), &self.nonce.into());
        let mut first = [0; FIRST];
        cipher.apply_keystream(&mut first);
        cipher.apply_keystream(content);
        first
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::FIRST;
    use salsa20::{cipher::consts::U10, hsalsa};
    use std::arch::x86_64::*;

    /// Blocks side by side: a vector has one word of each.
    const LANES: usize = 8;
    /// Their bytes.
    pub const BLOCKS: usize = 64 * LANES;

    /// The matrix that blocks are made of, their number left out (D. J. Bernstein, "Extending the Salsa20 nonce", 2011).
    pub fn state(key: &[u8; 32], nonce: &[u8; 24]) -> [u32; 16] {
        let mut half = [0; 16];
        half.copy_from_slice(&nonce[..16]);
        let own: [u8; 32] = hsalsa::<U10>(key.into(), &half.into()).into();
        let word = |bytes: &[u8], n: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[4 * n..4 * n + 4]);
            u32::from_le_bytes(word)
        };
        let [k, n, c] = [&own[..], &nonce[16..], b"expand 32-byte k"].map(|bytes| move |n| word(bytes, n));
        [c(0), k(0), k(1), k(2), k(3), c(1), n(0), n(1), 0, 0, c(2), k(4), k(5), k(6), k(7), c(3)]
    }

    /// See [`super::Stream::apply`].
    #[target_feature(enable = "avx2")]
    pub fn apply(state: &[u32; 16], content: &mut [u8]) -> [u8; FIRST] {
        // The first eight blocks begin with what isn't for the content.
        let stream = blocks(state, 0);
        let (first, rest) = stream.split_at(FIRST);
        let (head, content) = content.split_at_mut(content.len().min(rest.len()));
        mix(head, rest);
        let mut number = LANES as u64;
        for piece in content.chunks_mut(BLOCKS) {
            mix(piece, &blocks(state, number));
            number += LANES as u64;
        }
        let mut taken = [0; FIRST];
        taken.copy_from_slice(first);
        taken
    }

    #[target_feature(enable = "avx2")]
    fn mix(content: &mut [u8], stream: &[u8]) {
        content.iter_mut().zip(stream).for_each(|(byte, with)| *byte ^= with);
    }

    /// Blocks `number` and the next seven of the stream.
    #[target_feature(enable = "avx2")]
    fn blocks(state: &[u32; 16], number: u64) -> [u8; BLOCKS] {
        let each = |half: u32| -> [i32; LANES] { std::array::from_fn(|lane| ((number + lane as u64) >> half) as i32) };
        let vector = |w: [i32; LANES]| _mm256_setr_epi32(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]);
        let mut first = state.map(|word| _mm256_set1_epi32(word as i32));
        (first[8], first[9]) = (vector(each(0)), vector(each(32)));
        let mut x = first;
        macro_rules! step {
            ($to:literal, $a:literal, $b:literal, $turn:literal) => {
                let sum = _mm256_add_epi32(x[$a], x[$b]);
                let turned = _mm256_or_si256(_mm256_slli_epi32::<$turn>(sum), _mm256_srli_epi32::<{ 32 - $turn }>(sum));
                x[$to] = _mm256_xor_si256(x[$to], turned);
            };
        }
        macro_rules! quarter {
            ($a:literal, $b:literal, $c:literal, $d:literal) => {
                step!($b, $a, $d, 7);
                step!($c, $b, $a, 9);
                step!($d, $c, $b, 13);
                step!($a, $d, $c, 18);
            };
        }
        for _ in 0..10 {
            // Columns, then rows.
            quarter!(0, 4, 8, 12);
            quarter!(5, 9, 13, 1);
            quarter!(10, 14, 2, 6);
            quarter!(15, 3, 7, 11);
            quarter!(0, 1, 2, 3);
            quarter!(5, 6, 7, 4);
            quarter!(10, 11, 8, 9);
            quarter!(15, 12, 13, 14);
        }
        // Block after block, where vectors have word after word.
        let mut out = [_mm256_setzero_si256(); 2 * LANES];
        for half in 0..2 {
            let word = |n: usize| _mm256_add_epi32(x[8 * half + n], first[8 * half + n]);
            let four = |at: usize| {
                let (a, b, c, d) = (word(at), word(at + 1), word(at + 2), word(at + 3));
                let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
                let (above, below) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
                [
                    _mm256_unpacklo_epi64(ab, cd),
                    _mm256_unpackhi_epi64(ab, cd),
                    _mm256_unpacklo_epi64(above, below),
                    _mm256_unpackhi_epi64(above, below),
                ]
            };
            let (low, high) = (four(0), four(4));
            for n in 0..4 {
                out[2 * n + half] = _mm256_permute2x128_si256::<0x20>(low[n], high[n]);
                out[2 * (n + 4) + half] = _mm256_permute2x128_si256::<0x31>(low[n], high[n]);
            }
        }
        // SAFETY: sixteen vectors are as many bytes, of which any is one.
        unsafe { std::mem::transmute::<[__m256i; 2 * LANES], [u8; BLOCKS]>(out) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        /// The crate is the oracle.
        #[test]
        fn side_by_side_is_one_after_another(key: [u8; 32], nonce: [u8; 24], size in 0usize..5000, byte: u8) {
            let stream = Stream::new(&key, &nonce);
            let (mut ours, mut theirs) = (vec![byte; size], vec![byte; size]);
            prop_assert_eq!(stream.apply(&mut ours), stream.apply_by_crate(&mut theirs));
            prop_assert!(ours == theirs);
        }
    }

    #[test]
    fn a_whole_block_of_a_file() {
        let stream = Stream::new(&[7; 32], &[9; 24]);
        let (mut ours, mut theirs) = (vec![0; 64 << 10], vec![0; 64 << 10]);
        assert_eq!(stream.apply(&mut ours), stream.apply_by_crate(&mut theirs));
        assert!(ours == theirs);
    }
}
