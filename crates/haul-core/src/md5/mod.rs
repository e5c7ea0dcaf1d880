//! MD5, of one stream or of several side by side: MD5 can't be split, but sixteen streams take a processor hardly longer than
//! one. [`crate::Hasher`] is what everyone else uses.

mod lanes;

pub use lanes::width;
use lanes::{BLOCK, Lane};

/// MD5 of one stream, as its bytes come.
#[derive(Clone)]
pub struct Md5 {
    state: [u32; 4],
    len: u64,
    /// The first `len % 64` bytes are those of a block that isn't whole yet.
    tail: [u8; BLOCK],
}

impl Default for Md5 {
    fn default() -> Self {
        Md5 { state: [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476], len: 0, tail: [0; BLOCK] }
    }
}

impl Md5 {
    /// Takes in the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        let data = self.accept(bytes);
        if !data.is_empty() {
            lanes::step(&mut [Lane { state: &mut self.state, data }]);
        }
    }

    /// The value of all the bytes taken in.
    pub fn finish(mut self) -> [u8; 16] {
        const END: [u8; BLOCK] = {
            let mut end = [0; BLOCK];
            end[0] = 0x80;
            end
        };
        let bits = self.len.wrapping_mul(8);
        // Up to where the eight bytes of the length end a block.
        let end = BLOCK - (self.len as usize + 8) % BLOCK;
        self.update(&END[..end]);
        self.update(&bits.to_le_bytes());
        let mut value = [0; 16];
        value.as_chunks_mut::<4>().0.iter_mut().zip(self.state).for_each(|(to, word)| *to = word.to_le_bytes());
        value
    }

    /// Takes in what of `bytes` completes a block that was begun, and what begins another; the blocks between are left to
    /// the caller.
    fn accept<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [[u8; BLOCK]] {
        let begun = self.len as usize % BLOCK;
        self.len += bytes.len() as u64;
        if begun > 0 {
            let (more, rest) = bytes.split_at(bytes.len().min(BLOCK - begun));
            self.tail[begun..begun + more.len()].copy_from_slice(more);
            if begun + more.len() < BLOCK {
                return &[];
            }
            lanes::step(&mut [Lane { state: &mut self.state, data: &[self.tail] }]);
            bytes = rest;
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        self.tail[..rest.len()].copy_from_slice(rest);
        blocks
    }
}

/// Takes the next bytes of each stream in, [`width`] of them side by side. Where one ends the next takes its place.
pub fn update_each<'a>(streams: impl IntoIterator<Item = (&'a mut Md5, &'a [u8])>) {
    let mut waiting = streams.into_iter().map(|(md5, bytes)| {
        let data = md5.accept(bytes);
        Lane { state: &mut md5.state, data }
    });
    let width = width();
    let mut running: Vec<Lane<'a>> = Vec::with_capacity(width);
    loop {
        let free = width - running.len();
        running.extend(waiting.by_ref().filter(|lane| !lane.data.is_empty()).take(free));
        if running.is_empty() {
            return;
        }
        lanes::step(&mut running);
        running.retain(|lane| !lane.data.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::md5::Digest;
    use proptest::prelude::*;

    fn bytes(len: usize, seed: usize) -> Vec<u8> {
        (0..len).map(|n| ((n + 7 * seed).wrapping_mul(2_654_435_761) >> 11) as u8).collect()
    }

    fn plain(bytes: &[u8]) -> [u8; 16] {
        ::md5::Md5::digest(bytes).into()
    }

    /// Hashes all streams side by side, in turns of `turn` bytes.
    fn side_by_side(all: &[Vec<u8>], turn: usize) -> Vec<[u8; 16]> {
        let mut streams = vec![Md5::default(); all.len()];
        let longest = all.iter().map(Vec::len).max().unwrap_or(0);
        for at in (0..longest).step_by(turn) {
            let part = |bytes: &'_ Vec<u8>| at.min(bytes.len())..bytes.len().min(at + turn);
            update_each(streams.iter_mut().zip(all).map(|(stream, bytes)| (stream, &bytes[part(bytes)])));
        }
        streams.into_iter().map(Md5::finish).collect()
    }

    #[test]
    fn every_length_has_the_value_that_the_plain_one_has() {
        for len in 0..=300 {
            let bytes = bytes(len, len);
            for cut in [0, 1, len / 3, len / 2, len] {
                let mut md5 = Md5::default();
                md5.update(&bytes[..cut.min(len)]);
                md5.update(&bytes[cut.min(len)..]);
                assert_eq!(md5.finish(), plain(&bytes), "{len} bytes, cut at {cut}");
            }
        }
    }

    #[test]
    fn any_number_of_streams_side_by_side_have_the_values_that_each_has_alone() {
        for count in 0..=2 * 16 + 1 {
            for len in (0..=300).step_by(1 + 7 * usize::from(count > 2)) {
                let all: Vec<Vec<u8>> = (0..count).map(|n| bytes(len, n)).collect();
                let want: Vec<[u8; 16]> = all.iter().map(|bytes| plain(bytes)).collect();
                assert!(side_by_side(&all, usize::MAX) == want, "{count} streams of {len} bytes");
            }
        }
    }

    /// More streams than fit side by side, of all lengths from 0 to 300.
    #[test]
    fn a_stream_that_ends_leaves_its_place_to_another() {
        let all: Vec<Vec<u8>> = (0..=300).map(|n| bytes(n * 77 % 301, n)).collect();
        let want: Vec<[u8; 16]> = all.iter().map(|bytes| plain(bytes)).collect();
        for turn in [1, 63, 64, 65, 1000] {
            assert!(side_by_side(&all, turn) == want, "in turns of {turn}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn streams_of_any_lengths_in_turns_of_any_length(
            lens in prop::collection::vec(0usize..5000, 0..40),
            turn in 1usize..3000,
        ) {
            let all: Vec<Vec<u8>> = lens.iter().enumerate().map(|(n, len)| bytes(*len, n)).collect();
            let want: Vec<[u8; 16]> = all.iter().map(|bytes| plain(bytes)).collect();
            prop_assert_eq!(side_by_side(&all, turn), want);
        }
    }

    /// Each kind of register that the machine has, not only the widest.
    #[test]
    fn any_number_of_lanes_take_in_what_one_does() {
        let data: Vec<Vec<[u8; BLOCK]>> = (0..16).map(|n| bytes(BLOCK * 9, n).as_chunks().0.to_vec()).collect();
        for width in [1, 8, 16].into_iter().filter(|one| *one <= width()) {
            for count in 1..=width {
                let mut states: Vec<[u32; 4]> = (0..count).map(|n| [n as u32, 1, 2, 3]).collect();
                let mut want = states.clone();
                let lanes = states.iter_mut().zip(&data).map(|(state, data)| Lane { state, data });
                lanes::step_within(width, &mut lanes.collect::<Vec<_>>());
                for (state, data) in want.iter_mut().zip(&data) {
                    data.iter().for_each(|block| fast_md5::transform(state, block));
                }
                assert_eq!(states, want, "{count} lanes of {width}");
            }
        }
    }
}
