//! Requests of another front end: a copy of everything, whatever the destination has.

use super::options::Options;
use std::ffi::OsString;

/// A copy. Its paths are as rsync's: a source with a slash at its end stands for its contents.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Begins each line about an error.
    pub program: &'static str,
    /// Sources, and the destination as the last.
    pub paths: Vec<OsString>,
    /// Only these names of the one source; `None` for all that is in it.
    pub names: Option<Vec<Vec<u8>>>,
    /// Symlinks are followed; otherwise they are copied as symlinks.
    pub follow: bool,
    /// Permissions, owner, group, times, access control lists, devices and specials are kept.
    pub preserve: bool,
    /// Extended attributes are kept.
    pub xattrs: bool,
    /// Runs of zeros become holes.
    pub sparse: bool,
    /// No transferred data stays in the page cache.
    pub drop_cache: bool,
    /// Only errors are printed.
    pub quiet: bool,
    /// A line for each name, in the form of rsync's `--out-format`; `None` for no lines.
    pub out_format: Option<String>,
}

impl From<Request> for Options {
    fn from(request: Request) -> Options {
        let preserve = request.preserve;
        Options {
            program: request.program,
            recursive: request.names.is_none(),
            dirs: Some(true),
            ignore_times: true,
            links: !request.follow,
            copy_links: request.follow,
            perms: preserve,
            times: preserve,
            owner: preserve,
            group: preserve,
            acls: preserve,
            devices: preserve,
            specials: preserve,
            xattrs: request.xattrs,
            sparse: request.sparse,
            drop_cache: request.drop_cache,
            quiet: request.quiet,
            out_format: request.out_format,
            names: request.names,
            paths: request.paths,
            ..Options::default()
        }
    }
}
