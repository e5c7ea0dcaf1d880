//! What MD5 costs this machine, by how many streams are hashed side by side:
//! `cargo run --release -p haul-core --example md5`.

use haul_core::{Algo, Hasher};
use std::time::Instant;

/// Bytes of each stream; all of them together stay in the processor's caches, as what has just arrived does.
const LEN: usize = 256 << 10;

fn main() {
    for count in [1, 2, 4, 8, 16, 32] {
        let data: Vec<Vec<u8>> = (0..count).map(|n| (0..LEN).map(|i| (i * 31 + n) as u8).collect()).collect();
        let round = || {
            let mut hashers: Vec<Hasher> = (0..count).map(|_| Hasher::new(&[Algo::Md5])).collect();
            let began = Instant::now();
            Hasher::update_each(hashers.iter_mut().zip(data.iter().map(Vec::as_slice)));
            began.elapsed().as_secs_f64()
        };
        let best = (0..100).map(|_| round()).fold(f64::MAX, f64::min);
        println!("{count:>2} side by side: {:.2} GB/s", (count * LEN) as f64 / best / 1e9);
    }
}
