//! Differences of S3-compatible services, as data. Code asks for a quirk, never for a provider's name.

/// The quirks of one provider.
#[derive(Debug, PartialEq, Eq)]
pub struct Provider {
    /// Name as rclone spells it in `provider = …`.
    pub name: &'static str,
    /// For menus.
    pub description: &'static str,
    /// Host when no endpoint is set, `{region}` standing for the region; empty when an endpoint must be given.
    pub host: &'static str,
    /// Region to sign for when none is set.
    pub region: &'static str,
    /// Text around the region in the endpoint's host, for providers that check the region in signatures.
    pub region_in_host: Option<(&'static str, &'static str)>,
    /// Buckets are named in the host, not in the path.
    pub virtual_host: bool,
    /// The checksum that uploads carry.
    pub checksum: Checksum,
    /// `HEAD` and `GET` give stored checksums when asked.
    pub gives_checksums: bool,
    /// Plain ETags are the content's MD5 (unless a key of ours encrypts it).
    pub etag_is_md5: bool,
    /// All parts but the last must have one size.
    pub equal_parts: bool,
    /// `If-None-Match` and `If-Match` on writes are honoured.
    pub conditional: bool,
    /// Many keys can be deleted by one request.
    pub batch_delete: bool,
    /// Parts can be copied from a range of another key.
    pub part_copy: bool,
    /// A new bucket's region is named in the request that creates it.
    pub location_constraint: bool,
    /// Listings can have their keys percent-encoded.
    pub url_encoded_listings: bool,
    /// Listings go directory by directory: all of `a/` comes before `a-b`, and so does what comes after a key. S3 promises the order of
    /// the keys' bytes.
    pub lists_by_directory: bool,
}

/// A checksum that uploads carry in a header, which the server checks before it keeps the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// `x-amz-checksum-crc64nvme`; costs next to nothing, and holds for the whole content of uploads in parts.
    Crc64Nvme,
    /// `Content-MD5`, which every server knows.
    Md5,
}

const OTHER: Provider = Provider {
    name: "Other",
    description: "Any other S3 compatible provider",
    host: "",
    region: "us-east-1",
    region_in_host: None,
    virtual_host: false,
    checksum: Checksum::Md5,
    gives_checksums: false,
    etag_is_md5: true,
    equal_parts: false,
    conditional: false,
    batch_delete: true,
    part_copy: true,
    location_constraint: true,
    url_encoded_listings: true,
    lists_by_directory: false,
};

/// Every provider that has quirks; the last stands for all others.
pub const PROVIDERS: &[Provider] = &[
    Provider {
        name: "AWS",
        description: "Amazon Web Services (AWS) S3",
        host: "s3.{region}.amazonaws.com",
        virtual_host: true,
        checksum: Checksum::Crc64Nvme,
        gives_checksums: true,
        conditional: true,
        ..OTHER
    },
    Provider {
        name: "Minio",
        description: "Minio Object Storage",
        checksum: Checksum::Crc64Nvme,
        gives_checksums: true,
        conditional: true,
        ..OTHER
    },
    Provider { name: "Ceph", description: "Ceph Object Storage", ..OTHER },
    Provider {
        name: "Backblaze",
        description: "Backblaze B2 by its S3 interface",
        region_in_host: Some(("s3.", ".backblazeb2.com")),
        location_constraint: false,
        ..OTHER
    },
    Provider {
        name: "Cloudflare",
        description: "Cloudflare R2 Storage",
        region: "auto",
        equal_parts: true,
        conditional: true,
        location_constraint: false,
        ..OTHER
    },
    Provider {
        name: "Wasabi",
        description: "Wasabi Object Storage",
        host: "s3.{region}.wasabisys.com",
        region_in_host: Some(("s3.", ".wasabisys.com")),
        ..OTHER
    },
    Provider {
        name: "DigitalOcean",
        description: "DigitalOcean Spaces",
        region_in_host: Some(("", ".digitaloceanspaces.com")),
        location_constraint: false,
        ..OTHER
    },
    Provider {
        name: "GCS",
        description: "Google Cloud Storage by its S3 interface",
        host: "storage.googleapis.com",
        region: "auto",
        batch_delete: false,
        part_copy: false,
        ..OTHER
    },
    Provider {
        name: "SeaweedFS",
        description: "SeaweedFS",
        checksum: Checksum::Crc64Nvme,
        gives_checksums: true,
        conditional: true,
        lists_by_directory: true,
        ..OTHER
    },
    OTHER,
];

/// `Server` header of servers that list directory by directory: their listings follow that order even with another provider chosen,
/// so that no keys are left out.
const BY_DIRECTORY: &str = "SeaweedFS";

/// Whether a server that calls itself so lists directory by directory.
pub fn lists_by_directory(server: &str) -> bool {
    server.starts_with(BY_DIRECTORY)
}

/// The provider of this name, in any case; those without quirks of their own are as `Other`.
pub fn provider(name: &str) -> &'static Provider {
    let name = match name.to_ascii_lowercase().as_str() {
        "b2" => "Backblaze",
        "r2" => "Cloudflare",
        _ => name,
    };
    let last = &PROVIDERS[PROVIDERS.len() - 1];
    PROVIDERS.iter().find(|p| p.name.eq_ignore_ascii_case(name)).unwrap_or(last)
}

impl Provider {
    /// The region that the endpoint's host names, for providers whose hosts do.
    pub fn region_of(&self, authority: &str) -> Option<String> {
        let (before, after) = self.region_in_host?;
        let region = authority.strip_prefix(before)?.strip_suffix(after)?;
        (!region.is_empty()).then(|| region.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case_and_by_short_name() {
        for (asked, found) in [
            ("aws", "AWS"),
            ("MINIO", "Minio"),
            ("B2", "Backblaze"),
            ("r2", "Cloudflare"),
            ("", "Other"),
            ("Scaleway", "Other"),
        ] {
            assert_eq!(provider(asked).name, found, "{asked}");
        }
    }

    #[test]
    fn quirks_that_cost_data_or_money_when_wrong() {
        assert!(provider("Cloudflare").equal_parts);
        assert!(!provider("GCS").batch_delete && !provider("GCS").part_copy);
        assert!(provider("AWS").virtual_host && !provider("Minio").virtual_host);
        let crc: Vec<_> = PROVIDERS.iter().filter(|p| p.checksum == Checksum::Crc64Nvme).map(|p| p.name).collect();
        assert_eq!(crc, ["AWS", "Minio", "SeaweedFS"], "others reject or ignore checksum headers");
        assert!(provider("SeaweedFS").lists_by_directory && !provider("AWS").lists_by_directory);
        assert!(lists_by_directory("SeaweedFS 8000GB 4.48") && !lists_by_directory("MinIO"));
    }

    #[test]
    fn regions_are_read_from_hosts() {
        let b2 = provider("Backblaze");
        assert_eq!(b2.region_of("s3.us-west-004.backblazeb2.com").as_deref(), Some("us-west-004"));
        assert_eq!(b2.region_of("localhost:9000"), None);
        assert_eq!(provider("Minio").region_of("s3.eu.example.com"), None);
    }
}
