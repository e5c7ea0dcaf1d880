//! Options of rclone's sections that haul lacks. Some change nothing that anybody sees; some make other files or another root of a
//! remote, so that without them a sync would delete what it shouldn't: such a remote isn't opened. All others are told once.

use haul_core::text::boolean;

/// What an option asks for that a kind of store doesn't have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacking {
    /// Nothing: it is about speed, memory or messages, or switched off.
    Nothing,
    /// Something that is told.
    Told,
    /// Other files, or another root; with what to do instead.
    Refused(&'static str),
}

const BY_RCLONE: &str = "use rclone for it, or remove the option";

/// Options whose files haul wouldn't show, or shouldn't: kind, name, advice.
const REFUSED: &[(&str, &str, &str)] = &[
    ("azureblob", "decompress", BY_RCLONE),
    (
        "azureblob",
        "username",
        "log in by client_secret, client_certificate_path, use_msi or use_az instead of a username and its password",
    ),
    ("drive", "auth_owner_only", BY_RCLONE),
    ("drive", "formats", "write export_formats instead"),
    ("dropbox", "impersonate_admin", BY_RCLONE),
    ("dropbox", "shared_files", BY_RCLONE),
    ("dropbox", "skip_shared_folders", BY_RCLONE),
    ("dropbox", "skip_unowned_folders", BY_RCLONE),
    ("gcs", "decompress", BY_RCLONE),
    ("http", "no_escape", BY_RCLONE),
    ("local", "unicode_normalization", BY_RCLONE),
    ("s3", "decompress", BY_RCLONE),
    ("webdav", "owncloud_exclude_mounts", BY_RCLONE),
    ("webdav", "owncloud_exclude_shares", BY_RCLONE),
    ("webdav", "unix_socket", BY_RCLONE),
];

/// Options that haul needn't have, whatever they say: of any kind of store.
const NOTHING: &[&str] = &[
    "allow_import_name_change",
    "alternate_export",
    "batch_commit_timeout",
    "case_insensitive",
    "case_sensitive",
    "concurrency",
    "copy_concurrency",
    "copy_total_concurrency",
    "description",
    "disable_checksum",
    "disable_concurrent_reads",
    "disable_concurrent_writes",
    "disable_http2",
    "fast_list_bug_fix",
    "fatal_if_no_space",
    "idle_timeout",
    "leave_parts_on_error",
    "list_parallelism",
    "list_versions_oldest_first",
    "memory_pool_flush_time",
    "memory_pool_use_mmap",
    "no_clone",
    "no_head_object",
    "no_preallocate",
    "no_sparse",
    "nounc",
    "pacer_min_sleep",
    "sdk_log_mode",
    "server_side_across_configs",
    "show_mapping",
    "skip_exports",
    "skip_links",
    "skip_specials",
    "type",
    "upload_concurrency",
    "upload_cutoff",
    "use_already_exists",
    "use_arrow_list",
    "use_copy_blob",
    "use_fstat",
    "use_multipart_uploads",
    "use_x_id",
    "v2_download_min_size",
];

/// Options that count only where people log in to a service, beside those of its kind of store.
const OF_LOG_INS: [&str; 2] = ["device_url", "revoke_url"];

/// The options of a kind that are refused.
pub fn refused(kind: &str) -> impl Iterator<Item = &'static str> {
    REFUSED.iter().filter(move |(of, ..)| *of == kind).map(|(_, name, _)| *name)
}

/// What this option, which isn't one of the kind's own, would do with this value.
pub fn lacking(kind: &str, name: &str, value: &str) -> Lacking {
    let off = matches!(value.trim(), "" | "unset" | "off") || boolean(value.trim()) == Some(false);
    let own = OF_LOG_INS.contains(&name) && crate::registry::login(kind).is_some();
    if off || own || NOTHING.contains(&name) {
        return Lacking::Nothing;
    }
    match REFUSED.iter().find(|(of, refused, _)| (*of, *refused) == (kind, name)) {
        Some((.., advice)) => Lacking::Refused(advice),
        None => Lacking::Told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_store_has_an_option_that_is_listed_as_unsupported() {
        for kind in crate::registry::kinds() {
            for name in refused(kind.name).chain(OF_LOG_INS) {
                assert!(kind.options.iter().all(|option| option.name != name), "{} {name}", kind.name);
            }
        }
    }

    #[test]
    fn an_unsupported_option_that_is_off_is_accepted() {
        let of = |value| lacking("dropbox", "shared_files", value);
        assert_eq!([of("false"), of(""), of("0")], [Lacking::Nothing; 3]);
        assert_eq!(of("true"), Lacking::Refused(BY_RCLONE));
        assert_eq!(lacking("box", "shared_files", "true"), Lacking::Told);
        assert_eq!(lacking("s3", "upload_concurrency", "7"), Lacking::Nothing);
        assert_eq!(lacking("onedrive", "device_url", "http://x"), Lacking::Nothing);
        assert_eq!(lacking("s3", "device_url", "http://x"), Lacking::Told);
    }
}
