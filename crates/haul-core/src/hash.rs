//! Hash algorithms, hash values, and a streaming hasher over all of them.

use crate::{
    dos2unix::Dos2Unix,
    md5::{self, Md5},
    quickxor::{self, QuickXor},
};
use std::{fmt, str::FromStr, sync::Arc};

/// A hash algorithm that some store lists, keeps or checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algo {
    /// MD5, 16 bytes: ETags of single uploads, rclone's `md5chksum`.
    Md5,
    /// SHA-1, 20 bytes.
    Sha1,
    /// SHA-256, 32 bytes.
    Sha256,
    /// SHA-512, 64 bytes.
    Sha512,
    /// CRC-32 (IEEE), 4 bytes, big-endian.
    Crc32,
    /// CRC-32C (Castagnoli), 4 bytes, big-endian.
    Crc32c,
    /// CRC-64/NVME, 8 bytes, big-endian.
    Crc64Nvme,
    /// BLAKE3, 32 bytes.
    Blake3,
    /// XXH3-64, 8 bytes, big-endian.
    Xxh3,
    /// XXH3-128, 16 bytes, big-endian.
    Xxh128,
    /// QuickXorHash, 20 bytes: OneDrive and SharePoint.
    QuickXor,
    /// Dropbox's `content_hash`, 32 bytes: SHA-256 over the SHA-256s of blocks of 4 MiB.
    Dropbox,
    /// MD5, 16 bytes, after line ends of text were made Unix's: how DVC 2 and before named content.
    Md5Text,
}

impl Algo {
    /// Every algorithm that users can ask for. Not `Md5Text`, which isn't a hash of the bytes.
    pub const ALL: [Algo; 12] = [
        Algo::Md5,
        Algo::Sha1,
        Algo::Sha256,
        Algo::Sha512,
        Algo::Crc32,
        Algo::Crc32c,
        Algo::Crc64Nvme,
        Algo::Blake3,
        Algo::Xxh3,
        Algo::Xxh128,
        Algo::QuickXor,
        Algo::Dropbox,
    ];

    /// The name that users type and scripts read (rclone's, where it has one).
    pub fn name(self) -> &'static str {
        match self {
            Algo::Md5 => "md5",
            Algo::Sha1 => "sha1",
            Algo::Sha256 => "sha256",
            Algo::Sha512 => "sha512",
            Algo::Crc32 => "crc32",
            Algo::Crc32c => "crc32c",
            Algo::Crc64Nvme => "crc64nvme",
            Algo::Blake3 => "blake3",
            Algo::Xxh3 => "xxh3",
            Algo::Xxh128 => "xxh128",
            Algo::QuickXor => "quickxor",
            Algo::Dropbox => "dropbox",
            Algo::Md5Text => "md5-dos2unix",
        }
    }

    /// Length of a value in bytes.
    pub fn size(self) -> usize {
        match self {
            Algo::Crc32 | Algo::Crc32c => 4,
            Algo::Crc64Nvme | Algo::Xxh3 => 8,
            Algo::Md5 | Algo::Md5Text | Algo::Xxh128 => 16,
            Algo::Sha1 | Algo::QuickXor => 20,
            Algo::Sha256 | Algo::Blake3 | Algo::Dropbox => 32,
            Algo::Sha512 => 64,
        }
    }
}

impl fmt::Display for Algo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = text.to_ascii_lowercase().replace('-', "");
        Algo::ALL.into_iter().find(|a| a.name() == wanted).ok_or_else(|| {
            let names: Vec<_> = Algo::ALL.iter().map(|a| a.name()).collect();
            format!("unknown hash {text:?}: use one of {}", names.join(", "))
        })
    }
}

/// Hash values known of some content. A missing algorithm means "unknown", never "empty".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hashes(Vec<(Algo, Arc<[u8]>)>);

impl Hashes {
    /// Remembers a value; a second value for the same algorithm replaces the first.
    pub fn set(&mut self, algo: Algo, value: impl AsRef<[u8]>) {
        let value: Arc<[u8]> = value.as_ref().into();
        match self.0.iter_mut().find(|(a, _)| *a == algo) {
            Some(slot) => slot.1 = value,
            None => self.0.push((algo, value)),
        }
    }

    /// These values and one more.
    pub fn with(mut self, algo: Algo, value: impl AsRef<[u8]>) -> Self {
        self.set(algo, value);
        self
    }

    /// The value of `algo`, if known.
    pub fn get(&self, algo: Algo) -> Option<&[u8]> {
        self.0.iter().find(|(a, _)| *a == algo).map(|(_, v)| v.as_ref())
    }

    /// The value of `algo` in lower-case hexadecimal.
    pub fn hex(&self, algo: Algo) -> Option<String> {
        self.get(algo).map(to_hex)
    }

    /// CRC-64/NVME as a number, if known.
    pub fn crc64(&self) -> Option<u64> {
        Some(u64::from_be_bytes(self.get(Algo::Crc64Nvme)?.try_into().ok()?))
    }

    /// Every known value.
    pub fn iter(&self) -> impl Iterator<Item = (Algo, &[u8])> {
        self.0.iter().map(|(a, v)| (*a, v.as_ref()))
    }

    /// True when nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes over the values of `other` that are not known here.
    pub fn merge(&mut self, other: &Hashes) {
        for (algo, value) in &other.0 {
            if self.get(*algo).is_none() {
                self.0.push((*algo, value.clone()));
            }
        }
    }

    /// Compares by an algorithm known on both sides: `Some(equal)` and which one, or `None` when they share none.
    pub fn agree(&self, other: &Hashes) -> Option<(Algo, bool)> {
        let mut shared = self.0.iter().filter_map(|(a, v)| other.get(*a).map(|w| (*a, v.as_ref() == w)));
        let first = shared.next()?;
        // One algorithm that differs is proof enough, whatever the others say.
        Some(std::iter::once(first).chain(shared).find(|(_, same)| !same).unwrap_or(first))
    }
}

/// A byte as two lower-case hexadecimal digits.
pub fn hex_digits(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

/// Bytes as lower-case hexadecimal.
pub fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    text.extend(bytes.iter().flat_map(|byte| hex_digits(*byte)).map(char::from));
    text
}

/// Hexadecimal (either case) as bytes; `None` if it isn't.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16).map(|digit| digit as u8);
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// Hashes bytes as they pass. Costs nothing for algorithms that weren't asked for.
pub struct Hasher(Vec<(Algo, State)>);

enum State {
    Md5(Box<Md5>),
    Md5Text(Box<Dos2Unix>),
    Sha(Box<aws_lc_rs::digest::Context>),
    Blocks(Box<Blocks>),
    Crc(Box<crc_fast::Digest>),
    Blake3(Box<blake3::Hasher>),
    Xxh3(Box<xxhash_rust::xxh3::Xxh3>),
    Xxh128(Box<xxhash_rust::xxh3::Xxh3>),
    QuickXor(Box<QuickXor>),
}

/// The SHA-256 over those of blocks.
struct Blocks {
    all: aws_lc_rs::digest::Context,
    block: aws_lc_rs::digest::Context,
    /// Bytes in the block.
    filled: usize,
}

/// Bytes of a block of Dropbox's hash.
pub const DROPBOX_BLOCK: usize = 4 << 20;

/// Dropbox's hash of a whole from the SHA-256s of its blocks, one after another.
pub fn of_dropbox_blocks(blocks: &[u8]) -> Hashes {
    let all = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, blocks);
    Hashes::default().with(Algo::Dropbox, all)
}

impl Blocks {
    fn new() -> Blocks {
        let new = || aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
        Blocks { all: new(), block: new(), filled: 0 }
    }

    fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(DROPBOX_BLOCK - self.filled));
            self.block.update(now);
            self.filled += now.len();
            bytes = rest;
            if self.filled == DROPBOX_BLOCK {
                self.seal();
            }
        }
    }

    fn seal(&mut self) {
        let block = std::mem::replace(&mut self.block, aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256));
        self.all.update(block.finish().as_ref());
        self.filled = 0;
    }

    fn finish(mut self) -> aws_lc_rs::digest::Digest {
        if self.filled > 0 {
            self.seal();
        }
        self.all.finish()
    }
}

impl State {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            State::Md5(s) => s.update(bytes),
            State::Md5Text(s) => s.update(bytes),
            State::Sha(s) => s.update(bytes),
            State::Blocks(s) => s.update(bytes),
            State::Crc(s) => s.update(bytes),
            State::Blake3(s) => {
                s.update(bytes);
            }
            State::Xxh3(s) | State::Xxh128(s) => s.update(bytes),
            State::QuickXor(s) => s.update(bytes),
        }
    }
}

/// How many hashers gain by being [side by side](Hasher::update_each) at once; 1 where none does.
pub fn side_by_side() -> usize {
    md5::width()
}

impl Hasher {
    /// A hasher of all of `algos`; an empty list is legal and does nothing.
    pub fn new(algos: &[Algo]) -> Self {
        use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA512};
        use crc_fast::{CrcAlgorithm, Digest};
        let state = |algo| match algo {
            Algo::Md5 => State::Md5(Box::default()),
            Algo::Md5Text => State::Md5Text(Box::default()),
            Algo::Sha1 => State::Sha(Box::new(Context::new(&SHA1_FOR_LEGACY_USE_ONLY))),
            Algo::Sha256 => State::Sha(Box::new(Context::new(&SHA256))),
            Algo::Sha512 => State::Sha(Box::new(Context::new(&SHA512))),
            Algo::Dropbox => State::Blocks(Box::new(Blocks::new())),
            Algo::Crc32 => State::Crc(Box::new(Digest::new(CrcAlgorithm::Crc32IsoHdlc))),
            Algo::Crc32c => State::Crc(Box::new(Digest::new(CrcAlgorithm::Crc32Iscsi))),
            Algo::Crc64Nvme => State::Crc(Box::new(Digest::new(CrcAlgorithm::Crc64Nvme))),
            Algo::Blake3 => State::Blake3(Box::default()),
            Algo::Xxh3 => State::Xxh3(Box::default()),
            Algo::Xxh128 => State::Xxh128(Box::default()),
            Algo::QuickXor => State::QuickXor(Box::default()),
        };
        Hasher(algos.iter().map(|a| (*a, state(*a))).collect())
    }

    /// Takes in the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.iter_mut().for_each(|(_, state)| state.update(bytes));
    }

    /// Takes the next bytes of each into it: the MD5s of all side by side, which costs a fraction of one after another.
    pub fn update_each<'a>(each: impl IntoIterator<Item = (&'a mut Hasher, &'a [u8])>) {
        let mut md5s = Vec::new();
        for (hasher, bytes) in each {
            for (_, state) in &mut hasher.0 {
                match state {
                    State::Md5(md5) => md5s.push((&mut **md5, bytes)),
                    state => state.update(bytes),
                }
            }
        }
        md5::update_each(md5s);
    }

    /// True when several take less time [side by side](Hasher::update_each) than one after another.
    pub fn gains_side_by_side(&self) -> bool {
        md5::width() > 1 && self.0.iter().any(|(_, state)| matches!(state, State::Md5(_)))
    }

    /// The values of all the bytes taken in.
    pub fn finish(self) -> Hashes {
        let mut hashes = Hashes::default();
        for (algo, state) in self.0 {
            match state {
                State::Md5(s) => hashes.set(algo, s.finish()),
                State::Md5Text(s) => hashes.set(algo, s.finish()),
                State::Sha(s) => hashes.set(algo, s.finish()),
                State::Blocks(s) => hashes.set(algo, s.finish()),
                State::Crc(s) => {
                    let value = s.finalize().to_be_bytes();
                    hashes.set(algo, &value[8 - algo.size()..]);
                }
                State::Blake3(s) => hashes.set(algo, s.finalize().as_bytes()),
                State::Xxh3(s) => hashes.set(algo, s.digest().to_be_bytes()),
                State::Xxh128(s) => hashes.set(algo, s.digest128().to_be_bytes()),
                State::QuickXor(s) => hashes.set(algo, s.finish()),
            }
        }
        hashes
    }
}

/// True for algorithms that combine: the value of a whole follows from those of its pieces (the CRCs and QuickXorHash).
pub fn combines(algo: Algo) -> bool {
    crc(algo).is_some() || algo == Algo::QuickXor
}

fn crc(algo: Algo) -> Option<crc_fast::CrcAlgorithm> {
    match algo {
        Algo::Crc32 => Some(crc_fast::CrcAlgorithm::Crc32IsoHdlc),
        Algo::Crc32c => Some(crc_fast::CrcAlgorithm::Crc32Iscsi),
        Algo::Crc64Nvme => Some(crc_fast::CrcAlgorithm::Crc64Nvme),
        _ => None,
    }
}

/// The value of a whole from those of its pieces, in order: each piece's value and its length in bytes. `None` when a
/// piece has none, or the algorithm is none that combines.
pub fn combine<'a>(algo: Algo, pieces: impl IntoIterator<Item = (Option<&'a [u8]>, u64)>) -> Option<Vec<u8>> {
    if algo == Algo::QuickXor {
        return quickxor::combine(pieces).map(|value| value.to_vec());
    }
    let crc = crc(algo)?;
    let number = |value: &[u8]| value.iter().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
    let mut pieces = pieces.into_iter();
    let mut whole = match pieces.next() {
        // Combining costs some 70 µs, as much as hashing a megabyte: most files are one piece.
        Some((value, _)) => number(value?),
        None => number(hash_bytes(&[algo], b"").get(algo)?),
    };
    for (value, len) in pieces {
        whole = crc_fast::checksum_combine(crc, whole, number(value?), len);
    }
    Some(whole.to_be_bytes()[8 - algo.size()..].to_vec())
}

/// True when the value of a large file follows from those of its pieces, which may then be hashed by several threads: the
/// CRCs, QuickXorHash and BLAKE3.
pub fn splits(algo: Algo) -> bool {
    combines(algo) || algo == Algo::Blake3
}

/// Bytes of each piece of a large file but the last, see [`PieceHasher`]. A power of two, as BLAKE3's tree has it; hashing one
/// takes a millisecond, so that handing it to a thread costs nothing beside.
pub const PIECE: u64 = 4 << 20;

/// Hashes one piece of a file of more than one.
pub struct PieceHasher {
    crcs: Hasher,
    blake3: Option<Box<blake3::Hasher>>,
    len: u64,
}

/// Known hashes of one piece.
pub struct PieceHash {
    crcs: Hashes,
    blake3: Option<blake3::hazmat::ChainingValue>,
    len: u64,
}

impl PieceHasher {
    /// For the piece with this number, from 0; all of `algos` must be such that [split](splits).
    pub fn new(algos: &[Algo], number: u64) -> Self {
        use blake3::hazmat::HasherExt;
        let crcs: Vec<Algo> = algos.iter().copied().filter(|algo| combines(*algo)).collect();
        let blake3 = algos.contains(&Algo::Blake3).then(|| {
            let mut hasher = Box::<blake3::Hasher>::default();
            hasher.set_input_offset(number * PIECE);
            hasher
        });
        PieceHasher { crcs: Hasher::new(&crcs), blake3, len: 0 }
    }

    /// Takes in the piece's next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        self.crcs.update(bytes);
        if let Some(hasher) = &mut self.blake3 {
            hasher.update(bytes);
        }
    }

    /// The value of the piece, of which all bytes were taken in.
    pub fn finish(self) -> PieceHash {
        use blake3::hazmat::HasherExt;
        PieceHash {
            crcs: self.crcs.finish(),
            blake3: self.blake3.map(|hasher| hasher.finalize_non_root()),
            len: self.len,
        }
    }
}

/// The values of a file from those of all its pieces, in order; `None` unless there are two or more, each but the last of
/// [`PIECE`] bytes.
pub fn join_pieces(algos: &[Algo], pieces: &[PieceHash]) -> Option<Hashes> {
    let (last, full) = pieces.split_last()?;
    if full.is_empty() || last.len == 0 || last.len > PIECE || full.iter().any(|piece| piece.len != PIECE) {
        return None;
    }
    let mut hashes = Hashes::default();
    for algo in algos {
        if *algo == Algo::Blake3 {
            let values: Vec<_> = pieces.iter().map(|piece| piece.blake3).collect::<Option<_>>()?;
            let (left, right) = halves(&values);
            let root = blake3::hazmat::merge_subtrees_root(&left, &right, blake3::hazmat::Mode::Hash);
            hashes.set(*algo, root.as_bytes());
        } else {
            hashes.set(*algo, combine(*algo, pieces.iter().map(|piece| (piece.crcs.get(*algo), piece.len)))?);
        }
    }
    Some(hashes)
}

/// The two children of the node above two values or more: on the left the most pieces that are a power of two.
fn halves(values: &[blake3::hazmat::ChainingValue]) -> (blake3::hazmat::ChainingValue, blake3::hazmat::ChainingValue) {
    let left = values.len().next_power_of_two() / 2;
    (subtree(&values[..left]), subtree(&values[left..]))
}

fn subtree(values: &[blake3::hazmat::ChainingValue]) -> blake3::hazmat::ChainingValue {
    match values {
        [one] => *one,
        more => {
            let (left, right) = halves(more);
            blake3::hazmat::merge_subtrees_non_root(&left, &right, blake3::hazmat::Mode::Hash)
        }
    }
}

/// Hashes one buffer.
pub fn hash_bytes(algos: &[Algo], bytes: &[u8]) -> Hashes {
    let mut hasher = Hasher::new(algos);
    hasher.update(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropbox_hashes_blocks() {
        let hash = |bytes: &[u8]| hash_bytes(&[Algo::Dropbox], bytes).hex(Algo::Dropbox).unwrap();
        // As `rclone hashsum dropbox` has them.
        assert_eq!(hash(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(hash(b"abc"), "4f8b42c22dd3729b519ba6f68d2da7cc5b2d606d05daed5ad5128cc03e6c6358");
        let data: Vec<u8> = (0..9_000_000u32).map(|i| (i * 31) as u8).collect();
        assert_eq!(hash(&data), "7eb1d0831dd90173a45daab09361da7ec1c85b842da1f679498fe25b7f305928");
        // The example that Dropbox gives: the blocks of a picture.
        let blocks = "2a846fa617c3361fc117e1c5c1e1838c336b6a5cef982c1a2d9bdf68f2f1992a\
                      c68469027410ea393eba6551b9fa1e26db775f00eae70a0c3c129a0011a39cf9\
                      7376192de020925ce6c5ef5a8a0405e931b0a9a8c75517aacd9ca24a8a56818b";
        let whole = of_dropbox_blocks(&from_hex(blocks).unwrap()).hex(Algo::Dropbox);
        assert_eq!(whole.unwrap(), "485291fa0ee50c016982abbfa943957bcd231aae0492ccbaa22c58e3997b35e0");
        assert_eq!(
            hash(&data[..2 * DROPBOX_BLOCK]),
            "6a01277e9960d4c62ce40fb74476cfb31a9dd47b7c5fd83a1b85d63f3c180585"
        );
    }

    #[test]
    fn pieces_combine_to_the_whole() {
        let data: Vec<u8> = (0..100_000u32).map(|i| (i * 31) as u8).collect();
        for algo in [Algo::Crc32, Algo::Crc32c, Algo::Crc64Nvme, Algo::QuickXor] {
            let pieces: Vec<(Hashes, u64)> =
                data.chunks(30_000).map(|c| (hash_bytes(&[algo], c), c.len() as u64)).collect();
            let whole = combine(algo, pieces.iter().map(|(h, len)| (h.get(algo), *len)));
            assert_eq!(whole.as_deref(), hash_bytes(&[algo], &data).get(algo), "{algo}");
            let none = combine(algo, []);
            assert_eq!(none.as_deref(), hash_bytes(&[algo], b"").get(algo), "{algo}");
        }
        assert_eq!(combine(Algo::Md5, []), None);
    }

    #[test]
    fn large_files_hash_in_pieces_like_as_a_whole() {
        let algos = [Algo::Blake3, Algo::Crc32c, Algo::Crc64Nvme];
        let data: Vec<u8> =
            (0..7 * PIECE as usize + 77).map(|i| ((i as u32).wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for len in [PIECE + 1, 2 * PIECE, 2 * PIECE + 1023, 3 * PIECE, 5 * PIECE + 1, 7 * PIECE + 77] {
            let data = &data[..len as usize];
            let pieces = data.chunks(PIECE as usize).enumerate().map(|(number, bytes)| {
                let mut hasher = PieceHasher::new(&algos, number as u64);
                bytes.chunks(100_000).for_each(|block| hasher.update(block));
                hasher.finish()
            });
            let pieces: Vec<_> = pieces.collect();
            assert_eq!(join_pieces(&algos, &pieces), Some(hash_bytes(&algos, data)), "{len}");
            assert!(join_pieces(&algos, &pieces[..1]).is_none(), "one piece is no tree");
        }
        assert!(join_pieces(&algos, &[]).is_none());
        assert!(!splits(Algo::Md5) && !splits(Algo::Sha256) && splits(Algo::Blake3) && splits(Algo::Crc32));
    }

    // Check values of "123456789" as published: RFC 1321-style MD5, FIPS 180-4, the CRC catalogue, and the
    // reference implementations of BLAKE3 and xxHash.
    #[test]
    fn known_values() {
        let hashes = hash_bytes(&Algo::ALL, b"123456789");
        for (algo, hex) in [
            (Algo::Md5, "25f9e794323b453885f5181f1b624d0b"),
            (Algo::Sha1, "f7c3bc1d808e04732adf679965ccc34ca7ae3441"),
            (Algo::Sha256, "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"),
            (Algo::Crc32, "cbf43926"),
            (Algo::Crc32c, "e3069283"),
            (Algo::Crc64Nvme, "ae8b14860a799888"),
        ] {
            assert_eq!(hashes.hex(algo).as_deref(), Some(hex), "{algo}");
        }
        let empty = hash_bytes(&Algo::ALL, b"");
        assert_eq!(
            empty.hex(Algo::Blake3).unwrap(),
            "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
        );
        assert_eq!(empty.hex(Algo::Xxh3).unwrap(), "2d06800538d394c2");
        assert_eq!(empty.hex(Algo::Xxh128).unwrap(), "99aa06d3014798d86001c324468d497f");
        assert!(Algo::ALL.iter().all(|a| hashes.get(*a).unwrap().len() == a.size()));
    }

    #[test]
    fn pieces_hash_like_the_whole() {
        let data: Vec<u8> = (0..10_000u32).map(|i| (i * 7) as u8).collect();
        let mut hasher = Hasher::new(&Algo::ALL);
        data.chunks(333).for_each(|c| hasher.update(c));
        assert_eq!(hasher.finish(), hash_bytes(&Algo::ALL, &data));
    }

    /// MD5 is written in assembly for speed; RustCrypto's is the judge of it, at every length around its blocks.
    #[test]
    fn md5_is_what_another_implementation_says() {
        use ::md5::Digest as _;
        let data: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let lengths = (0..300).chain([1_000, 4_095, 4_096, 65_537, 100_000]);
        for len in lengths {
            let whole = hash_bytes(&[Algo::Md5], &data[..len]);
            assert_eq!(whole.get(Algo::Md5), Some(&::md5::Md5::digest(&data[..len])[..]), "{len} bytes");
            let mut pieces = Hasher::new(&[Algo::Md5]);
            data[..len].chunks(len % 131 + 1).for_each(|c| pieces.update(c));
            assert_eq!(pieces.finish(), whole, "{len} bytes in pieces");
        }
    }

    #[test]
    fn one_algorithm_that_differs_is_proof() {
        let a = Hashes::default().with(Algo::Md5, [1]).with(Algo::Crc32, [2]);
        let b = Hashes::default().with(Algo::Md5, [1]).with(Algo::Crc32, [3]);
        assert_eq!(a.agree(&b), Some((Algo::Crc32, false)));
        assert_eq!(a.agree(&a), Some((Algo::Md5, true)));
        assert_eq!(a.agree(&Hashes::default()), None);
    }

    #[test]
    fn hex_goes_both_ways() {
        assert_eq!(from_hex("00fFa0"), Some(vec![0, 255, 160]));
        assert_eq!(to_hex(&[0, 255, 160]), "00ffa0");
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("zz"), None);
        assert_eq!(from_hex("+f"), None);
        assert_eq!(from_hex("é"), None);
    }

    #[test]
    fn names_parse_back() {
        for algo in Algo::ALL {
            assert_eq!(algo.name().to_uppercase().parse(), Ok(algo));
        }
        assert!("md6".parse::<Algo>().unwrap_err().contains("md5"));
    }
}
