//! Bytes through memory: read chunks (several at once where the source allows), write them as they come, out of order,
//! and hash them on the way; or, into a file, piece by piece (`pass_through`). Memory is taken from the job's budget before a
//! chunk is read, and given back when it is written and hashed.

mod digest;
mod pass_through;
mod reader;

use super::{
    Count, Mover, VERIFY,
    read::{Bytes, Source},
    unfinished::Target,
};
use crate::{
    budget::{Claim, EndpointRate},
    cx::cancelled,
};
use digest::Digest;
use futures::{StreamExt, stream::FuturesUnordered};
use haul_core::{Algo, Entry, Error, ErrorKind, Hashes, Result, hash, job::Job, plan::Route};
use haul_store::{Body, Part, PartLimits, Relay, hashing};
use reader::{Piece, Reader, Reread};
use std::{fs::File, ops::Range, sync::Arc};
use tokio::sync::OwnedSemaphorePermit;

pub use reader::block;

/// Result of a pump.
pub struct PumpResult {
    /// Bytes.
    pub bytes: u64,
    /// Receipts of the parts, by index.
    pub parts: Vec<Part>,
    /// Hashes of the bytes as they passed.
    pub hashes: Hashes,
    /// A hash that the source states and that can't be computed of the whole: a part was there already and wasn't read.
    pub unproved: Option<Algo>,
    /// Memory of a file's only chunk: a store may keep the chunk to send it as it publishes.
    pub memory: Option<Arc<OwnedSemaphorePermit>>,
}

/// Largest part, or run of chunks in one request, that is chosen without being asked for, in bytes: what is lost when it
/// must be sent again.
const MOST: u64 = 64 << 20;

/// Limit of one file's bytes under way in parts that are lost if the process is killed: one part in this many of it …
const AT_RISK: u64 = 8;
/// … and this many bytes in any case, 16 parts, so that a smaller file isn't slowed down for it.
const RISKED: u64 = 128 << 20;

/// Where parts can't be smaller (a service may set 8 MiB, or 64), one byte in this many of the file: a kill costs up to two
/// thirds of the bytes under way, as measured where answers take longer than bytes, so that three cost 5 % …
const COARSE: u64 = 40;
/// … and this many parts in any case.
const FEW: u64 = 4;

/// Chunks of a file that goes straight to a disk are noted one by one, and may be this small, in bytes …
const NOTED: u64 = 1 << 20;
/// … as long as there are no more than this many of them.
const NOTES: u64 = 1024;

/// Of chunks that pass from store to store, one in this many is requested ahead.
const AHEAD: usize = 4;

/// Parts for each request that may be under way, at least: with fewer, some streams are idle while the last parts go.
const TURNS: u64 = 4;

/// Parts of a file that pass from one store to the other at once, at least: as many as are needed where a connection is slow.
const PASSING: u64 = 24;

/// Chunks of a file at most, of which each is a number in memory: 512 TiB of 8 MiB each. Who says of a file that it is larger may say
/// anything, and a list of its chunks would take all memory there is.
const MOST_CHUNKS: u64 = 1 << 26;

/// How chunks go.
pub enum ChunkRoute {
    /// Between a disk and a store, of which this is known.
    Rate(EndpointRate),
    /// From store to store, as they come.
    Passing,
    /// Any other way.
    Other,
}

/// The size of parts for a file of `size` bytes (`None`: unknown): the user's, else the store's, doubled to come near the
/// road's suggestion while there are still parts for every stream, or smaller where they pass from store to store; but never so small
/// that the file needs more parts than the store allows.
pub fn part_size(job: &Job, limits: &PartLimits, size: Option<u64>, road: &ChunkRoute) -> u64 {
    let mut suited = limits.preferred;
    let road = match road {
        ChunkRoute::Rate(road) if !limits.chosen => Some(road),
        ChunkRoute::Passing if !limits.chosen => {
            suited = suited.min((at_risk(size.unwrap_or(0)) / PASSING) >> 20 << 20);
            None
        }
        _ => None,
    };
    if let (Some(road), Some(size)) = (road, size) {
        let (best, enough) = (road.best(size), size / (TURNS * road.width.max(1)));
        // To the nearest, by ratio.
        while suited as f64 * std::f64::consts::SQRT_2 <= best && 2 * suited <= enough.min(MOST) {
            suited *= 2;
        }
    }
    let wanted = job.pace.part_size.unwrap_or(suited);
    // An unknown size could be anything up to the 5 TiB that S3 allows; rclone stops at 48 GiB with its default.
    let least = size.unwrap_or(0).div_ceil(limits.count.max(1)).next_multiple_of(1 << 20);
    let size = wanted.max(least).next_multiple_of(limits.multiple.max(1));
    size.clamp(limits.min, limits.max)
}

/// Errors: `Unsupported`, for a file of more chunks than are kept in mind.
pub fn check_size(size: u64, block: u64) -> Result<()> {
    if size.div_ceil(block) > MOST_CHUNKS {
        let why =
            format!("it is said to have {size} bytes: for a file as large as that raise --multi-thread-chunk-size");
        return Err(Error::new(ErrorKind::Unsupported, "read", why));
    }
    Ok(())
}

/// Moves all bytes of `source` that are missing into `target`; releases of `claim` the share that the last chunks no longer need.
///
/// Errors: the first of any read or write; everything still in flight is then given up. `Cancelled` when the rest exceeds the
/// allowance; chunks under way have arrived then.
pub async fn pump(
    mover: &Mover,
    source: Source,
    target: &Target,
    count: &Count<'_>,
    claim: &Claim,
) -> Result<PumpResult> {
    let size = source.facts.size;
    if !matches!(source.bytes, Bytes::Stream { .. }) {
        check_size(size, target.block)?;
    }
    let Known { again, mut digest, unproved } = {
        let (file, streamed) = match &source.bytes {
            Bytes::File(file) => (Some(file.clone()), false),
            Bytes::Ranges { .. } => (None, false),
            Bytes::Stream { .. } => (None, true),
        };
        known(mover, &source.facts, file, streamed, target).await
    };
    let mut parts: Vec<Part> = target.known.values().map(|sent| sent.part.clone()).collect();
    let mut bytes: u64 = parts.iter().map(|part| part.size).sum();
    count.skip(bytes);
    if matches!(again, Reread::Never) {
        target.known.values().for_each(|sent| digest.known(sent));
    }
    if let (Bytes::Ranges { store, entry }, Reread::Never) = (&source.bytes, &again)
        && mover.cx.dst.caps().files
        && !digest.needs_chunks()
    {
        let missing: Vec<u64> = target.chunks(size).filter(|index| !target.known.contains_key(index)).collect();
        let from = pass_through::From { store: store.clone(), entry: entry.clone() };
        let arrived = pass_through::through(mover, &from, target, &missing, &mut digest, count, claim).await?;
        bytes += arrived.iter().map(|part| part.size).sum::<u64>();
        parts.extend(arrived);
        parts.sort_by_key(|p: &Part| p.index);
        return Ok(PumpResult { bytes, parts, hashes: digest.finish(), unproved, memory: None });
    }
    let most = at_once(mover, target, size);
    let algos = by_chunk(&digest, target);
    let mut reader = Reader::new(mover, source, target, again, algos, !digest.needs_chunks());
    let mut writes = FuturesUnordered::new();
    let mut memory = None;
    // A range takes its bytes of the allowance before it is read, a stream before they are sent.
    let goes = |index: u64, len: u64| target.known.contains_key(&index) || count.allows(len);
    loop {
        let (reads, at_once) = if reader.passes() {
            // A few are asked for ahead, so that a place among the uploads never waits for an answer.
            let at_once = mover.budget.writes().min(most);
            (at_once.div_ceil(AHEAD), at_once)
        } else {
            let reads = mover.budget.reads().min(most);
            (reads, mover.budget.writes().min((most - reads).max(1)))
        };
        let more = reader.start(reads, at_once, writes.len(), &goes);
        if !more && writes.is_empty() && digest.is_idle() {
            break;
        }
        tokio::select! {
            Some(part) = writes.next(), if !writes.is_empty() => {
                let (part, range, hashes): (Part, _, _) = part?;
                digest.there(range);
                digest.chunk(part.index, part.size, hashes);
                parts.push(part);
                // The last one is given back when the file is published.
                claim.left((reader.left() + writes.len() as u64).max(1));
            }
            piece = reader.next(), if more => {
                let Some(piece) = piece? else { continue };
                if reader.is_stream() && !goes(piece.index, piece.payload.len()) {
                    reader.cut();
                    continue;
                }
                digest.take(&piece);
                memory = (piece.index == 0 && reader.left() == 0).then(|| piece.memory.clone());
                let only = piece.index == 0 && piece.payload.len() == size;
                if !target.known.contains_key(&piece.index) {
                    bytes += piece.payload.len();
                    writes.push(write(target, piece, count, only));
                }
            }
            hashed = digest.advance(), if !digest.is_idle() => hashed?,
        }
    }
    if reader.is_cut() {
        return Err(cancelled());
    }
    parts.sort_by_key(|p: &Part| p.index);
    Ok(PumpResult { bytes, parts, hashes: digest.finish(), unproved, memory })
}

/// Chunks of a file of `size` bytes that may be under way at once, so that a kill doesn't cost much of it; where nothing is noted,
/// or the user says how many, as many as the roads take.
fn at_once(mover: &Mover, target: &Target, size: u64) -> usize {
    let pinned = mover.job.pace.streams.is_some() || mover.job.pace.transfers.is_some();
    if target.track.is_none() || pinned {
        return usize::MAX;
    }
    let smallest = mover.cx.dst.caps().parts.is_some_and(|limits| !limits.chosen && limits.min >= limits.preferred);
    let most = match target.dictated || smallest {
        true => (size / COARSE / target.block).max(FEW),
        false => at_risk(size) / target.block,
    };
    usize::try_from(most).unwrap_or(usize::MAX).max(1)
}

/// Bytes of a file of `size` bytes that may be under way at once in parts that are noted.
fn at_risk(size: u64) -> u64 {
    (size / AT_RISK).max(RISKED)
}

/// Bytes of the chunks in which a file of `size` bytes arrives on `route`, whose parts are those of requests; less
/// where the bytes go through to a disk, which takes any size.
pub fn noted(mover: &Mover, facts: &Entry, route: Route) -> u64 {
    let block = block(mover, route, facts.size);
    let through = !mover.cx.src.caps().files && mover.cx.dst.caps().files;
    let apart = || algos(mover, facts).iter().all(|algo| *algo == Algo::Crc64Nvme);
    match route {
        Route::Parts { .. } if through && mover.job.pace.part_size.is_none() && apart() => {
            facts.size.div_ceil(NOTES).next_multiple_of(NOTED).min(block)
        }
        _ => block,
    }
}

/// Hashes to compute of each chunk by itself: those that give the hash of the whole, and those that the journal records.
fn by_chunk(digest: &Digest, target: &Target) -> Vec<Algo> {
    let mut algos = digest.by_piece();
    if target.track.is_some() && !algos.contains(&Algo::Crc64Nvme) {
        algos.push(Algo::Crc64Nvme);
    }
    algos
}

/// Writes a chunk, which a store may keep and send as it publishes if it is the `only` one.
async fn write(target: &Target, piece: Piece, count: &Count<'_>, only: bool) -> Result<(Part, Range<u64>, Hashes)> {
    let (size, meter) = (piece.payload.len(), count.meter());
    let range = piece.offset..piece.offset + size;
    let payload = piece.payload.metered(meter.clone());
    let part = target.upload.part(piece.index, piece.offset, payload.clone()).await?;
    drop(piece.memory);
    let hashes = payload.relay().and_then(Relay::hashes).unwrap_or_else(|| payload.hashes().clone());
    drop(payload);
    if let Some(track) = &target.track {
        track.sent(part.clone(), piece.offset, &hashes);
    }
    if !only {
        // Not every store reports bytes as they go.
        meter.set(size);
    }
    Ok((part, range, hashes))
}

/// How the whole is hashed, and the consequence for chunks that the destination has already.
struct Known {
    /// From where to read them again.
    again: Reread,
    /// Has taken in none of them yet.
    digest: Digest,
    /// See [`PumpResult::unproved`].
    unproved: Option<Algo>,
}

/// A CRC-64 of the whole follows from those of the chunks; a hash that needs every byte in order needs those chunks too.
/// Where an end is a file (`file`: the source), the bytes are in there. What comes as one stream passes in order anyway, and
/// what is small is still in the processor's cache as it passes.
async fn known(mover: &Mover, facts: &Entry, file: Option<Arc<File>>, streamed: bool, target: &Target) -> Known {
    if target.only.is_some() {
        return Known { again: Reread::Never, digest: Digest::new(algos_of_ranges(mover, facts)), unproved: None };
    }
    let algos = algos(mover, facts);
    let budget = mover.budget.clone();
    let known = |again, algos| {
        let digest = Digest::new(algos);
        // While all permitted read requests are under way, nobody waits for one small file.
        let digest =
            if facts.size <= target.block { digest.at_leisure(move || budget.reads_are_full()) } else { digest };
        Known { again, digest, unproved: None }
    };
    if !streamed && facts.size > hashing::INLINE && !digest::apart(&algos) {
        let buffers = mover.budget.buffers.clone();
        // Zeros that aren't written are only there once the file is published.
        if !mover.job.write.sparse
            && let Ok(Body::File(file, _)) = target.upload.read_back(0..facts.size).await
        {
            let mut digest = Digest::of_file(algos, file, buffers);
            for sent in target.known.values() {
                digest.there(sent.offset..sent.offset + sent.part.size);
            }
            return Known { again: Reread::Never, digest, unproved: None };
        }
        if let Some(file) = file {
            let mut digest = Digest::of_file(algos, file, buffers);
            digest.there(0..facts.size);
            return Known { again: Reread::Never, digest, unproved: None };
        }
    }
    if target.known.is_empty() || algos.iter().all(|algo| *algo == Algo::Crc64Nvme) {
        return known(Reread::Never, algos);
    }
    if let Ok(Body::File(file, _)) = target.upload.read_back(0..facts.size).await {
        return known(Reread::Back(file), algos);
    }
    // The source says what hash it has: where reading it again costs little, or it is deleted then, that is still to be proved.
    let must = mover.job.write.verify_read || mover.job.moves();
    if must || mover.cx.src.caps().cheap_reads {
        return known(Reread::Source, algos);
    }
    // The parts' own checksums have to do.
    Known { unproved: algos.first().copied(), ..known(Reread::Never, Vec::new()) }
}

/// Which hashes to compute on the way: one that the source knows of the whole, to prove that we read what it holds,
/// and one to compare with when the result is read back.
pub fn algos(mover: &Mover, facts: &Entry) -> Vec<Algo> {
    let mut algos = Vec::new();
    if !mover.job.write.ignore_checksum {
        // The cheapest first: a CRC runs at memory speed, MD5 at half a gigabyte a second.
        use Algo::{Blake3, Crc32, Crc32c, Crc64Nvme, Dropbox, Md5, Md5Text, QuickXor, Sha1, Sha256};
        let known = [Crc64Nvme, Crc32c, Crc32, QuickXor, Blake3, Sha256, Dropbox, Sha1, Md5, Md5Text];
        algos.extend(known.into_iter().find(|a| facts.hashes.get(*a).is_some()));
    }
    if mover.job.write.verify_read && !algos.contains(&VERIFY) {
        algos.push(VERIFY);
    }
    algos
}

/// Which hashes to compute of each range of a file: those for which the hash of the whole follows from its ranges'. Beside those of
/// [`algos`], one that the destination has of the whole, to find out later whether it has arrived.
pub fn algos_of_ranges(mover: &Mover, facts: &Entry) -> Vec<Algo> {
    let mut algos = algos(mover, facts);
    algos.push(Algo::Crc64Nvme);
    algos.extend(mover.cx.dst.caps().hashes_stored.iter().copied().find(|algo| hash::combines(*algo)));
    algos.retain(|algo| hash::combines(*algo));
    algos.sort_unstable();
    algos.dedup();
    algos
}

/// True when ranges of the file can prove what the whole has to be proved by.
pub fn is_proved_by_ranges(mover: &Mover, facts: &Entry) -> bool {
    digest::apart(&algos(mover, facts))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MI: u64 = 1 << 20;

    const LIMITS: PartLimits = PartLimits { min: 5 * MI, count: 10_000, ..PartLimits::FILE };

    fn size(size: u64, road: Option<EndpointRate>) -> u64 {
        part_size(&Job::default(), &LIMITS, Some(size), &road.map_or(ChunkRoute::Other, ChunkRoute::Rate))
    }

    #[test]
    fn parts_grow_with_the_road_while_there_are_enough_of_them() {
        let road = |delay: f64, width| Some(EndpointRate { delay: (delay * MI as f64) as u64, width });
        assert_eq!(size(1 << 30, None), 8 * MI);
        assert_eq!(size(5 << 30, road(1.2, 10)), 32 * MI, "25 MB/s and 50 ms: 36 MB would be best");
        assert_eq!(size(1 << 30, road(1.2, 10)), 16 * MI);
        assert_eq!(size(100 << 20, road(1.2, 10)), 8 * MI);
        assert_eq!(size(1 << 30, road(10.0, 32)), 8 * MI, "64 parts would be two turns");
        assert_eq!(size(5 << 30, road(0.1, 32)), 8 * MI);
        assert_eq!(size(5 << 30, road(100.0, 10)), 64 * MI);
        assert_eq!(size(500 << 30, road(0.001, 32)), 52 * MI, "at most 10,000 parts");
        let requested = Job::default().with(|job| job.pace.part_size = Some(6 * MI));
        let far = ChunkRoute::Rate(EndpointRate { delay: MI, width: 10 });
        assert_eq!(part_size(&requested, &PartLimits::FILE, Some(5 << 30), &far), 6 * MI);
        let chosen = PartLimits { chosen: true, ..LIMITS };
        for along in [far, ChunkRoute::Passing] {
            assert_eq!(part_size(&Job::default(), &chosen, Some(5 << 30), &along), 8 * MI);
        }
    }

    #[test]
    fn parts_that_go_on_are_small_where_few_may_be_lost() {
        let size = |size| part_size(&Job::default(), &LIMITS, Some(size), &ChunkRoute::Passing);
        assert_eq!((size(100 << 20), size(1 << 30), size(5 << 30)), (5 * MI, 5 * MI, 8 * MI));
        assert_eq!(size(200 << 30), 21 * MI, "at most 10,000 parts");
    }
}
