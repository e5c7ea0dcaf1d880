//! What makes of S3 do otherwise than AWS, each by a name, and what the clouds of haul's table of providers do of it.

use std::{fmt, str::FromStr};

macro_rules! quirks {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// Something that a make does otherwise.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Quirk { $($(#[doc = $doc])+ $name),+ }

        impl Quirk {
            /// All of them.
            pub const ALL: &[Quirk] = &[$(Quirk::$name),+];

            /// Its name in settings.
            pub fn name(self) -> &'static str {
                match self { $(Quirk::$name => $text),+ }
            }
        }
    };
}

quirks! {
    /// A request with a header of checksums (`x-amz-checksum-…`) is refused with 501.
    RefusesChecksums = "refuses-checksums",
    /// Such headers are neither looked at nor kept, and no checksum is told.
    IgnoresChecksums = "ignores-checksums",
    /// GET and HEAD with `x-amz-checksum-mode` are refused with 501.
    RefusesChecksumMode = "refuses-checksum-mode",
    /// The answer to a copy has no ETag.
    CopyWithoutEtag = "copy-without-etag",
    /// The answer to a PUT has no ETag.
    PutWithoutEtag = "put-without-etag",
    /// UploadPartCopy is refused with 501.
    NoPartCopy = "no-part-copy",
    /// UploadPartCopy is taken for an UploadPart without content: 200 and no document.
    EmptyPartCopy = "empty-part-copy",
    /// DeleteObjects is refused with 501.
    NoBatchDelete = "no-batch-delete",
    /// All parts but the last must have one size.
    EqualParts = "equal-parts",
    /// `If-Match` and `If-None-Match` on writes are refused with 501.
    NoConditions = "no-conditions",
    /// A bucket's region can't be named when it is created.
    NoLocation = "no-location",
    /// `encoding-type` is not known: keys come as they are.
    PlainListings = "plain-listings",
    /// Common prefixes have their delimiters encoded too (`%2F`).
    EncodedDelimiter = "encoded-delimiter",
    /// The first two keys of each page of a listing have changed places.
    SwappedKeys = "swapped-keys",
    /// Listings have no IsTruncated.
    NoIsTruncated = "no-is-truncated",
    /// Listings have no KeyCount.
    NoKeyCount = "no-key-count",
    /// KeyCount is one more than there are.
    WrongKeyCount = "wrong-key-count",
    /// Listings go directory by directory: all of `a/` before `a-b`, and what comes after a key too.
    ByDirectory = "by-directory",
    /// DeleteBucket deletes a bucket with all that is in it.
    DeletesFullBuckets = "deletes-full-buckets",
    /// ListParts is answered with 500.
    NoListParts = "no-list-parts",
    /// UploadPartCopy doesn't look at the range: each part is all of the source.
    NoCopyRange = "no-copy-range",
}

/// A set of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quirks(u32);

impl Quirks {
    /// Whether this is among them.
    pub fn has(self, quirk: Quirk) -> bool {
        self.0 >> quirk as u32 & 1 == 1
    }

    /// Quirks of a cloud in haul's table of providers, and its region for signatures.
    pub fn of_provider(name: &str) -> Option<(Quirks, &'static str)> {
        let (_, region, quirks) = PROVIDERS.iter().find(|(provider, ..)| provider.eq_ignore_ascii_case(name))?;
        Some((quirks.iter().fold(Quirks::default(), |set, quirk| Quirks(set.0 | 1 << *quirk as u32)), region))
    }
}

impl FromStr for Quirks {
    type Err = String;

    /// `NAME[,…]`; empty or `off` for none.
    fn from_str(text: &str) -> Result<Quirks, String> {
        let names = text.split(',').map(str::trim).filter(|name| !matches!(*name, "" | "off" | "none"));
        names.into_iter().try_fold(Quirks::default(), |set, name| {
            let quirk = Quirk::ALL.iter().find(|quirk| quirk.name() == name);
            let all = || Quirk::ALL.iter().map(|quirk| quirk.name()).collect::<Vec<_>>().join(", ");
            let quirk = quirk.ok_or_else(|| format!("no quirk is called {name:?}: want one of {}", all()))?;
            Ok(Quirks(set.0 | 1 << *quirk as u32))
        })
    }
}

impl fmt::Display for Quirks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Quirk::ALL.iter().filter(|quirk| self.has(**quirk)).map(|quirk| quirk.name()).collect();
        f.write_str(&names.join(","))
    }
}

/// Clouds, their regions, and the strictest of what their documentation or their answers say.
const PROVIDERS: &[(&str, &str, &[Quirk])] = {
    use Quirk::{
        ByDirectory, DeletesFullBuckets, EqualParts, IgnoresChecksums, NoBatchDelete, NoConditions, NoLocation,
        NoPartCopy, RefusesChecksumMode, RefusesChecksums,
    };
    &[
        ("AWS", "us-east-1", &[]),
        ("Minio", "us-east-1", &[]),
        ("Ceph", "us-east-1", &[IgnoresChecksums, NoConditions]),
        ("Backblaze", "us-east-1", &[RefusesChecksums, RefusesChecksumMode, NoConditions, NoLocation]),
        ("Cloudflare", "auto", &[RefusesChecksums, EqualParts, NoLocation]),
        ("Wasabi", "us-east-1", &[IgnoresChecksums, NoConditions]),
        ("DigitalOcean", "us-east-1", &[IgnoresChecksums, NoConditions, NoLocation]),
        ("GCS", "auto", &[RefusesChecksums, NoConditions, NoBatchDelete, NoPartCopy]),
        ("SeaweedFS", "us-east-1", &[ByDirectory, DeletesFullBuckets]),
        ("Other", "us-east-1", &[RefusesChecksums, RefusesChecksumMode, NoConditions]),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;
    use haul_s3::provider;

    #[test]
    fn quirks_are_read_and_shown() {
        let quirks: Quirks = "equal-parts, no-part-copy".parse().unwrap();
        assert_eq!(quirks.to_string(), "no-part-copy,equal-parts");
        assert_eq!("off".parse(), Ok(Quirks::default()));
        assert!(
            "round-keys".parse::<Quirks>().unwrap_err().starts_with("no quirk is called \"round-keys\": want one of")
        );
    }

    /// What haul's table says that a provider can't do, the simulated one refuses.
    #[test]
    fn every_row_of_the_table_is_enforced() {
        for row in provider::PROVIDERS {
            let (quirks, region) = Quirks::of_provider(row.name).unwrap_or_else(|| panic!("{} is missing", row.name));
            let checksums = quirks.has(Quirk::RefusesChecksums) || quirks.has(Quirk::IgnoresChecksums);
            assert_eq!(checksums, row.checksum != provider::Checksum::Crc64Nvme, "{}", row.name);
            assert_eq!(quirks.has(Quirk::EqualParts), row.equal_parts, "{}", row.name);
            assert_eq!(quirks.has(Quirk::NoConditions), !row.conditional, "{}", row.name);
            assert_eq!(quirks.has(Quirk::NoBatchDelete), !row.batch_delete, "{}", row.name);
            assert_eq!(quirks.has(Quirk::NoPartCopy), !row.part_copy, "{}", row.name);
            assert_eq!(quirks.has(Quirk::ByDirectory), row.lists_by_directory, "{}", row.name);
            assert_eq!(quirks.has(Quirk::PlainListings), !row.url_encoded_listings, "{}", row.name);
            // GCS takes one, and its region is none.
            assert_eq!(quirks.has(Quirk::NoLocation), !row.location_constraint, "{}", row.name);
            assert_eq!(region, row.region, "{}", row.name);
        }
    }
}
