//! The options of a section `type = s3`, and their values once read. Names and meanings are rclone's.

use super::provider::{Provider, provider};
use haul_core::{
    Error, ErrorKind, Mtime, Result,
    encoding::Encoding,
    units::{parse_age, parse_duration},
};
use haul_store::{OpenRequest, OptionKind, OptionSpec};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// S3's limit for one PUT and for one CopyObject.
pub const MAX_SINGLE: u64 = 5 * GIB;
/// S3's smallest part but the last.
pub const MIN_PART: u64 = 5 * MIB;

const BASE: OptionSpec = OptionSpec {
    name: "",
    help: "",
    default: "",
    kind: OptionKind::Text,
    advanced: true,
    secret: false,
    examples: &[],
};

const fn text(name: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec { name, help, ..BASE }
}

const fn basic(name: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec { name, help, advanced: false, ..BASE }
}

const fn secret(name: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec { name, help, secret: true, ..BASE }
}

const fn flag(name: &'static str, default: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec { name, help, default, kind: OptionKind::Bool, ..BASE }
}

const fn size(name: &'static str, default: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec { name, help, default, kind: OptionKind::Size, ..BASE }
}

const fn int(name: &'static str, default: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec { name, help, default, kind: OptionKind::Int, ..BASE }
}

/// Every option, in the order in which an interactive set-up asks.
pub const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        examples: &[
            ("AWS", "Amazon Web Services (AWS) S3"),
            ("Minio", "Minio Object Storage"),
            ("Ceph", "Ceph Object Storage"),
            ("Backblaze", "Backblaze B2 by its S3 interface"),
            ("Cloudflare", "Cloudflare R2 Storage"),
            ("Wasabi", "Wasabi Object Storage"),
            ("DigitalOcean", "DigitalOcean Spaces"),
            ("GCS", "Google Cloud Storage by its S3 interface"),
            ("SeaweedFS", "SeaweedFS"),
            ("Other", "Any other S3 compatible provider"),
        ],
        ..basic("provider", "Your S3 provider. Choose Other if it is not listed.")
    },
    OptionSpec {
        kind: OptionKind::Bool,
        default: "false",
        ..basic(
            "env_auth",
            "Take credentials from the environment, an AWS profile, SSO, a web identity, or the instance (ECS, EC2) \
             when access_key_id and secret_access_key are not set.",
        )
    },
    OptionSpec { secret: true, ..basic("access_key_id", "Access key. Leave empty for anonymous access or env_auth.") },
    OptionSpec { secret: true, ..basic("secret_access_key", "Secret key that belongs to access_key_id.") },
    basic("region", "Region of the buckets. Leave empty for the provider's default; a wrong one is corrected."),
    basic("endpoint", "Host, or http:// or https:// address, of the S3 service. Not needed for AWS."),
    basic("location_constraint", "Region that new buckets are created in. Leave empty for `region`."),
    OptionSpec {
        examples: &[
            ("private", "Only the owner"),
            ("public-read", "Everyone may read"),
            ("public-read-write", "Everyone may read and write"),
            ("authenticated-read", "Every user of the service may read"),
            ("bucket-owner-read", "The bucket's owner may read"),
            ("bucket-owner-full-control", "The bucket's owner may do everything"),
        ],
        ..basic("acl", "Canned ACL of uploaded objects. Empty sends none.")
    },
    OptionSpec {
        examples: &[("AES256", "Keys managed by S3"), ("aws:kms", "Keys managed by KMS")],
        ..basic("server_side_encryption", "Encryption at rest to ask for.")
    },
    basic("sse_kms_key_id", "Id or ARN of the KMS key for server_side_encryption = aws:kms."),
    basic("storage_class", "Storage class of uploaded objects, such as STANDARD_IA. Empty means the bucket's default."),
    OptionSpec {
        examples: &[
            ("GOVERNANCE", "Accounts with a permission of their own may remove the lock"),
            ("COMPLIANCE", "Nobody may, before its time is over"),
        ],
        ..text("object_lock_mode", "Lock uploaded objects in this mode, until object_lock_retain_until_date.")
    },
    text("object_lock_retain_until_date", "When locks end: 2027-01-31T00:00:00Z, or how long from now: 365d."),
    OptionSpec {
        examples: &[("ON", "Locked until the hold is removed"), ("OFF", "Not held")],
        ..text("object_lock_legal_hold_status", "Put a legal hold on uploaded objects.")
    },
    flag(
        "bypass_governance_retention",
        "false",
        "Delete despite locks in GOVERNANCE mode, if the account is allowed to.",
    ),
    flag("bucket_object_lock_enabled", "false", "Enable object lock in buckets that are created."),
    text("bucket_acl", "Canned ACL of buckets that are created. Empty means that of `acl`."),
    secret("session_token", "Session token of temporary credentials."),
    text("profile", "Profile in the AWS files that env_auth reads. Empty means AWS_PROFILE or `default`."),
    text("shared_credentials_file", "Credentials file that env_auth reads. Empty means AWS's default."),
    text("role_arn", "ARN of a role to assume with the credentials given (STS AssumeRole)."),
    text("role_external_id", "External id that the role's account asks for, with role_arn."),
    text("role_session_name", "Name of the session in that account's logs, with role_arn. Empty means haul."),
    text("sse_customer_algorithm", "Algorithm (AES256) for encryption with your own key (SSE-C)."),
    secret("sse_customer_key", "The SSE-C key, 32 bytes as text."),
    secret("sse_customer_key_base64", "The SSE-C key in base64, instead of sse_customer_key."),
    secret("sse_customer_key_md5", "MD5 of the SSE-C key in base64. Empty: it is computed."),
    flag("requester_pays", "false", "Pay for requests to buckets that ask for it."),
    flag("force_path_style", "", "Name buckets in the path (true) or the host (false). Unset: as the provider needs."),
    flag("use_accelerate_endpoint", "false", "Use AWS's transfer acceleration endpoint."),
    flag("use_dual_stack", "false", "Use AWS's endpoints that also speak IPv6."),
    size("upload_cutoff", "32Mi", "Files up to this size are uploaded by a single PUT. At most 5Gi."),
    size("chunk_size", "8Mi", "Size of parts of larger uploads, 5Mi to 5Gi."),
    size("copy_cutoff", "4.656Gi", "Larger files are copied in parts inside the service. At most 5Gi."),
    int(
        "upload_concurrency",
        "0",
        "Parts of one upload, or of one copy inside the service, in flight at once. 0: as many as the service takes.",
    ),
    int("max_upload_parts", "10000", "Maximum number of parts of one upload."),
    int("list_chunk", "1000", "Keys per listing request."),
    int("list_version", "2", "1: ListObjects; 2: ListObjectsV2."),
    flag("list_url_encode", "", "Ask for percent-encoded keys in listings. Unset: as the provider needs."),
    flag("no_check_bucket", "false", "Never create a bucket, nor look for it, before writing."),
    flag("no_head", "false", "Accepted for compatibility with rclone: uploads are never followed by a HEAD."),
    flag("no_head_object", "false", "Look up single keys by LIST instead of HEAD; their stored mtime is then unknown."),
    flag("directory_markers", "false", "Store empty directories as empty keys that end with /."),
    flag("disable_checksum", "false", "Don't keep the MD5 of uploads in parts as metadata, where the source knows it."),
    flag("versions", "false", "Show old versions too, under names such as file-v2026-11-24-102030-123.txt."),
    text(
        "version_at",
        "Show the state at this time: 2026-11-24, 2026-11-24T10:20:30Z, or this long ago: 36h, 7d. Read-only.",
    ),
    flag("version_deleted", "false", "With versions: show delete markers too, as files without content."),
    OptionSpec {
        default: "Raw",
        ..text(
            "encoding",
            "Characters to replace in names, by rclone's names for them; rclone's own choice is Slash,InvalidUtf8,Dot. Raw: names stay as they are. With any other value a bucket is listed directory by directory.",
        )
    },
    flag(
        "use_presigned_request",
        "false",
        "Accepted for compatibility with rclone: a single PUT carries its signature in a header.",
    ),
    flag(
        "use_unsigned_payload",
        "",
        "Leave bodies out of the signature. Unset: whenever TLS or a checksum guards them.",
    ),
];

/// Selection of old versions to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionSelection {
    /// The state at this time; `None` shows what there is now and all old versions.
    pub at: Option<Mtime>,
    /// Markers of deletions too, as files without content.
    pub deleted: bool,
}

/// Options as values.
#[derive(Clone)]
pub struct Config {
    pub provider: &'static Provider,
    pub env_auth: bool,
    pub access_key_id: String,
    pub secret_access_key: String,
    pub session_token: String,
    pub region: String,
    pub endpoint: String,
    pub location_constraint: String,
    pub acl: String,
    pub bucket_acl: String,
    pub server_side_encryption: String,
    pub sse_kms_key_id: String,
    pub storage_class: String,
    /// Object lock headers of written objects; unset ones are empty.
    pub lock: [(&'static str, String); 3],
    pub bypass_governance: bool,
    pub locking_buckets: bool,
    pub profile: String,
    pub shared_credentials_file: String,
    pub role_arn: String,
    pub role_external_id: String,
    pub role_session_name: String,
    pub sse_customer: Option<CustomerKey>,
    pub requester_pays: bool,
    pub path_style: Option<bool>,
    pub accelerate: bool,
    pub dual_stack: bool,
    pub upload_cutoff: u64,
    pub chunk_size: u64,
    pub chunk_size_chosen: bool,
    pub copy_cutoff: u64,
    /// `None`: as many as the lane takes.
    pub upload_concurrency: Option<usize>,
    pub max_upload_parts: u64,
    pub list_chunk: usize,
    pub list_v1: bool,
    pub list_url_encode: bool,
    pub no_check_bucket: bool,
    pub no_head_object: bool,
    pub directory_markers: bool,
    pub disable_checksum: bool,
    pub unsigned_payload: Option<bool>,
    /// Old versions to show.
    pub versions: Option<VersionSelection>,
    /// How keys are names; `None` where they are.
    pub encoding: Option<Encoding>,
}

/// A key of the user's for encryption at rest (SSE-C), as the headers want it.
#[derive(Clone)]
pub struct CustomerKey {
    pub algorithm: String,
    pub key_base64: String,
    pub key_md5_base64: String,
}

impl Config {
    /// Reads the options of `request`.
    ///
    /// Errors: `Invalid`, naming the option.
    pub fn read(request: &OpenRequest) -> Result<Config> {
        let options = Values(request);
        options.only_known()?;
        let provider = provider(&options.text("provider"));
        let config = Config {
            provider,
            env_auth: options.flag("env_auth")?.unwrap_or(false),
            access_key_id: options.text("access_key_id"),
            secret_access_key: options.text("secret_access_key"),
            session_token: options.text("session_token"),
            region: options.text("region"),
            endpoint: options.text("endpoint"),
            location_constraint: options.text("location_constraint"),
            acl: options.text("acl"),
            bucket_acl: options.text("bucket_acl"),
            server_side_encryption: options.text("server_side_encryption"),
            sse_kms_key_id: options.text("sse_kms_key_id"),
            storage_class: options.text("storage_class"),
            lock: options.lock()?,
            bypass_governance: options.flag("bypass_governance_retention")?.unwrap_or(false),
            locking_buckets: options.flag("bucket_object_lock_enabled")?.unwrap_or(false),
            profile: options.text("profile"),
            shared_credentials_file: options.text("shared_credentials_file"),
            role_arn: options.text("role_arn"),
            role_external_id: options.text("role_external_id"),
            role_session_name: options.text("role_session_name"),
            sse_customer: options.customer_key()?,
            requester_pays: options.flag("requester_pays")?.unwrap_or(false),
            path_style: options.flag("force_path_style")?,
            accelerate: options.flag("use_accelerate_endpoint")?.unwrap_or(false),
            dual_stack: options.flag("use_dual_stack")?.unwrap_or(false),
            upload_cutoff: options.size("upload_cutoff", 0, MAX_SINGLE)?,
            chunk_size: options.size("chunk_size", MIN_PART, MAX_SINGLE)?,
            chunk_size_chosen: options.is_set("chunk_size"),
            copy_cutoff: options.size("copy_cutoff", MIN_PART, MAX_SINGLE)?,
            upload_concurrency: Some(options.int("upload_concurrency", 0, 1000)? as usize).filter(|n| *n > 0),
            max_upload_parts: options.int("max_upload_parts", 1, 10_000)?,
            list_chunk: options.int("list_chunk", 1, 100_000)? as usize,
            list_v1: options.int("list_version", 0, 2)? == 1,
            list_url_encode: options.flag("list_url_encode")?.unwrap_or(provider.url_encoded_listings),
            no_check_bucket: options.flag("no_check_bucket")?.unwrap_or(false),
            no_head_object: options.flag("no_head_object")?.unwrap_or(false),
            directory_markers: options.flag("directory_markers")?.unwrap_or(false),
            disable_checksum: options.flag("disable_checksum")?.unwrap_or(false),
            unsigned_payload: options.flag("use_unsigned_payload")?,
            versions: options.versions()?,
            encoding: Encoding::chosen(&options.text("encoding"))?,
        };
        options.flag("no_head")?;
        options.flag("use_presigned_request")?;
        config.check()
    }

    fn check(self) -> Result<Config> {
        if self.access_key_id.is_empty() != self.secret_access_key.is_empty() {
            return Err(invalid("set both access_key_id and secret_access_key, or neither"));
        }
        if self.endpoint.is_empty() && self.provider.host.is_empty() {
            let message = format!("endpoint is not set: provider {} has no host of its own", self.provider.name);
            return Err(invalid(message));
        }
        if self.encoding.is_some() && self.versions.is_some() {
            return Err(invalid(
                "old versions are shown by the names that the bucket has: leave out encoding (--s3-encoding Raw)",
            ));
        }
        Ok(self)
    }

    /// A plain ETag of something we write or read is its content's MD5.
    pub fn etag_is_md5(&self) -> bool {
        self.provider.etag_is_md5 && self.sse_customer.is_none() && !self.server_side_encryption.starts_with("aws:kms")
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, "open", message)
}

/// A time, or how long from now, as a time.
fn moment(text: &str) -> Result<String> {
    let time = match text.parse::<Timestamp>() {
        Ok(time) => Some(time),
        Err(_) => {
            let span = parse_duration(text).ok().flatten();
            span.and_then(|span| Timestamp::now().checked_add(SignedDuration::try_from(span).ok()?).ok())
        }
    };
    let wrong =
        || invalid(format!("object_lock_retain_until_date {text:?} is no time such as 2027-01-31T00:00:00Z or 365d"));
    time.map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()).ok_or_else(wrong)
}

struct Values<'a>(&'a OpenRequest);

impl Values<'_> {
    /// Old versions to show.
    fn versions(&self) -> Result<Option<VersionSelection>> {
        let (all, at) = (self.flag("versions")?.unwrap_or(false), self.text("version_at"));
        let deleted = self.flag("version_deleted")?.unwrap_or(false);
        if all && !at.is_empty() {
            return Err(invalid("versions and version_at can't be used together: choose one"));
        }
        let now = Mtime(Timestamp::now().as_nanosecond());
        let at = if at.is_empty() { Ok(None) } else { parse_age(&at, now, &TimeZone::system()) };
        let at = at.map_err(|why| invalid(format!("version_at: {why}")))?;
        Ok((all || at.is_some()).then_some(VersionSelection { at, deleted }))
    }

    /// Object lock of written objects.
    fn lock(&self) -> Result<[(&'static str, String); 3]> {
        let one_of = |name: &str, known: [&str; 2]| {
            let value = self.text(name).to_ascii_uppercase();
            let wrong = || invalid(format!("{name} {value:?} is neither {} nor {}", known[0], known[1]));
            if value.is_empty() || known.contains(&value.as_str()) { Ok(value) } else { Err(wrong()) }
        };
        let mode = one_of("object_lock_mode", ["GOVERNANCE", "COMPLIANCE"])?;
        let until = self.text("object_lock_retain_until_date");
        if mode.is_empty() != until.is_empty() {
            return Err(invalid("set both object_lock_mode and object_lock_retain_until_date, or neither"));
        }
        let until = if until.is_empty() { until } else { moment(&until)? };
        let hold = one_of("object_lock_legal_hold_status", ["ON", "OFF"])?;
        Ok([
            ("x-amz-object-lock-mode", mode),
            ("x-amz-object-lock-retain-until-date", until),
            ("x-amz-object-lock-legal-hold", hold),
        ])
    }

    fn only_known(&self) -> Result<()> {
        match self.0.options.keys().find(|k| *k != "type" && OPTIONS.iter().all(|o| o.name != *k)) {
            Some(name) => tracing::debug!(option = %name, "s3 has no such option; ignored"),
            None => return Ok(()),
        }
        Ok(())
    }

    fn is_set(&self, name: &str) -> bool {
        self.0.options.get(name).is_some_and(|value| !value.is_empty())
    }

    fn text(&self, name: &str) -> String {
        let set = self.0.options.get(name).filter(|v| !v.is_empty());
        set.cloned().unwrap_or_else(|| default_of(name).to_owned())
    }

    fn flag(&self, name: &str) -> Result<Option<bool>> {
        match self.text(name).to_ascii_lowercase().as_str() {
            "" | "unset" => Ok(None),
            "true" | "1" | "t" | "yes" => Ok(Some(true)),
            "false" | "0" | "f" | "no" => Ok(Some(false)),
            other => Err(invalid(format!("{name} = {other:?}: use true or false"))),
        }
    }

    fn int(&self, name: &str, min: u64, max: u64) -> Result<u64> {
        let text = self.text(name);
        let value = text.trim().parse().ok().filter(|v| (min..=max).contains(v));
        value.ok_or_else(|| invalid(format!("{name} = {text:?}: use a whole number from {min} to {max}")))
    }

    fn size(&self, name: &str, min: u64, max: u64) -> Result<u64> {
        let text = self.text(name);
        let value = parse_size(&text).filter(|v| (min..=max).contains(v));
        value.ok_or_else(|| {
            invalid(format!("{name} = {text:?}: use a size from {} to {}", show_size(min), show_size(max)))
        })
    }

    fn customer_key(&self) -> Result<Option<CustomerKey>> {
        use base64::{Engine, engine::general_purpose::STANDARD as B64};
        let (plain, encoded) = (self.text("sse_customer_key"), self.text("sse_customer_key_base64"));
        let key = match (plain.is_empty(), encoded.is_empty()) {
            (true, true) => return Ok(None),
            (false, true) => plain.into_bytes(),
            (true, false) => B64.decode(&encoded).map_err(|_| invalid("sse_customer_key_base64: not base64"))?,
            (false, false) => return Err(invalid("set sse_customer_key or sse_customer_key_base64, not both")),
        };
        let algorithm = match self.text("sse_customer_algorithm") {
            empty if empty.is_empty() => "AES256".to_owned(),
            set => set,
        };
        let key_md5_base64 = match self.text("sse_customer_key_md5") {
            empty if empty.is_empty() => super::body::base64_of(haul_core::Algo::Md5, &key),
            set => set,
        };
        Ok(Some(CustomerKey { algorithm, key_base64: B64.encode(key), key_md5_base64 }))
    }
}

fn default_of(name: &str) -> &'static str {
    OPTIONS.iter().find(|o| o.name == name).map_or("", |o| o.default)
}

/// A size as rclone writes it: a number with B, K, M, G, T or P (Ki and KiB mean the same); KiB without a suffix.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let power = match suffix.to_ascii_lowercase().as_str() {
        "b" => 0,
        "" | "k" | "ki" | "kib" => 1,
        "m" | "mi" | "mib" => 2,
        "g" | "gi" | "gib" => 3,
        "t" | "ti" | "tib" => 4,
        "p" | "pi" | "pib" => 5,
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * 1024f64.powi(power);
    (bytes < 1e18).then_some(bytes as u64)
}

fn show_size(bytes: u64) -> String {
    match bytes {
        b if b >= GIB && b.is_multiple_of(GIB) => format!("{}Gi", b / GIB),
        b if b >= MIB && b.is_multiple_of(MIB) => format!("{}Mi", b / MIB),
        b => format!("{b}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &[(&str, &str)]) -> Result<Config> {
        let options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Config::read(&crate::tests::request("", options))
    }

    #[test]
    fn defaults_can_be_read() {
        let config = read(&[("provider", "AWS")]).unwrap();
        assert_eq!((config.upload_cutoff, config.chunk_size), (32 * MIB, 8 * MIB));
        assert_eq!((config.list_chunk, config.max_upload_parts), (1000, 10_000));
        assert!(!config.list_v1 && config.list_url_encode && config.path_style.is_none());
    }

    #[test]
    fn bad_values_name_the_option() {
        let aws = ("provider", "AWS");
        for (options, message) in [
            (vec![aws, ("chunk_size", "1Mi")], "open: chunk_size = \"1Mi\": use a size from 5Mi to 5Gi"),
            (vec![aws, ("list_chunk", "x")], "open: list_chunk = \"x\": use a whole number from 1 to 100000"),
            (vec![aws, ("env_auth", "maybe")], "open: env_auth = \"maybe\": use true or false"),
            (vec![("provider", "Minio")], "open: endpoint is not set: provider Minio has no host of its own"),
            (vec![aws, ("access_key_id", "a")], "open: set both access_key_id and secret_access_key, or neither"),
            (vec![aws, ("sse_customer_key_base64", "%")], "open: sse_customer_key_base64: not base64"),
        ] {
            let error = read(&options).err().unwrap();
            assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Invalid, message));
        }
    }

    #[test]
    fn sizes_are_read_as_rclone_does() {
        for (text, bytes) in [("5", 5 << 10), ("5B", 5), ("8Mi", 8 << 20), ("1.5G", 3 << 29), ("4.656Gi", 4999341932)] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        assert_eq!(parse_size("5x"), None);
        assert_eq!(parse_size(""), None);
    }
}
