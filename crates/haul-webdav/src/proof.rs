//! Hashes that a server reports for received bytes: Nextcloud computes one if asked to (`X-Hash`).

use crate::{Service, answer};
use haul_core::{Algo, ErrorKind, Hashes, Retry, hash::from_hex};
use haul_net::{Fault, FaultResult};
use haul_store::web::Call;
use http::{HeaderMap, HeaderName};

/// Hashes that can be requested, and where the answer has them.
const HASHES: [(Algo, &str, &str); 3] =
    [(Algo::Sha1, "sha1", "x-hash-sha1"), (Algo::Md5, "md5", "x-hash-md5"), (Algo::Sha256, "sha256", "x-hash-sha256")];

/// True when the server hashes received bytes by one of the algorithms whose results are known.
pub fn can(service: &Service, known: &Hashes) -> bool {
    !service.vendor.hashes_bodies || hash_to_request(known).is_some()
}

fn hash_to_request(known: &Hashes) -> Option<&'static str> {
    HASHES.iter().find(|(algo, ..)| known.get(*algo).is_some()).map(|(_, name, _)| *name)
}

/// Sends a body of which these hashes are known, and compares what the server says of it.
///
/// Errors: `Corrupt` when it took something else.
pub async fn ask(service: &Service, call: Call, known: &Hashes) -> FaultResult<()> {
    let call = match hash_to_request(known).filter(|_| service.vendor.hashes_bodies) {
        Some(name) => call.header(HeaderName::from_static("x-hash"), name),
        None => call,
    };
    let server_hashes = header_hashes(&answer::done_with_headers(service, call).await?);
    match server_hashes.agree(known) {
        Some((algo, false)) => {
            let message = format!("the server took other bytes than were sent ({algo} differs)");
            Err(Fault::new(ErrorKind::Corrupt, Retry::Backoff, message))
        }
        _ => Ok(()),
    }
}

fn header_hashes(headers: &HeaderMap) -> Hashes {
    let of = |(algo, _, name): &(Algo, _, &str)| Some((*algo, from_hex(headers.get(*name)?.to_str().ok()?.trim())?));
    HASHES.iter().filter_map(of).fold(Hashes::default(), |told, (algo, value)| told.with(algo, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::hash::hash_bytes;

    #[test]
    fn a_hash_is_read_from_the_answer() {
        let headers = HeaderMap::from_iter([
            (HeaderName::from_static("x-hash-md5"), "900150983cd24fb0d6963f7d28e17f72".parse().unwrap()),
            (HeaderName::from_static("x-hash-sha1"), "none".parse().unwrap()),
        ]);
        assert_eq!(header_hashes(&headers), hash_bytes(&[Algo::Md5], b"abc"));
        assert_eq!(hash_to_request(&hash_bytes(&[Algo::Crc64Nvme, Algo::Sha256, Algo::Md5], b"abc")), Some("md5"));
        assert_eq!(hash_to_request(&hash_bytes(&[Algo::Crc64Nvme], b"abc")), None);
    }
}
