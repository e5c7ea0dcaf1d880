//! MD5 of several streams side by side: each step is done for one block of every stream at once, in vector registers.
//! MD5 is a chain in which each step waits for the one before, so a processor that works on one stream is mostly idle;
//! more streams cost it hardly more time. Which registers there are is found out at run time. Called by [`super`] alone.

// The only unsafe code of this crate: moving bytes into vector registers, and calling what was compiled for registers that
// were found to be there.
#![allow(unsafe_code)]

/// Bytes of a block.
pub const BLOCK: usize = 64;

/// Streams that this machine hashes side by side; 1 where nothing is gained by it.
pub fn width() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            return 16;
        }
        if is_x86_feature_detected!("avx2") {
            return 8;
        }
    }
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    if std::arch::is_aarch64_feature_detected!("neon") {
        return 8;
    }
    1
}

/// One stream: its state, and what it takes in next.
pub struct Lane<'a> {
    pub state: &'a mut [u32; 4],
    pub data: &'a [[u8; BLOCK]],
}

/// Takes as many blocks of each lane into its state as the shortest has. There are at most [`width`] of them.
pub fn step(lanes: &mut [Lane<'_>]) {
    step_within(width(), lanes);
}

/// As [`step`], with registers for at most `width` streams, of those that the machine has.
pub(super) fn step_within(width: usize, lanes: &mut [Lane<'_>]) {
    let blocks = lanes.iter().map(|lane| lane.data.len()).min().unwrap_or(0);
    take(width, lanes, blocks);
    lanes.iter_mut().for_each(|lane| lane.data = &lane.data[blocks..]);
}

fn take(width: usize, lanes: &mut [Lane<'_>], blocks: usize) {
    #[cfg(target_arch = "x86_64")]
    if lanes.len() > 1 {
        if width >= 16 && is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has AVX-512F, which is all that it was compiled for.
            return padded(lanes, blocks, |states, data| unsafe { x86::sixteen(states, data, blocks) });
        }
        if width >= 8 && is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, which is all that it was compiled for.
            return padded(lanes, blocks, |states, data| unsafe { x86::eight(states, data, blocks) });
        }
    }
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    if lanes.len() > 1 && width >= 8 && std::arch::is_aarch64_feature_detected!("neon") {
        // SAFETY: the processor has NEON, which is all that it was compiled for.
        return padded(lanes, blocks, |states, data| unsafe { arm::eight(states, data, blocks) });
    }
    let _ = width;
    for lane in lanes {
        lane.data[..blocks].iter().for_each(|block| fast_md5::transform(lane.state, block));
    }
}

/// Fills the registers' idle lanes with copies of the first, whose results are ignored.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
fn padded<const N: usize>(
    lanes: &mut [Lane<'_>],
    blocks: usize,
    run: impl FnOnce(&mut [[u32; 4]; N], &[&[[u8; BLOCK]]; N]),
) {
    assert!(lanes.len() <= N, "more streams than lanes");
    let own = |n: usize| lanes.get(n).unwrap_or(&lanes[0]);
    let data = std::array::from_fn(|n| &own(n).data[..blocks]);
    let mut states = std::array::from_fn(|n| *own(n).state);
    run(&mut states, &data);
    lanes.iter_mut().zip(states).for_each(|(lane, state)| *lane.state = state);
}

/// The constants of the 64 steps (RFC 1321, section 3.4).
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
#[rustfmt::skip]
const K: [u32; 64] = [
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
];

/// A function that feeds `blocks` blocks of each stream into the stream's state. A macro, since its body must be
/// compiled for the same registers: the vector, how a block of each is loaded (word `n` of all in vector `n`), and the
/// operations.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
macro_rules! kernel {
    ($name:ident, $feature:literal, $lanes:literal, $vector:ty, $set:ident, $add:ident, $load:ident, $out:ident,
     $f:ident, $g:ident, $h:ident, $i:ident, $rol:ident) => {
        #[target_feature(enable = $feature)]
        pub fn $name(states: &mut [[u32; 4]; $lanes], data: &[&[[u8; BLOCK]]; $lanes], blocks: usize) {
            let word = |n: usize| -> $vector { $load!(states.map(|state| state[n])) };
            let mut all = [word(0), word(1), word(2), word(3)];
            for block in 0..blocks {
                let m = $out(data, block);
                let [mut a, mut b, mut c, mut d] = all;
                macro_rules! one {
                    ($mix:ident, $a:ident, $b:ident, $c:ident, $d:ident, $m:expr, $k:expr, $s:literal) => {
                        let sum = $add($add($a, $set(K[$k] as i32)), m[$m % 16]);
                        let sum = $add(sum, $mix($b, $c, $d));
                        $a = $add($b, $rol!(sum, $s));
                    };
                }
                // Of each round four times four steps; which word of the block a step takes in is the RFC's.
                for n in 0..4 {
                    one!($f, a, b, c, d, 4 * n, 4 * n, 7);
                    one!($f, d, a, b, c, 4 * n + 1, 4 * n + 1, 12);
                    one!($f, c, d, a, b, 4 * n + 2, 4 * n + 2, 17);
                    one!($f, b, c, d, a, 4 * n + 3, 4 * n + 3, 22);
                }
                for n in 0..4 {
                    one!($g, a, b, c, d, 20 * n + 1, 4 * n + 16, 5);
                    one!($g, d, a, b, c, 20 * n + 6, 4 * n + 17, 9);
                    one!($g, c, d, a, b, 20 * n + 11, 4 * n + 18, 14);
                    one!($g, b, c, d, a, 20 * n + 16, 4 * n + 19, 20);
                }
                for n in 0..4 {
                    one!($h, a, b, c, d, 12 * n + 5, 4 * n + 32, 4);
                    one!($h, d, a, b, c, 12 * n + 8, 4 * n + 33, 11);
                    one!($h, c, d, a, b, 12 * n + 11, 4 * n + 34, 16);
                    one!($h, b, c, d, a, 12 * n + 14, 4 * n + 35, 23);
                }
                for n in 0..4 {
                    one!($i, a, b, c, d, 28 * n, 4 * n + 48, 6);
                    one!($i, d, a, b, c, 28 * n + 7, 4 * n + 49, 10);
                    one!($i, c, d, a, b, 28 * n + 14, 4 * n + 50, 15);
                    one!($i, b, c, d, a, 28 * n + 21, 4 * n + 51, 21);
                }
                all = [$add(all[0], a), $add(all[1], b), $add(all[2], c), $add(all[3], d)];
            }
            // SAFETY: vectors hold plain words, as many as there are streams.
            let words: [[u32; $lanes]; 4] = unsafe { std::mem::transmute(all) };
            for (stream, state) in states.iter_mut().enumerate() {
                *state = words.map(|word| word[stream]);
            }
        }
    };
}

/// Bytes or words as a vector of the same size.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
macro_rules! vector {
    ($plain:expr) => {
        // SAFETY: both are plain bits of one size, which the compiler checks.
        unsafe { std::mem::transmute($plain) }
    };
}

/// One of the RFC's four functions.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
macro_rules! mix {
    ($name:ident, $feature:literal, $vector:ty, |$b:ident, $c:ident, $d:ident| $value:expr) => {
        #[inline]
        #[target_feature(enable = $feature)]
        fn $name($b: $vector, $c: $vector, $d: $vector) -> $vector {
            $value
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{BLOCK, K};
    use std::arch::x86_64::*;

    macro_rules! rol16 {
        ($x:expr, $s:literal) => {
            _mm512_rol_epi32::<$s>($x)
        };
    }

    macro_rules! rol8 {
        ($x:expr, $s:literal) => {
            _mm256_or_si256(_mm256_slli_epi32::<$s>($x), _mm256_srli_epi32::<{ 32 - $s }>($x))
        };
    }

    // With AVX-512 the four functions of the RFC are truth tables of three bits.
    kernel!(
        sixteen,
        "avx512f",
        16,
        __m512i,
        _mm512_set1_epi32,
        _mm512_add_epi32,
        vector,
        load16,
        f16,
        g16,
        h16,
        i16,
        rol16
    );
    kernel!(eight, "avx2", 8, __m256i, _mm256_set1_epi32, _mm256_add_epi32, vector, load8, f8, g8, h8, i8, rol8);

    mix!(f16, "avx512f", __m512i, |b, c, d| _mm512_ternarylogic_epi32::<0xca>(b, c, d));
    mix!(g16, "avx512f", __m512i, |b, c, d| _mm512_ternarylogic_epi32::<0xca>(d, b, c));
    mix!(h16, "avx512f", __m512i, |b, c, d| _mm512_ternarylogic_epi32::<0x96>(b, c, d));
    mix!(i16, "avx512f", __m512i, |b, c, d| _mm512_ternarylogic_epi32::<0x39>(b, c, d));
    mix!(f8, "avx2", __m256i, |b, c, d| _mm256_xor_si256(d, _mm256_and_si256(b, _mm256_xor_si256(c, d))));
    mix!(g8, "avx2", __m256i, |b, c, d| _mm256_xor_si256(c, _mm256_and_si256(d, _mm256_xor_si256(b, c))));
    mix!(h8, "avx2", __m256i, |b, c, d| _mm256_xor_si256(b, _mm256_xor_si256(c, d)));
    mix!(i8, "avx2", __m256i, |b, c, d| _mm256_xor_si256(
        c,
        _mm256_or_si256(b, _mm256_xor_si256(d, _mm256_set1_epi32(-1)))
    ));

    /// Block `at` of each stream, turned: word `n` of all in vector `n`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load16(data: &[&[[u8; BLOCK]]; 16], at: usize) -> [__m512i; 16] {
        let rows: [__m512i; 16] = std::array::from_fn(|n| vector!(data[n][at]));
        // Four by four within the 128-bit quarters, then the quarters themselves.
        let mut quads = [_mm512_setzero_si512(); 16];
        for n in 0..4 {
            let r = &rows[4 * n..4 * n + 4];
            let (low, high) = (_mm512_unpacklo_epi32(r[0], r[1]), _mm512_unpacklo_epi32(r[2], r[3]));
            let (low2, high2) = (_mm512_unpackhi_epi32(r[0], r[1]), _mm512_unpackhi_epi32(r[2], r[3]));
            quads[n] = _mm512_unpacklo_epi64(low, high);
            quads[n + 4] = _mm512_unpackhi_epi64(low, high);
            quads[n + 8] = _mm512_unpacklo_epi64(low2, high2);
            quads[n + 12] = _mm512_unpackhi_epi64(low2, high2);
        }
        let mut words = [_mm512_setzero_si512(); 16];
        for n in 0..4 {
            let q = &quads[4 * n..4 * n + 4];
            let (even, even2) = (_mm512_shuffle_i32x4::<0x88>(q[0], q[1]), _mm512_shuffle_i32x4::<0x88>(q[2], q[3]));
            let (odd, odd2) = (_mm512_shuffle_i32x4::<0xdd>(q[0], q[1]), _mm512_shuffle_i32x4::<0xdd>(q[2], q[3]));
            words[n] = _mm512_shuffle_i32x4::<0x88>(even, even2);
            words[n + 8] = _mm512_shuffle_i32x4::<0xdd>(even, even2);
            words[n + 4] = _mm512_shuffle_i32x4::<0x88>(odd, odd2);
            words[n + 12] = _mm512_shuffle_i32x4::<0xdd>(odd, odd2);
        }
        words
    }

    /// The blocks of eight streams, in two halves.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn load8(data: &[&[[u8; BLOCK]]; 8], at: usize) -> [__m256i; 16] {
        let rows: [[__m256i; 2]; 8] = std::array::from_fn(|n| vector!(data[n][at]));
        let mut words = [_mm256_setzero_si256(); 16];
        for half in 0..2 {
            let mut quads = [_mm256_setzero_si256(); 8];
            for n in 0..2 {
                let r: [__m256i; 4] = std::array::from_fn(|row| rows[4 * n + row][half]);
                let (low, high) = (_mm256_unpacklo_epi32(r[0], r[1]), _mm256_unpacklo_epi32(r[2], r[3]));
                let (low2, high2) = (_mm256_unpackhi_epi32(r[0], r[1]), _mm256_unpackhi_epi32(r[2], r[3]));
                quads[n] = _mm256_unpacklo_epi64(low, high);
                quads[n + 2] = _mm256_unpackhi_epi64(low, high);
                quads[n + 4] = _mm256_unpacklo_epi64(low2, high2);
                quads[n + 6] = _mm256_unpackhi_epi64(low2, high2);
            }
            for n in 0..4 {
                words[8 * half + n] = _mm256_permute2x128_si256::<0x20>(quads[2 * n], quads[2 * n + 1]);
                words[8 * half + n + 4] = _mm256_permute2x128_si256::<0x31>(quads[2 * n], quads[2 * n + 1]);
            }
        }
        words
    }
}

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod arm {
    use super::{BLOCK, K};
    use std::arch::aarch64::*;

    /// Two registers of four streams each: what one waits for, the other has work to fill.
    type Both = [uint32x4_t; 2];

    macro_rules! rol {
        ($x:expr, $s:literal) => {
            $x.map(|x| vsriq_n_u32::<{ 32 - $s }>(vshlq_n_u32::<$s>(x), x))
        };
    }

    kernel!(eight, "neon", 8, Both, set, add, vector, load, f, g, h, i, rol);

    mix!(f, "neon", Both, |b, c, d| std::array::from_fn(|n| vbslq_u32(b[n], c[n], d[n])));
    mix!(g, "neon", Both, |b, c, d| std::array::from_fn(|n| vbslq_u32(d[n], b[n], c[n])));
    mix!(h, "neon", Both, |b, c, d| std::array::from_fn(|n| veorq_u32(b[n], veorq_u32(c[n], d[n]))));
    mix!(i, "neon", Both, |b, c, d| std::array::from_fn(|n| veorq_u32(c[n], vornq_u32(b[n], d[n]))));

    #[inline]
    #[target_feature(enable = "neon")]
    fn set(word: i32) -> Both {
        [vdupq_n_u32(word as u32); 2]
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn add(a: Both, b: Both) -> Both {
        std::array::from_fn(|n| vaddq_u32(a[n], b[n]))
    }

    /// Block `at` of each stream, turned: word `n` of all in vector `n`.
    #[inline]
    #[target_feature(enable = "neon")]
    fn load(data: &[&[[u8; BLOCK]]; 8], at: usize) -> [Both; 16] {
        let rows: [[uint32x4_t; 4]; 8] = std::array::from_fn(|n| vector!(data[n][at]));
        let mut words = [[vdupq_n_u32(0); 2]; 16];
        for half in 0..2 {
            for quarter in 0..4 {
                let r: [uint32x4_t; 4] = std::array::from_fn(|row| rows[4 * half + row][quarter]);
                // Words of even and of odd number, of two streams each; then of four.
                let (even, even2) = (pairs(vtrn1q_u32(r[0], r[1])), pairs(vtrn1q_u32(r[2], r[3])));
                let (odd, odd2) = (pairs(vtrn2q_u32(r[0], r[1])), pairs(vtrn2q_u32(r[2], r[3])));
                let turned =
                    [vtrn1q_u64(even, even2), vtrn1q_u64(odd, odd2), vtrn2q_u64(even, even2), vtrn2q_u64(odd, odd2)];
                for (n, word) in turned.into_iter().enumerate() {
                    words[4 * quarter + n][half] = vreinterpretq_u32_u64(word);
                }
            }
        }
        words
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn pairs(words: uint32x4_t) -> uint64x2_t {
        vreinterpretq_u64_u32(words)
    }
}
