//! Packs as tar archives in POSIX pax format, so that any tar reads them. Bytes in and out; no I/O.
//!
//! Each file has the usual header block before its bytes, and before that a pax header of two or more blocks where the usual one
//! isn't enough: a name, time or size that it has no room for, metadata (as extended attributes). The fraction of a second of its
//! mtime is in bytes of the usual header that other programs ignore: tar extracts whole seconds, and with a pax header for this one number
//! a file of 1 kB would take 2.5. A pack contains only files.

use haul_core::{Meta, Mtime};

/// Everything in a tar begins at a multiple of this many bytes.
pub const BLOCK: u64 = 512;
/// Two empty blocks end an archive.
pub const END: [u8; 2 * BLOCK as usize] = [0; 2 * BLOCK as usize];
/// Metadata that isn't in the usual header stands under this prefix, as tar keeps extended attributes.
const ATTRIBUTE: &str = "SCHILY.xattr.user.";
/// The last bytes of a header, which POSIX leaves unused: nine digits of nanoseconds, or zeros.
const NANOS: std::ops::Range<usize> = 500..509;
/// Largest number of an octal field of eleven digits.
const OCTAL_11: u64 = (1 << 33) - 1;

/// Headers before the bytes of a file.
pub fn header(key: &[u8], size: u64, mtime: Mtime, meta: Option<&Meta>) -> Vec<u8> {
    let mut records = Vec::new();
    let split = split(key);
    if split.is_none() {
        if std::str::from_utf8(key).is_err() {
            record(&mut records, b"hdrcharset", b"BINARY");
        }
        record(&mut records, b"path", key);
    }
    let secs = u64::try_from(mtime.secs()).ok().filter(|s| *s <= OCTAL_11);
    if secs.is_none() {
        record(&mut records, b"mtime", decimal(mtime).as_bytes());
    }
    if size > OCTAL_11 {
        record(&mut records, b"size", size.to_string().as_bytes());
    }
    let number = |name: &str, radix| meta.and_then(|m| u64::from_str_radix(m.get(name)?, radix).ok());
    for (name, value) in meta.into_iter().flatten().filter(|(name, _)| !matches!(name.as_str(), "mode" | "uid" | "gid"))
    {
        record(&mut records, format!("{ATTRIBUTE}{name}").as_bytes(), value.as_bytes());
    }
    let owner = (number("uid", 10).unwrap_or(0), number("gid", 10).unwrap_or(0));
    let mode = number("mode", 8).unwrap_or(0o644) & 0o7777;
    let name = split.unwrap_or((b"", b"in-the-pax-header"));
    let nanos = if secs.is_some() { mtime.nanos() } else { 0 };
    let mut out = Vec::new();
    if !records.is_empty() {
        let name = (&b""[..], &b"PaxHeaders/file"[..]);
        out.extend(block(name, records.len() as u64, (secs.unwrap_or(0), 0), mode, owner, b'x'));
        out.extend(&records);
        out.resize(out.len().next_multiple_of(BLOCK as usize), 0);
    }
    out.extend(block(name, size.min(OCTAL_11), (secs.unwrap_or(0), nanos), mode, owner, b'0'));
    out
}

/// The parts before and after a slash in which the usual header holds this key; `None` where it can't.
fn split(key: &[u8]) -> Option<(&[u8], &[u8])> {
    if key.ends_with(b"/") || !key.iter().all(|b| (0x20..0x7f).contains(b)) {
        return None;
    }
    if key.len() <= 100 {
        return Some((b"", key));
    }
    // The first slash that leaves no more than a name may have.
    let at = (key.len() - 101..key.len()).find(|at| key[*at] == b'/').filter(|at| (1..=155).contains(at))?;
    Some((&key[..at], &key[at + 1..]))
}

/// Empty bytes up to the next block.
pub fn padding(size: u64) -> usize {
    (size.next_multiple_of(BLOCK) - size) as usize
}

/// `LEN KEY=VALUE\n`, where the length counts itself.
fn record(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let rest = name.len() + value.len() + 3;
    let mut len = rest + 1;
    while rest + len.to_string().len() != len {
        len = rest + len.to_string().len();
    }
    out.extend(format!("{len} ").as_bytes());
    out.extend([name, b"=", value, b"\n"].concat());
}

/// Seconds since the epoch with a fraction.
fn decimal(time: Mtime) -> String {
    let (secs, nanos) = match (time.secs(), time.nanos()) {
        // -1 s and 250 million nanoseconds are -0.75 s.
        (secs, nanos) if secs < 0 && nanos > 0 => (format!("-{}", -(secs + 1)), 1_000_000_000 - nanos),
        (secs, nanos) => (secs.to_string(), nanos),
    };
    if nanos == 0 { secs } else { format!("{secs}.{nanos:09}") }
}

fn block(
    (folder, name): (&[u8], &[u8]),
    size: u64,
    (secs, nanos): (u64, u32),
    mode: u64,
    (uid, gid): (u64, u64),
    kind: u8,
) -> [u8; BLOCK as usize] {
    let mut block = [0; BLOCK as usize];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name);
    put(100, format!("{mode:07o}").as_bytes());
    // An owner beyond seven octal digits stays out, rather than becoming another one.
    put(108, format!("{:07o}", if uid < 1 << 21 { uid } else { 0 }).as_bytes());
    put(116, format!("{:07o}", if gid < 1 << 21 { gid } else { 0 }).as_bytes());
    put(124, format!("{size:011o}").as_bytes());
    put(136, format!("{secs:011o}").as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    put(345, folder);
    if nanos != 0 {
        put(NANOS.start, format!("{nanos:09}").as_bytes());
    }
    let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// A file found in a tar.
#[derive(Debug, PartialEq, Eq)]
pub struct Member {
    pub key: Vec<u8>,
    pub mtime: Mtime,
    /// Where its bytes begin.
    pub offset: u64,
    pub size: u64,
    pub meta: Option<Box<Meta>>,
}

/// The files of a whole tar that [`header`] made.
///
/// Errors: what is wrong with it, in a few words.
pub fn members(tar: &[u8]) -> Result<Vec<Member>, &'static str> {
    let (mut found, mut at, mut pax) = (Vec::new(), 0, Vec::new());
    loop {
        let block = tar.get(at..at + BLOCK as usize).ok_or("it is cut off")?;
        if block.iter().all(|b| *b == 0) {
            return Ok(found);
        }
        let sum: u32 =
            block.iter().enumerate().map(|(n, b)| u32::from(if (148..156).contains(&n) { b' ' } else { *b })).sum();
        if octal(&block[148..154]) != Some(u64::from(sum)) {
            return Err("a header's checksum is wrong");
        }
        at += BLOCK as usize;
        let get = |name: &[u8], pax: &[(Vec<u8>, Vec<u8>)]| pax.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
        let as_text = |value: Option<Vec<u8>>| value.and_then(|v| String::from_utf8(v).ok());
        let size = as_text(get(b"size", &pax)).and_then(|s| s.parse().ok()).or(octal(&block[124..135]));
        let size = size.ok_or("a size can't be read")?;
        let end = usize::try_from(size).ok().and_then(|size| at.checked_add(size)).filter(|end| *end <= tar.len());
        let end = end.ok_or("it is cut off")?;
        match block[156] {
            b'x' => pax = records(&tar[at..end]).ok_or("an extended header can't be read")?,
            b'0' => {
                let text = |range: std::ops::Range<usize>| block[range].split(|b| *b == 0).next().unwrap_or_default();
                let name = match (text(345..500), text(0..100)) {
                    (b"", name) => name.to_vec(),
                    (folder, name) => [folder, b"/", name].concat(),
                };
                let secs = octal(&block[136..147]).ok_or("a time can't be read")?;
                let mtime = match as_text(get(b"mtime", &pax)) {
                    Some(text) => time(&text).ok_or("a time can't be read")?,
                    None => Mtime::new(secs as i64, nanos(&block[NANOS])),
                };
                let key = get(b"path", &pax).unwrap_or(name);
                let attributes = pax.iter().filter_map(|(n, v)| {
                    let name = std::str::from_utf8(n).ok()?.strip_prefix(ATTRIBUTE)?;
                    Some((name.to_owned(), String::from_utf8(v.clone()).ok()?))
                });
                let meta: Meta = attributes.collect();
                let meta = (!meta.is_empty()).then(|| Box::new(meta));
                found.push(Member { key, mtime, offset: at as u64, size, meta });
                pax.clear();
            }
            _ => return Err("it holds something that haul doesn't pack"),
        }
        at = end.next_multiple_of(BLOCK as usize);
    }
}

fn nanos(field: &[u8]) -> u32 {
    let digits = std::str::from_utf8(field).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn octal(field: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(field).ok()?, 8).ok()
}

fn records(mut bytes: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let space = bytes.iter().position(|b| *b == b' ')?;
        let len: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
        let record = bytes.get(space + 1..len)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|b| *b == b'=')?;
        found.push((record[..equals].to_vec(), record[equals + 1..].to_vec()));
        bytes = &bytes[len..];
    }
    Some(found)
}

fn time(text: &str) -> Option<Mtime> {
    let (secs, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let nanos: i128 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    let whole = secs.parse::<i128>().ok()? * 1_000_000_000;
    Some(Mtime(if secs.starts_with('-') { whole - nanos } else { whole + nanos }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_found() {
        let long = [b"d/".repeat(80), b"f".to_vec()].concat();
        let longer = [b"d".repeat(101), b"/f".to_vec(), b"g".repeat(99)].concat();
        let keys: [&[u8]; 7] = [b"a", b"with space", &long, b"raw\xff\n", "\u{e9}".as_bytes(), &longer, &longer[1..]];
        let times = [
            Mtime::new(1_600_000_000, 0),
            Mtime::new(1_600_000_000, 5),
            Mtime(-1),
            Mtime::new(-7, 0),
            Mtime::new(1 << 35, 1),
            Mtime::new(1_600_000_000, 123_456_789),
            Mtime::new(0, 1_000_000),
        ];
        let meta: Meta = [("colour".to_string(), "red = 1".to_string())].into();
        let (mut tar, mut expected) = (Vec::new(), Vec::new());
        for (number, (key, mtime)) in keys.into_iter().zip(times).enumerate() {
            let size = number as u64 * 300;
            let meta = (number % 2 == 1).then_some(&meta);
            tar.extend(header(key, size, mtime, meta));
            let meta = meta.cloned().map(Box::new);
            expected.push(Member { key: key.to_vec(), mtime, offset: tar.len() as u64, size, meta });
            tar.extend(vec![b'x'; size as usize]);
            tar.extend(vec![0; padding(size)]);
        }
        assert_eq!(members(&tar), Err("it is cut off"));
        tar.extend(END);
        assert_eq!(members(&tar), Ok(expected));
        tar[3] ^= 1;
        assert_eq!(members(&tar), Err("a header's checksum is wrong"));
    }

    #[test]
    fn a_usual_file_costs_one_block() {
        let mtime = Mtime::new(1_600_000_000, 123_456_789);
        let len = |key: &[u8]| header(key, 1000, mtime, None).len();
        let deep = [b"folder/".repeat(20), b"f".repeat(100)].concat();
        assert_eq!((len(b"a/b"), len(&deep), len(&b"x".repeat(101))), (512, 512, 1536));
        assert_eq!(split(&deep), Some((&deep[..139], &deep[140..])));
        assert_eq!(split(&[b"d/".repeat(130), b"f".to_vec()].concat()), None, "the folder is too long");
    }

    #[test]
    fn packs_with_a_time_in_the_pax_header_are_read() {
        let mut records = Vec::new();
        record(&mut records, b"mtime", b"1600000000.000000005");
        let mut tar = block((b"", b"PaxHeaders/file"), records.len() as u64, (0, 0), 0o644, (0, 0), b'x').to_vec();
        tar.extend(&records);
        tar.resize(2 * BLOCK as usize, 0);
        tar.extend(block((b"", b"a"), 0, (1_600_000_000, 0), 0o644, (0, 0), b'0'));
        tar.extend(END);
        assert_eq!(members(&tar).unwrap()[0].mtime, Mtime::new(1_600_000_000, 5));
    }

    #[test]
    fn a_record_counts_its_own_length() {
        for len in 1..200 {
            let mut out = Vec::new();
            record(&mut out, b"n", &vec![b'v'; len]);
            assert_eq!(records(&out), Some(vec![(b"n".to_vec(), vec![b'v'; len])]));
        }
    }
}
