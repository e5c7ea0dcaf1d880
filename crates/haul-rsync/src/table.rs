//! Every option of rsync's, and what becomes of it here: the parser, the help, the reference and the man page go by this table.

use haul_terminal::table::{Entry, Here, TITLES};

const fn on(short: char, long: &'static str, help: &'static str) -> Entry {
    Entry { short: Some(short), long, value: None, here: Here::Works, help }
}

const fn long(long: &'static str, help: &'static str) -> Entry {
    Entry { short: None, long, value: None, here: Here::Works, help }
}

const fn value(long: &'static str, value: &'static str, help: &'static str) -> Entry {
    Entry { short: None, long, value: Some(value), here: Here::Works, help }
}

const fn short_value(short: char, long: &'static str, value: &'static str, help: &'static str) -> Entry {
    Entry { short: Some(short), long, value: Some(value), here: Here::Works, help }
}

const fn idle(entry: Entry) -> Entry {
    Entry { here: Here::NoEffect, ..entry }
}

const fn refused(entry: Entry) -> Entry {
    Entry { here: Here::Refused, ..entry }
}

/// All of them.
pub const OPTIONS: &[Entry] = &[
    on('a', "archive", "the same as -rlptgoD"),
    on('r', "recursive", "go into directories"),
    on('l', "links", "copy symlinks as symlinks"),
    on('p', "perms", "keep permissions"),
    on('t', "times", "keep modification times"),
    on('g', "group", "keep the group"),
    on('o', "owner", "keep the owner (root only)"),
    Entry { short: Some('D'), long: "", value: None, here: Here::Works, help: "the same as --devices --specials" },
    long("devices", "keep devices (root only)"),
    long("specials", "keep FIFOs and sockets"),
    on('H', "hard-links", "keep hard links"),
    on('A', "acls", "keep access control lists, and permissions with them"),
    on('X', "xattrs", "keep extended attributes"),
    on('E', "executability", "keep whether a file may be executed"),
    on('U', "atimes", "keep access times"),
    on('O', "omit-dir-times", "leave out directories from --times"),
    on('J', "omit-link-times", "leave out symlinks from --times"),
    long("fsync", "force each file to the disk before it gets its name"),
    on('S', "sparse", "turn runs of zeros into holes"),
    on('L', "copy-links", "copy what symlinks point to"),
    on('k', "copy-dirlinks", "take symlinks to directories for directories"),
    long("safe-links", "leave out symlinks that lead out of the tree"),
    long("copy-unsafe-links", "copy what symlinks that lead out of the tree point to"),
    long("munge-links", "remove the prefix that makes symlinks unusable; -M--munge-links adds it"),
    on('K', "keep-dirlinks", "leave a symlink to a directory of the destination where the source has a directory"),
    on('x', "one-file-system", "don't cross file system boundaries; twice: leave out mount points too"),
    value("chmod", "CHMOD", "change permissions of what is transferred: Du=rwx,go-w,F644"),
    value("chown", "USER:GROUP", "give all that is transferred to this user and group"),
    value(
        "usermap",
        "MAP",
        "give what one user owns to another: FROM:TO,...; FROM is a name, a pattern of names, a number or 5-9",
    ),
    value("groupmap", "MAP", "the same of groups"),
    long("numeric-ids", "keep numbers of users and groups (haul always does)"),
    on('n', "dry-run", "change nothing, show what would be done"),
    on('v', "verbose", "show names of what is transferred; twice: of everything"),
    on('q', "quiet", "show errors only"),
    on('i', "itemize-changes", "show what changes for each name; twice: unchanged ones too"),
    value("out-format", "FORMAT", "show each change in this form: %i %n %L %l %f %o %M %B %b %p %U %G %t %m %c %C"),
    value("log-format", "FORMAT", "the same as --out-format"),
    value("log-file", "FILE", "add a line for each change and error to this file"),
    value("log-file-format", "FORMAT", "their form, as for --out-format [default: %i %n%L]"),
    long("stats", "show statistics at the end"),
    long("progress", "show each file as it arrives"),
    Entry { short: Some('P'), long: "", value: None, here: Here::Works, help: "the same as --partial --progress" },
    value(
        "info",
        "FLAGS",
        "del, flist, name, nonreg, progress, remove, skip, stats, all, none, each with a level; others change nothing; help explains them",
    ),
    on('h', "human-readable", "numbers with units; twice: units of 1024"),
    on('8', "8-bit-output", "print bytes that aren't text as they are"),
    long("list-only", "list instead of copying"),
    on('R', "relative", "keep the path as typed, from /./ on if it has that"),
    long("no-implied-dirs", "with --relative, keep no attributes of the directories on the way"),
    long("no-i-d", "the same"),
    long("implied-dirs", "take --no-implied-dirs back"),
    long("i-d", "the same"),
    on('d', "dirs", "directories without what is in them"),
    on('m', "prune-empty-dirs", "leave out directories that hold nothing but such directories"),
    long("mkpath", "create the destination's missing directories"),
    on('c', "checksum", "compare by checksum instead of size and time"),
    on('u', "update", "skip files that are newer at the destination"),
    on('I', "ignore-times", "transfer what has the same size and time too"),
    long("size-only", "skip what has the same size"),
    long("insecure-links", "follow other users' symlinks on the way to DEST and to what options name"),
    short_value('@', "modify-window", "N", "times this many seconds apart are equal; -1 compares nanoseconds"),
    long("existing", "create nothing new"),
    long("ignore-non-existing", "the same as --existing"),
    long("ignore-existing", "leave what exists"),
    value("max-size", "SIZE", "transfer no larger files"),
    value("min-size", "SIZE", "transfer no smaller files"),
    long("inplace", "write to files in place"),
    long("append", "transfer only the missing end of files that are shorter at the destination"),
    long("append-verify", "the same, and the whole where the destination begins otherwise"),
    long("delay-updates", "put all files in place at the end"),
    on('b', "backup", "keep what is replaced or deleted, under names with --suffix"),
    value("backup-dir", "DIR", "keep it in this directory"),
    value("suffix", "SUFFIX", "ending of kept names [default: ~ where there is no --backup-dir]"),
    value(
        "compare-dest",
        "DIR",
        "skip, and remove at the destination, files that are already in this directory (may repeat)",
    ),
    value("copy-dest", "DIR", "take what is the same from this directory (may repeat)"),
    value("link-dest", "DIR", "link to what is the same in this directory (may repeat)"),
    long("delete", "delete what isn't in the source"),
    long("del", "the same as --delete"),
    long("delete-before", "delete before the first transfer"),
    long("delete-during", "delete as it is found"),
    long("delete-delay", "delete after the last transfer"),
    long("delete-after", "delete after the last transfer"),
    long("delete-excluded", "delete what rules leave out too"),
    long("ignore-errors", "delete even after errors"),
    long("force", "replace directories by files even where they hold something"),
    value("max-delete", "N", "delete no more than this, exit with 25"),
    long("remove-source-files", "delete each file of the source that has arrived"),
    value("exclude", "PATTERN", "leave out what matches"),
    value("include", "PATTERN", "don't leave out what matches"),
    value("exclude-from", "FILE", "patterns to leave out, one a line; - is standard input"),
    value("include-from", "FILE", "patterns not to leave out"),
    short_value('f', "filter", "RULE", "a rule of rsync's filter language"),
    Entry {
        short: Some('F'),
        long: "",
        value: None,
        here: Here::Works,
        help: "rules in .rsync-filter of each directory; twice: leave that file out",
    },
    on('C', "cvs-exclude", "leave out what CVS leaves out"),
    value("files-from", "FILE", "transfer the names in this file; - is standard input"),
    on('0', "from0", "names and rules in files end in NUL"),
    value("bwlimit", "RATE", "KiB a second at most; K, M, G for other units"),
    long("ignore-missing-args", "ignore missing sources"),
    value("stop-after", "MINUTES", "stop after this time, exit with 30; the next run continues"),
    value("time-limit", "MINUTES", "the same"),
    value(
        "stop-at",
        "TIME",
        "stop at year-month-dayThour:minute; omitted parts mean the next such time: 14:00, 31, :59",
    ),
    value("timeout", "SECONDS", "give up if a remote is silent for this long"),
    value("contimeout", "SECONDS", "give up connecting after this long"),
    short_value(
        'e',
        "rsh",
        "COMMAND",
        "what leads to hosts, with its options: ssh -p 2222 [default: $RSYNC_RSH, else ssh]",
    ),
    on('z', "compress", "compress what goes to and comes from haul on a host; slow links are compressed in any case"),
    long("old-compress", "the same"),
    long("new-compress", "the same"),
    value("compress-choice", "STR", "none, or any other of rsync's for zstd"),
    value("zc", "STR", "the same"),
    value("compress-level", "N", "zstd's level instead of one that suits the link; 0 compresses nothing"),
    value("zl", "N", "the same"),
    on('W', "whole-file", "send files whole; --no-whole-file, which hosts have by default, sends what has changed"),
    value("rsync-path", "PROGRAM", "where haul is on the host [default: haul]"),
    on('4', "ipv4", "reach hosts by IPv4"),
    on('6', "ipv6", "reach hosts by IPv6"),
    on('V', "version", "show the version; twice: as JSON"),
    long("help", "show this help"),
    idle(value("compress-threads", "N", "as many as there is work for")),
    idle(value("zt", "N", "as --compress-threads")),
    idle(value("skip-compress", "LIST", "what doesn't get smaller goes as it is, whatever its name")),
    idle(short_value('B', "block-size", "SIZE", "blocks are the store's")),
    idle(value("checksum-choice", "STR", "the fastest that both sides have is used")),
    idle(value("cc", "STR", "as --checksum-choice")),
    idle(value("checksum-seed", "N", "as --checksum-choice")),
    idle(long("partial", "interrupted files are hidden, and the next run resumes them")),
    idle(value("partial-dir", "DIR", "as --partial; the directory is left out")),
    idle(short_value('T', "temp-dir", "DIR", "it must be there; a file arrives beside its final name, hidden")),
    idle(long("inc-recursive", "haul always does")),
    idle(long("i-r", "as --inc-recursive")),
    short_value(
        'M',
        "remote-option",
        "OPT",
        "--munge-links, see there; no other is known, since no remote rsync is used",
    ),
    idle(value("debug", "FLAGS", "there is nothing to show")),
    idle(value("stderr", "MODE", "errors go to standard error")),
    idle(value("outbuf", "MODE", "lines go out as they are made")),
    idle(value("max-alloc", "SIZE", "memory is bounded in any case")),
    idle(long("protect-args", "there is no remote shell to protect from")),
    idle(on('s', "secluded-args", "there is no remote shell to protect from")),
    idle(long("old-args", "as --secluded-args")),
    idle(long("trust-sender", "there is no sender to trust")),
    idle(long("blocking-io", "there is no remote shell")),
    idle(long("super", "root does what root may")),
    idle(long("no-motd", "there is no daemon")),
    idle(long("preallocate", "space for files of 1 MiB and more is always taken first")),
    idle(long("msgs2stderr", "as --stderr")),
    idle(long("qsort", "names are sorted in any case")),
    idle(on('y', "fuzzy", "files are built from files of their own name only")),
    refused(on('N', "crtimes", "keep times of creation")),
    refused(long("delete-missing-args", "delete what missing arguments name")),
    refused(long("fake-super", "keep attributes in extended attributes")),
    refused(long("copy-devices", "copy what devices hold")),
    refused(long("write-devices", "write into devices")),
    refused(long("open-noatime", "leave access times of the source alone")),
    refused(value("copy-as", "USER", "copy as another user")),
    refused(value("iconv", "SPEC", "convert names")),
    refused(value("write-batch", "FILE", "write changes to a file")),
    refused(value("only-write-batch", "FILE", "write changes to a file")),
    refused(value("read-batch", "FILE", "make changes that a file holds")),
    refused(value("password-file", "FILE", "a daemon's password")),
    refused(value("protocol", "N", "an older protocol")),
    refused(value("address", "ADDRESS", "bind to an address")),
    refused(value("early-input", "FILE", "input for a daemon")),
    refused(value("confine-root", "DIR", "refuse paths on the command line that lead out of a directory")),
    refused(long("drop-D", "the receiving side makes no devices and specials")),
    refused(long("old-dirs", "list as older versions do")),
    refused(long("old-d", "the same")),
    refused(value("port", "PORT", "a daemon's port")),
    refused(value("sockopts", "OPTIONS", "options of sockets")),
    refused(long("daemon", "be a daemon")),
    refused(long("server", "be the other end")),
];

/// Takes an option back.
const NO: Entry = Entry { short: None, long: "no-OPTION", ..on('n', "", "take an option back, by its name or letter") };

/// All of them, as help, reference and man page show them.
pub fn shown() -> impl Iterator<Item = &'static Entry> {
    OPTIONS.iter().chain([&NO])
}

/// The help.
pub fn help() -> String {
    let mut text = String::from(
        "Copy and synchronise with rsync's options and rules\n\n\
         Usage: haul rsync [OPTION]... SRC... DEST\n\n\
         SRC and DEST are paths here, on hosts by ssh (host:path, user@host:path) or on remotes of haul's (remote:path). \
         SRC/ means\nwhat is in it, SRC itself. rsync daemons aren't supported. haul's own flags, such as --config, stand \
         before the word rsync.\n",
    );
    for (here, title) in TITLES {
        text.push_str(&format!("\n{title}:\n"));
        for entry in shown().filter(|entry| entry.here == here) {
            text.push_str(&format!("  {:<34}  {}\n", spelt(entry), entry.help));
        }
    }
    text.push_str(
        "\nExit codes: 0 done, 1 wrong usage, 3 wrong files or directories, 4 not supported, 11 disk or store failed,\n\
         12 connection broke, 20 stopped by a signal, 23 some files failed, 24 some vanished, 25 --max-delete was reached, 30 no answer, or no\ntime left, 127 no haul on the host, 255 ssh failed.\n",
    );
    text
}

fn spelt(entry: &Entry) -> String {
    let value = |sign: &str| entry.value.map(|value| format!("{sign}{value}")).unwrap_or_default();
    match (entry.short, entry.long) {
        (Some(short), "") => format!("-{short}"),
        (Some(short), long) => format!("-{short}, --{long}{}", value("=")),
        (None, long) => format!("--{long}{}", value("=")),
    }
}
