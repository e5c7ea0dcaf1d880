//! Every option of rsync's, and what becomes of it here: the parser, the help, the reference and the man page go by this table.

use haul_terminal::table::{OptionRow, Support, TITLES};

const fn on(short: char, long: &'static str, help: &'static str) -> OptionRow {
    OptionRow { short: Some(short), long, value: None, here: Support::Works, help }
}

const fn long(long: &'static str, help: &'static str) -> OptionRow {
    OptionRow { short: None, long, value: None, here: Support::Works, help }
}

const fn value(long: &'static str, value: &'static str, help: &'static str) -> OptionRow {
    OptionRow { short: None, long, value: Some(value), here: Support::Works, help }
}

const fn short_value(short: char, long: &'static str, value: &'static str, help: &'static str) -> OptionRow {
    OptionRow { short: Some(short), long, value: Some(value), here: Support::Works, help }
}

const fn idle(entry: OptionRow) -> OptionRow {
    OptionRow { here: Support::NoEffect, ..entry }
}

const fn refused(entry: OptionRow) -> OptionRow {
    OptionRow { here: Support::Refused, ..entry }
}

/// All of them.
pub const OPTIONS: &[OptionRow] = &[
    on('a', "archive", "the same as -rlptgoD"),
    on('r', "recursive", "recurse into directories"),
    on('l', "links", "copy symlinks as symlinks"),
    on('p', "perms", "keep permissions"),
    on('t', "times", "keep modification times"),
    on('g', "group", "keep the group"),
    on('o', "owner", "keep the owner (root only)"),
    OptionRow {
        short: Some('D'),
        long: "",
        value: None,
        here: Support::Works,
        help: "the same as --devices --specials",
    },
    long("devices", "keep devices (root only)"),
    long("specials", "keep FIFOs and sockets"),
    on('H', "hard-links", "keep hard links"),
    on('A', "acls", "keep access control lists, and permissions with them"),
    on('X', "xattrs", "keep extended attributes"),
    on('E', "executability", "keep whether a file may be executed"),
    on('U', "atimes", "keep access times"),
    on('O', "omit-dir-times", "omit directories from --times"),
    on('J', "omit-link-times", "omit symlinks from --times"),
    long("fsync", "force each file to the disk before it gets its name"),
    on('S', "sparse", "turn runs of zeros into holes"),
    on('L', "copy-links", "copy what symlinks point to"),
    on('k', "copy-dirlinks", "treat symlinks to directories as directories"),
    long("safe-links", "skip symlinks that point outside the tree"),
    long("copy-unsafe-links", "copy the targets of symlinks that point outside the tree"),
    long("munge-links", "remove the prefix that makes symlinks unusable; -M--munge-links adds it"),
    on('K', "keep-dirlinks", "treat a symlink to a directory at the destination as that directory"),
    on('x', "one-file-system", "don't cross file system boundaries; twice: omit mount points too"),
    value("chmod", "CHMOD", "change permissions of transferred files and directories: Du=rwx,go-w,F644"),
    value("chown", "USER:GROUP", "set the owner and group of everything that is transferred"),
    value("usermap", "MAP", "map owners: FROM:TO,...; FROM is a name, a pattern, a number or a range such as 5-9"),
    value("groupmap", "MAP", "map groups, in the form of --usermap"),
    long("numeric-ids", "keep numeric ids of users and groups (haul always does)"),
    on('n', "dry-run", "change nothing; show what would be done"),
    on('v', "verbose", "show the names of transferred files; twice: of all files"),
    on('q', "quiet", "show errors only"),
    on('i', "itemize-changes", "show what changes in each file; twice: list unchanged files too"),
    value("out-format", "FORMAT", "show each change in this format: %i %n %L %l %f %o %M %B %b %p %U %G %t %m %c %C"),
    value("log-format", "FORMAT", "the same as --out-format"),
    value("log-file", "FILE", "add a line for each change and error to this file"),
    value("log-file-format", "FORMAT", "format of these lines, as for --out-format [default: %i %n%L]"),
    long("stats", "show statistics at the end"),
    long("progress", "show each file as it arrives"),
    OptionRow {
        short: Some('P'),
        long: "",
        value: None,
        here: Support::Works,
        help: "the same as --partial --progress",
    },
    value(
        "info",
        "FLAGS",
        "del, flist, name, nonreg, progress, remove, skip, stats, all, none, each with a level; other names have no effect; help explains them",
    ),
    on('h', "human-readable", "show numbers with units; twice: powers of 1024"),
    on('8', "8-bit-output", "print bytes that aren't text unchanged"),
    long("list-only", "list instead of copying"),
    on('R', "relative", "keep the path as typed, or its part after /./"),
    long("no-implied-dirs", "with --relative, don't keep the attributes of implied directories"),
    long("no-i-d", "the same as --no-implied-dirs"),
    long("implied-dirs", "undo --no-implied-dirs"),
    long("i-d", "the same as --implied-dirs"),
    on('d', "dirs", "transfer directories without their contents"),
    on('m', "prune-empty-dirs", "skip directories without files, at any depth"),
    long("mkpath", "create the destination's missing directories"),
    on('c', "checksum", "compare by checksum instead of size and time"),
    on('u', "update", "skip files that are newer at the destination"),
    on('I', "ignore-times", "transfer files even if size and time are the same"),
    long("size-only", "skip files of the same size"),
    long("insecure-links", "follow other users' symlinks in DEST and in paths given to options"),
    short_value(
        '@',
        "modify-window",
        "N",
        "treat times up to this many seconds apart as equal; -1 compares nanoseconds",
    ),
    long("existing", "skip files that don't exist at the destination"),
    long("ignore-non-existing", "the same as --existing"),
    long("ignore-existing", "skip files that exist at the destination"),
    value("max-size", "SIZE", "skip files larger than this"),
    value("min-size", "SIZE", "skip files smaller than this"),
    long("inplace", "write to files in place"),
    long("append", "transfer only the missing end of files that are shorter at the destination"),
    long("append-verify", "like --append, but transfer the whole file if the destination's content differs"),
    long("delay-updates", "put all files in place at the end"),
    on('b', "backup", "keep replaced and deleted files, under names with --suffix"),
    value("backup-dir", "DIR", "keep them in this directory"),
    value("suffix", "SUFFIX", "suffix of the names of kept files [default: ~ where there is no --backup-dir]"),
    value(
        "compare-dest",
        "DIR",
        "skip files that are already in this directory, and delete them at the destination (may repeat)",
    ),
    value("copy-dest", "DIR", "copy files from this directory if they are the same (may repeat)"),
    value("link-dest", "DIR", "hard-link to files in this directory if they are the same (may repeat)"),
    long("delete", "delete files that aren't in the source"),
    long("del", "the same as --delete"),
    long("delete-before", "delete before the first transfer"),
    long("delete-during", "delete files as they are found"),
    long("delete-delay", "delete after the last transfer"),
    long("delete-after", "delete after the last transfer"),
    long("delete-excluded", "delete excluded files too"),
    long("ignore-errors", "delete even after errors"),
    long("force", "replace directories with files even if they aren't empty"),
    value("max-delete", "N", "delete at most this many files; exit with 25 if there are more"),
    long("remove-source-files", "delete each source file once it is transferred"),
    value("exclude", "PATTERN", "exclude files that match"),
    value("include", "PATTERN", "don't exclude files that match"),
    value("exclude-from", "FILE", "read exclude patterns from this file, one per line; - is standard input"),
    value("include-from", "FILE", "read include patterns from this file"),
    short_value('f', "filter", "RULE", "add a rule in rsync's filter language"),
    OptionRow {
        short: Some('F'),
        long: "",
        value: None,
        here: Support::Works,
        help: "read rules from .rsync-filter in each directory; twice: exclude that file",
    },
    on('C', "cvs-exclude", "exclude files that CVS ignores"),
    value("files-from", "FILE", "transfer the files named in this file; - is standard input"),
    on('0', "from0", "names and rules in files end with NUL"),
    value("bwlimit", "RATE", "limit the bandwidth, in KiB per second; K, M, G for other units"),
    long("ignore-missing-args", "ignore missing sources"),
    value("stop-after", "MINUTES", "stop after this time, exit with 30; the next run continues"),
    value("time-limit", "MINUTES", "the same as --stop-after"),
    value(
        "stop-at",
        "TIME",
        "stop at year-month-dayThour:minute; omitted parts mean the next such time: 14:00, 31, :59",
    ),
    value("timeout", "SECONDS", "give up if a remote is silent for this long"),
    value("contimeout", "SECONDS", "give up connecting after this long"),
    short_value('e', "rsh", "COMMAND", "remote shell and its options: ssh -p 2222 [default: $RSYNC_RSH, else ssh]"),
    on('z', "compress", "compress data to and from haul on a host; slow links are always compressed"),
    long("old-compress", "the same as --compress"),
    long("new-compress", "the same as --compress"),
    value("compress-choice", "STR", "none; any other of rsync's names means zstd"),
    value("zc", "STR", "the same as --compress-choice"),
    value("compress-level", "N", "level of zstd, instead of one that suits the link; 0 disables compression"),
    value("zl", "N", "the same as --compress-level"),
    on('W', "whole-file", "send whole files; --no-whole-file, the default for hosts, sends only changes"),
    value("rsync-path", "PROGRAM", "path of haul on the host [default: haul]"),
    on('4', "ipv4", "reach hosts by IPv4"),
    on('6', "ipv6", "reach hosts by IPv6"),
    on('V', "version", "show the version; twice: as JSON"),
    long("help", "show this help"),
    idle(value("compress-threads", "N", "haul uses as many threads as there is work for")),
    idle(value("zt", "N", "as --compress-threads")),
    idle(value("skip-compress", "LIST", "data that doesn't get smaller is sent uncompressed, whatever its name")),
    idle(short_value('B', "block-size", "SIZE", "the store chooses the block size")),
    idle(value("checksum-choice", "STR", "the fastest checksum that both sides support is used")),
    idle(value("cc", "STR", "as --checksum-choice")),
    idle(value("checksum-seed", "N", "as --checksum-choice")),
    idle(long("partial", "interrupted files are hidden, and the next run resumes them")),
    idle(value("partial-dir", "DIR", "as --partial; the directory is excluded")),
    idle(short_value(
        'T',
        "temp-dir",
        "DIR",
        "the directory must exist; files are written beside their final names, hidden",
    )),
    idle(long("inc-recursive", "haul always does")),
    idle(long("i-r", "as --inc-recursive")),
    short_value('M', "remote-option", "OPT", "only --munge-links, see there: no remote rsync is used"),
    idle(value("debug", "FLAGS", "haul has no debug output")),
    idle(value("stderr", "MODE", "errors go to standard error")),
    idle(value("outbuf", "MODE", "lines are printed as they are made")),
    idle(value("max-alloc", "SIZE", "memory is always bounded")),
    idle(long("protect-args", "there is no remote shell to protect from")),
    idle(on('s', "secluded-args", "there is no remote shell to protect from")),
    idle(long("old-args", "as --secluded-args")),
    idle(long("trust-sender", "there is no sender to trust")),
    idle(long("blocking-io", "there is no remote shell")),
    idle(long("super", "root does what root may")),
    idle(long("no-motd", "there is no daemon")),
    idle(long("preallocate", "space for files of 1 MiB or more is always reserved first")),
    idle(long("msgs2stderr", "as --stderr")),
    idle(long("qsort", "names are always sorted")),
    idle(on('y', "fuzzy", "files are built from files of their own name only")),
    refused(on('N', "crtimes", "keep creation times")),
    refused(long("delete-missing-args", "delete the files that missing arguments name")),
    refused(long("fake-super", "keep attributes in extended attributes")),
    refused(long("copy-devices", "copy the contents of devices")),
    refused(long("write-devices", "write into devices")),
    refused(long("open-noatime", "don't change access times of the source")),
    refused(value("copy-as", "USER", "copy as another user")),
    refused(value("iconv", "SPEC", "convert names")),
    refused(value("write-batch", "FILE", "write changes to a file")),
    refused(value("only-write-batch", "FILE", "write changes to a file")),
    refused(value("read-batch", "FILE", "apply the changes in a file")),
    refused(value("password-file", "FILE", "read a daemon's password from a file")),
    refused(value("protocol", "N", "use an older protocol")),
    refused(value("address", "ADDRESS", "bind to an address")),
    refused(value("early-input", "FILE", "send input to a daemon")),
    refused(value("confine-root", "DIR", "refuse paths on the command line that point outside a directory")),
    refused(long("drop-D", "create no devices and special files at the destination")),
    refused(long("old-dirs", "list as older versions did")),
    refused(long("old-d", "the same as --old-dirs")),
    refused(value("port", "PORT", "connect to a daemon's port")),
    refused(value("sockopts", "OPTIONS", "set socket options")),
    refused(long("daemon", "run as a daemon")),
    refused(long("server", "run as the remote end")),
];

/// Takes an option back.
const NO: OptionRow =
    OptionRow { short: None, long: "no-OPTION", ..on('n', "", "undo an option, by its name or letter") };

/// All of them, as help, reference and man page show them.
pub fn shown() -> impl Iterator<Item = &'static OptionRow> {
    OPTIONS.iter().chain([&NO])
}

/// The help.
pub fn help() -> String {
    let mut text = String::from(
        "Copy and synchronise with rsync's options and rules\n\n\
         Usage: haul rsync [OPTION]... SRC... DEST\n\n\
         SRC and DEST are local paths, paths on hosts reached by ssh (host:path, user@host:path) or paths on haul's remotes\n\
         (remote:path). SRC/ means the contents of SRC, SRC the directory itself. rsync daemons aren't supported. haul's own\n\
         flags, such as --config, go before the word rsync.\n",
    );
    for (here, title) in TITLES {
        text.push_str(&format!("\n{title}:\n"));
        for entry in shown().filter(|entry| entry.here == here) {
            text.push_str(&format!("  {:<34}  {}\n", spelt(entry), entry.help));
        }
    }
    text.push_str(
        "\nExit codes: 0 done, 1 wrong usage, 3 wrong files or directories, 4 not supported, 11 disk or store failed,\n\
         12 connection broke, 20 stopped by a signal, 23 some files failed, 24 some vanished, 25 --max-delete was reached, 30 timeout,\n\
         or --stop-after or --stop-at was reached, 127 no haul on the host, 255 ssh failed.\n",
    );
    text
}

fn spelt(entry: &OptionRow) -> String {
    let value = |sign: &str| entry.value.map(|value| format!("{sign}{value}")).unwrap_or_default();
    match (entry.short, entry.long) {
        (Some(short), "") => format!("-{short}"),
        (Some(short), long) => format!("-{short}, --{long}{}", value("=")),
        (None, long) => format!("--{long}{}", value("=")),
    }
}
