//! S3's checksums: which were announced, which came, what they are of, and whether they are right.

use super::{
    answer::Refusal,
    body::Received,
    pattern,
    space::{Part, Piece},
    sum::{Announced, Sum},
};
use base64::{Engine as _, engine::general_purpose::STANDARD as B64};
use haul_core::{Algo, Hasher, hash::hash_bytes};
use hyper::{
    HeaderMap, StatusCode,
    header::{HeaderName, HeaderValue},
};

/// Algorithms: as haul and as S3 call them.
const ALGOS: [(Algo, &str); 5] = [
    (Algo::Crc64Nvme, "CRC64NVME"),
    (Algo::Crc32, "CRC32"),
    (Algo::Crc32c, "CRC32C"),
    (Algo::Sha1, "SHA1"),
    (Algo::Sha256, "SHA256"),
];

const SEVERAL: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "InvalidRequest",
    "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.",
);
const ALONE: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "InvalidRequest",
    "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.",
);
const NONE_CAME: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "InvalidRequest",
    "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer headers were found.",
);

/// S3's name of an algorithm.
pub fn name(algo: Algo) -> &'static str {
    ALGOS.iter().find(|(known, _)| *known == algo).map_or("", |(_, name)| name)
}

fn algo(name: &str) -> Option<Algo> {
    ALGOS.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(algo, _)| *algo)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
}

impl Announced {
    /// S3's word for the type.
    pub fn kind(self) -> &'static str {
        if self.composite { "COMPOSITE" } else { "FULL_OBJECT" }
    }

    /// What the request that begins an upload announces.
    ///
    /// Errors: the algorithm is unknown, or the type isn't one of it.
    pub fn read(headers: &HeaderMap) -> Result<Option<Announced>, Refusal> {
        let (algorithm, kind) = (text(headers, "x-amz-checksum-algorithm"), text(headers, "x-amz-checksum-type"));
        if algorithm.is_empty() {
            return if kind.is_empty() { Ok(None) } else { Err(ALONE) };
        }
        let unknown = || Refusal::bad("InvalidRequest", "Checksum algorithm provided is unsupported.".into());
        let algo = algo(algorithm).ok_or_else(unknown)?;
        let composite = match kind {
            "" => algo != Algo::Crc64Nvme,
            "COMPOSITE" => true,
            "FULL_OBJECT" => false,
            _ => return Err(Refusal::bad("InvalidRequest", "Value for x-amz-checksum-type header is invalid.".into())),
        };
        let (never, full) =
            (composite && algo == Algo::Crc64Nvme, !composite && matches!(algo, Algo::Sha1 | Algo::Sha256));
        if never || full {
            let kind = if composite { "COMPOSITE" } else { "FULL_OBJECT" };
            let algo = name(algo).to_lowercase();
            let message = format!("The {kind} checksum type cannot be used with the {algo} checksum algorithm.");
            return Err(Refusal::bad("InvalidRequest", message));
        }
        Ok(Some(Announced { algo, composite }))
    }
}

/// The algorithms that a body is to be hashed with besides CRC-64/NVME, from its headers: those that its checks need.
pub fn needed(headers: &HeaderMap) -> Vec<Algo> {
    let trailer = text(headers, "x-amz-trailer").to_ascii_lowercase();
    let announced = |name: &str| {
        let header = format!("x-amz-checksum-{}", name.to_lowercase());
        headers.contains_key(&header) || trailer.split(',').any(|t| t.trim() == header)
    };
    ALGOS.iter().filter(|(algo, name)| *algo != Algo::Crc64Nvme && announced(name)).map(|(algo, _)| *algo).collect()
}

/// The checksum that came with a body, compared with the body.
///
/// Errors: there are several, it is none, it is of something else, or it was announced and didn't come.
pub fn verified(headers: &HeaderMap, received: &Received) -> Result<Option<Sum>, Refusal> {
    let mut came = received.sums.iter().filter_map(|(header, value)| {
        let name = header.as_str().strip_prefix("x-amz-checksum-")?;
        Some((algo(name)?, value.to_str().unwrap_or_default()))
    });
    let Some((algo, value)) = came.next() else {
        let announced = headers.contains_key("x-amz-sdk-checksum-algorithm");
        return if announced { Err(NONE_CAME) } else { Ok(None) };
    };
    if came.next().is_some() {
        return Err(SEVERAL);
    }
    let lower = name(algo).to_lowercase();
    let bytes = B64.decode(value).ok().filter(|bytes| bytes.len() == algo.size());
    let bytes = bytes.ok_or_else(|| {
        Refusal::bad("InvalidRequest", format!("Value for x-amz-checksum-{lower} header is invalid."))
    })?;
    let crc = received.crc.to_be_bytes();
    let found = if algo == Algo::Crc64Nvme { Some(&crc[..]) } else { received.hashes.get(algo) };
    if found.is_some_and(|found| found != bytes) {
        let message = format!("The {} you specified did not match the calculated checksum.", name(algo));
        return Err(Refusal::bad("BadDigest", message));
    }
    Ok(Some(Sum { algo, value: value.to_owned(), composite: false }))
}

fn lower(algo: Option<Algo>) -> String {
    algo.map_or("null".into(), |algo| name(algo).to_lowercase())
}

/// Whether a part may come with this checksum.
///
/// Errors: it is not of the announced kind; one that is put together of the parts' is missing.
pub fn part_fits(announced: Option<Announced>, came: Option<&Sum>) -> Result<(), Refusal> {
    let (wanted, got) = (announced.map(|a| a.algo), came.map(|sum| sum.algo));
    let may_be_missing = announced.is_some_and(|a| !a.composite);
    if wanted == got || (got.is_none() && may_be_missing) {
        return Ok(());
    }
    let message = format!(
        "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum Type: {}",
        lower(wanted),
        lower(got)
    );
    Err(Refusal::bad("InvalidRequest", message))
}

/// Whether the request that completes an upload says of checksums what the one that began it did: each part's where they make
/// the whole's, the type and the algorithm that were announced, and none where none was. `named` has the parts' checksums as
/// the document names them.
///
/// Errors: it doesn't.
pub fn completion_fits(
    headers: &HeaderMap,
    announced: Option<Announced>,
    parts: &[&Part],
    named: &[Vec<(String, String)>],
) -> Result<(), Refusal> {
    let refuse = |message: String| Err(Refusal::bad("InvalidRequest", message));
    let kind = text(headers, "x-amz-checksum-type");
    let sent = ALGOS.iter().filter(|(_, name)| headers.contains_key(format!("x-amz-checksum-{}", name.to_lowercase())));
    let sent: Vec<_> = sent.map(|(algo, _)| *algo).collect();
    if sent.len() > 1 {
        return Err(SEVERAL);
    }
    let mode = announced.map_or("null", Announced::kind);
    if (!kind.is_empty() && kind != mode) || (announced.is_none() && !sent.is_empty()) {
        return refuse(format!(
            "The upload was created using the {mode} checksum mode. The complete request must use the same checksum mode."
        ));
    }
    if let (Some(announced), Some(algo)) = (announced, sent.first())
        && announced.algo != *algo
    {
        let wanted = lower(Some(announced.algo));
        return refuse(format!("The upload was created using a {wanted} checksum; the complete request has another."));
    }
    for (at, (part, sums)) in parts.iter().zip(named).enumerate() {
        for (element, value) in sums {
            let algo = algo(element.trim_start_matches("Checksum"));
            let held = part.sum.as_ref().filter(|sum| Some(sum.algo) == algo).map(|sum| sum.value.clone());
            let held = held.or_else(|| {
                part.crc.filter(|_| algo == Some(Algo::Crc64Nvme)).map(|crc| B64.encode(crc.to_be_bytes()))
            });
            if announced.map(|a| a.algo) != algo || held.is_some_and(|held| held != *value) {
                return Err(Refusal::bad(
                    "InvalidPart",
                    format!("The checksum of part {} is not the one it came with.", at + 1),
                ));
            }
        }
        let missing = sums.is_empty() && announced.is_some_and(|a| a.composite);
        if missing || (announced.is_some_and(|a| a.composite) && part.sum.is_none() && part.crc.is_none()) {
            return refuse(format!(
                "The upload was created using a {} checksum. The complete request must include the checksum for each part. It \
                 was missing for part {} in the request.",
                lower(announced.map(|a| a.algo)),
                at + 1
            ));
        }
    }
    Ok(())
}

/// The checksum of a whole from those of its parts; `None` where it is CRC-64/NVME's, or can't be known.
pub fn whole(announced: Option<Announced>, parts: &[&Part]) -> Option<Sum> {
    let Announced { algo, composite } = announced.filter(|a| a.algo != Algo::Crc64Nvme)?;
    let values = parts.iter().map(|part| B64.decode(&part.sum.as_ref()?.value).ok());
    let values: Vec<Vec<u8>> = values.collect::<Option<_>>()?;
    if composite {
        let hashes = hash_bytes(&[algo], &values.concat());
        let value = format!("{}-{}", B64.encode(hashes.get(algo)?), parts.len());
        return Some(Sum { algo, value, composite });
    }
    let pieces = values.iter().zip(parts).map(|(value, part)| (Some(&value[..]), part.size));
    let value = B64.encode(haul_core::hash::combine(algo, pieces)?);
    Some(Sum { algo, value, composite })
}

/// The checksum that the request which completes an upload says is the whole's.
pub fn claimed<'a>(headers: &'a HeaderMap, sum: &Sum) -> &'a str {
    text(headers, &format!("x-amz-checksum-{}", name(sum.algo).to_lowercase()))
}

/// A checksum as headers have it.
pub fn sum_header(sum: &Sum) -> Option<(HeaderName, HeaderValue)> {
    let name = format!("x-amz-checksum-{}", name(sum.algo).to_lowercase());
    Some((name.parse().ok()?, sum.value.parse().ok()?))
}

/// A checksum of some pieces; `None` when their bytes aren't known.
pub fn sum_of(pieces: &[Piece], algo: Algo) -> Option<Sum> {
    let mut hasher = Hasher::new(&[algo]);
    for piece in pieces {
        match piece {
            Piece::Bytes(bytes) => hasher.update(bytes),
            Piece::Pattern { seed, start, len } => hasher.update(&pattern::bytes(*seed, *start, *len)),
            Piece::Lost { .. } => return None,
        }
    }
    Some(Sum { algo, value: B64.encode(hasher.finish().get(algo)?), composite: false })
}
