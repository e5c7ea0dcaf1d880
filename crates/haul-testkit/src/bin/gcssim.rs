//! A Google Cloud Storage of our own, for benchmarks and tries by hand: `gcssim [BUCKET OBJECTS]`. It has a bucket of so many empty objects
//! if one is named, tells its address, and ends with its standard input; each line of that makes it tell what was asked for since.

use haul_testkit::gcssim::{GcsSim, Settings};
use std::{env, io};

fn main() -> io::Result<()> {
    let sim = GcsSim::start(Settings::default());
    let mut words = env::args().skip(1);
    if let (Some(bucket), Some(objects)) = (words.next(), words.next()) {
        sim.fill(&bucket, objects.parse().map_err(io::Error::other)?);
    }
    println!("gcssim {}", sim.endpoint());
    for line in io::stdin().lines() {
        line?;
        println!("{} bytes, {:?}", sim.came(), sim.counts());
        sim.reset_counts();
    }
    Ok(())
}
