//! rclone's flags for tuning that haul takes and has no use of, so that a command line made for rclone runs as it is.

/// Accepted for rclone's sake.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Accepted without effect, for command lines of rclone")]
pub struct IgnoredFlags {
    /// haul reads ahead as far as --max-memory allows
    #[arg(long, value_name = "SIZE")]
    pub buffer_size: Option<String>,
    /// haul keeps no cache of files
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<std::ffi::OsString>,
    /// haul uses HTTP/1.1, with one connection for each stream
    #[arg(long)]
    pub disable_http2: bool,
    /// haul never waits for the server's consent before it sends content
    #[arg(long, value_name = "DURATION")]
    pub expect_continue_timeout: Option<String>,
    /// haul runs one command and ends: nothing expires
    #[arg(long, value_name = "DURATION")]
    pub fs_cache_expire_duration: Option<String>,
    /// haul runs one command and ends: nothing expires
    #[arg(long, value_name = "DURATION")]
    pub fs_cache_expire_interval: Option<String>,
    /// haul locks a file for as long as it needs it
    #[arg(long, value_name = "DURATION")]
    pub kv_lock_time: Option<String>,
    /// haul doesn't hold listings in memory to sort them
    #[arg(long, value_name = "N")]
    pub list_cutoff: Option<String>,
    /// haul uses reflinks where possible, which doesn't affect other files
    #[arg(long)]
    pub local_no_clone: bool,
    /// haul reserves space only where that costs little
    #[arg(long)]
    pub local_no_preallocate: bool,
    /// haul makes holes only where the source has some, or where it is asked to
    #[arg(long)]
    pub local_no_sparse: bool,
    /// haul limits its queues automatically
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub max_backlog: Option<String>,
    /// See --max-memory
    #[arg(long, value_name = "SIZE")]
    pub max_buffer_memory: Option<String>,
    /// haul has one group of statistics
    #[arg(long, value_name = "N")]
    pub max_stats_groups: Option<String>,
    /// haul writes parts as they arrive
    #[arg(long, value_name = "SIZE")]
    pub multi_thread_write_buffer_size: Option<String>,
    /// haul doesn't ask for compressed answers
    #[arg(long)]
    pub no_gzip_encoding: bool,
    /// haul compares names as they are, byte by byte
    #[arg(long)]
    pub no_unicode_normalization: bool,
    /// haul uploads data of unknown size in parts
    #[arg(long, value_name = "SIZE")]
    pub streaming_upload_cutoff: Option<String>,
    /// haul makes no temporary files outside of the destination
    #[arg(long, value_name = "DIR")]
    pub temp_dir: Option<std::ffi::OsString>,
    /// haul manages its memory automatically
    #[arg(long)]
    pub use_mmap: bool,
}

/// One line about those that were given; `None` where none was.
pub fn notice(flags: &IgnoredFlags) -> Option<String> {
    let given = [
        ("--buffer-size", flags.buffer_size.is_some()),
        ("--cache-dir", flags.cache_dir.is_some()),
        ("--disable-http2", flags.disable_http2),
        ("--expect-continue-timeout", flags.expect_continue_timeout.is_some()),
        ("--fs-cache-expire-duration", flags.fs_cache_expire_duration.is_some()),
        ("--fs-cache-expire-interval", flags.fs_cache_expire_interval.is_some()),
        ("--kv-lock-time", flags.kv_lock_time.is_some()),
        ("--list-cutoff", flags.list_cutoff.is_some()),
        ("--local-no-clone", flags.local_no_clone),
        ("--local-no-preallocate", flags.local_no_preallocate),
        ("--local-no-sparse", flags.local_no_sparse),
        ("--max-backlog", flags.max_backlog.is_some()),
        ("--max-buffer-memory", flags.max_buffer_memory.is_some()),
        ("--max-stats-groups", flags.max_stats_groups.is_some()),
        ("--multi-thread-write-buffer-size", flags.multi_thread_write_buffer_size.is_some()),
        ("--no-gzip-encoding", flags.no_gzip_encoding),
        ("--no-unicode-normalization", flags.no_unicode_normalization),
        ("--streaming-upload-cutoff", flags.streaming_upload_cutoff.is_some()),
        ("--temp-dir", flags.temp_dir.is_some()),
        ("--use-mmap", flags.use_mmap),
    ];
    let names: Vec<&str> = given.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
    (!names.is_empty()).then(|| format!("Ignoring {}: haul needs no such setting", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_were_given_are_named_in_one_line() {
        assert_eq!(notice(&IgnoredFlags::default()), None);
        let flags = IgnoredFlags { use_mmap: true, buffer_size: Some("64M".into()), ..IgnoredFlags::default() };
        assert_eq!(notice(&flags).unwrap(), "Ignoring --buffer-size, --use-mmap: haul needs no such setting");
    }
}
