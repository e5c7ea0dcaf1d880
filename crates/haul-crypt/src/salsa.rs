//! XSalsa20's stream: by the cipher's crate, or by blocks side by side in vector registers: eight with AVX2, which takes a quarter of
//! the time, sixteen with AVX-512, which takes a third of that (Salsa20 has no CPU instruction, and the crate works on one
//! block after another).

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
        if content.len() >= x86::ENOUGH {
            let state = || x86::state(&self.key, &self.nonce);
            if is_x86_feature_detected!("avx512f") {
                // SAFETY: the processor has AVX-512, which is all that it was compiled for.
                return unsafe { x86::apply_by_sixteen(&state(), content) };
            }
            if is_x86_feature_detected!("avx2") {
                // SAFETY: as above.
                return unsafe { x86::apply_by_eight(&state(), content) };
            }
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

    /// Bytes that a message must have for blocks side by side to pay.
    pub const ENOUGH: usize = 512;

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
    #[target_feature(enable = "avx512f")]
    pub fn apply_by_sixteen(state: &[u32; 16], content: &mut [u8]) -> [u8; FIRST] {
        apply(content, 16, |number| sixteen(state, number))
    }

    /// See [`super::Stream::apply`].
    #[target_feature(enable = "avx2")]
    pub fn apply_by_eight(state: &[u32; 16], content: &mut [u8]) -> [u8; FIRST] {
        apply(content, 8, |number| eight(state, number))
    }

    /// With a stream whose `blocks` of a number and the next ones, `lanes` in all, are made at once. Compiled into each caller, for
    /// the registers that it was found to have.
    #[inline(always)]
    fn apply<const BYTES: usize>(content: &mut [u8], lanes: u64, blocks: impl Fn(u64) -> [u8; BYTES]) -> [u8; FIRST] {
        let mix = |content: &mut [u8], stream: &[u8]| {
            content.iter_mut().zip(stream).for_each(|(byte, with)| *byte ^= with);
        };
        // The first blocks begin with what isn't for the content.
        let stream = blocks(0);
        let (first, rest) = stream.split_at(FIRST);
        let (head, content) = content.split_at_mut(content.len().min(rest.len()));
        mix(head, rest);
        let mut number = lanes;
        for piece in content.chunks_mut(BYTES) {
            mix(piece, &blocks(number));
            number += lanes;
        }
        let mut taken = [0; FIRST];
        taken.copy_from_slice(first);
        taken
    }

    /// The half of the number of each block from `number` on that is `shift` bits up.
    fn numbers<const LANES: usize>(number: u64, shift: u32) -> [u32; LANES] {
        std::array::from_fn(|lane| ((number + lane as u64) >> shift) as u32)
    }

    /// Salsa20's twenty rounds on a matrix of vectors, each of which has one word of every block; `step!(x, to, a, b, turn)` is
    /// `x[to] ^= (x[a] + x[b]) <<< turn`.
    macro_rules! rounds {
        ($x:ident, $step:ident) => {
            for _ in 0..10 {
                // Columns, then rows.
                rounds!($x, $step, 0, 4, 8, 12);
                rounds!($x, $step, 5, 9, 13, 1);
                rounds!($x, $step, 10, 14, 2, 6);
                rounds!($x, $step, 15, 3, 7, 11);
                rounds!($x, $step, 0, 1, 2, 3);
                rounds!($x, $step, 5, 6, 7, 4);
                rounds!($x, $step, 10, 11, 8, 9);
                rounds!($x, $step, 15, 12, 13, 14);
            }
        };
        ($x:ident, $step:ident, $a:literal, $b:literal, $c:literal, $d:literal) => {
            $step!($x, $b, $a, $d, 7);
            $step!($x, $c, $b, $a, 9);
            $step!($x, $d, $c, $b, 13);
            $step!($x, $a, $d, $c, 18);
        };
    }

    /// Blocks `number` and the next seven of the stream.
    #[target_feature(enable = "avx2")]
    fn eight(state: &[u32; 16], number: u64) -> [u8; 512] {
        // SAFETY: a vector is eight words, of which any is one.
        let vector = |shift| unsafe { std::mem::transmute::<[u32; 8], __m256i>(numbers(number, shift)) };
        let mut first = state.map(|word| _mm256_set1_epi32(word.cast_signed()));
        (first[8], first[9]) = (vector(0), vector(32));
        let mut x = first;
        macro_rules! step {
            ($x:ident, $to:literal, $a:literal, $b:literal, $turn:literal) => {
                let sum = _mm256_add_epi32($x[$a], $x[$b]);
                let turned = _mm256_or_si256(_mm256_slli_epi32::<$turn>(sum), _mm256_srli_epi32::<{ 32 - $turn }>(sum));
                $x[$to] = _mm256_xor_si256($x[$to], turned);
            };
        }
        rounds!(x, step);
        // Block after block, where vectors have word after word.
        let mut out = [_mm256_setzero_si256(); 16];
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
        unsafe { std::mem::transmute::<[__m256i; 16], [u8; 512]>(out) }
    }

    /// Blocks `number` and the next fifteen of the stream.
    #[target_feature(enable = "avx512f")]
    fn sixteen(state: &[u32; 16], number: u64) -> [u8; 1024] {
        // SAFETY: a vector is sixteen words, of which any is one.
        let vector = |shift| unsafe { std::mem::transmute::<[u32; 16], __m512i>(numbers(number, shift)) };
        let mut first = state.map(|word| _mm512_set1_epi32(word.cast_signed()));
        (first[8], first[9]) = (vector(0), vector(32));
        let mut x = first;
        macro_rules! step {
            ($x:ident, $to:literal, $a:literal, $b:literal, $turn:literal) => {
                let turned = _mm512_rol_epi32::<$turn>(_mm512_add_epi32($x[$a], $x[$b]));
                $x[$to] = _mm512_xor_si512($x[$to], turned);
            };
        }
        rounds!(x, step);
        // Block after block, where vectors have word after word: first within quarters of vectors, then the quarters themselves.
        let word = |n: usize| _mm512_add_epi32(x[n], first[n]);
        let four = |at: usize| {
            let (a, b, c, d) = (word(at), word(at + 1), word(at + 2), word(at + 3));
            let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
            let (above, below) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
            [
                _mm512_unpacklo_epi64(ab, cd),
                _mm512_unpackhi_epi64(ab, cd),
                _mm512_unpacklo_epi64(above, below),
                _mm512_unpackhi_epi64(above, below),
            ]
        };
        let (a, b, c, d) = (four(0), four(4), four(8), four(12));
        let mut out = [_mm512_setzero_si512(); 16];
        for n in 0..4 {
            let (low, high) = (_mm512_shuffle_i32x4::<0x44>(a[n], b[n]), _mm512_shuffle_i32x4::<0xee>(a[n], b[n]));
            let (lower, higher) = (_mm512_shuffle_i32x4::<0x44>(c[n], d[n]), _mm512_shuffle_i32x4::<0xee>(c[n], d[n]));
            out[n] = _mm512_shuffle_i32x4::<0x88>(low, lower);
            out[4 + n] = _mm512_shuffle_i32x4::<0xdd>(low, lower);
            out[8 + n] = _mm512_shuffle_i32x4::<0x88>(high, higher);
            out[12 + n] = _mm512_shuffle_i32x4::<0xdd>(high, higher);
        }
        // SAFETY: sixteen vectors are as many bytes, of which any is one.
        unsafe { std::mem::transmute::<[__m512i; 16], [u8; 1024]>(out) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The crate is the oracle of every way that this processor has.
    fn is_as_by_the_crate(stream: &Stream, plain: &[u8]) -> std::result::Result<(), TestCaseError> {
        let mut theirs = plain.to_vec();
        let first = stream.apply_by_crate(&mut theirs);
        let mut ours = plain.to_vec();
        prop_assert_eq!(stream.apply(&mut ours), first);
        prop_assert!(ours == theirs);
        #[cfg(target_arch = "x86_64")]
        {
            let state = x86::state(&stream.key, &stream.nonce);
            if is_x86_feature_detected!("avx512f") {
                let mut ours = plain.to_vec();
                // SAFETY: the processor has what it was compiled for.
                prop_assert_eq!(unsafe { x86::apply_by_sixteen(&state, &mut ours) }, first);
                prop_assert!(ours == theirs);
            }
            if is_x86_feature_detected!("avx2") {
                let mut ours = plain.to_vec();
                // SAFETY: the processor has what it was compiled for.
                prop_assert_eq!(unsafe { x86::apply_by_eight(&state, &mut ours) }, first);
                prop_assert!(ours == theirs);
            }
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn vector_blocks_equal_single_blocks(key: [u8; 32], nonce: [u8; 24], size in 0usize..5000, byte: u8) {
            is_as_by_the_crate(&Stream::new(&key, &nonce), &vec![byte; size])?;
        }
    }

    #[test]
    fn a_whole_block_of_a_file() {
        is_as_by_the_crate(&Stream::new(&[7; 32], &[9; 24]), &vec![0; 64 << 10]).unwrap();
    }
}
