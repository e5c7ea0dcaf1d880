//! The kernel's mount table: which file systems are below a folder, and whether two paths are one folder.

use haul_core::{Algo, hash::hash_bytes};
use rustix::{
    fs::{CWD, Mode, OFlags, StatVfsMountFlags},
    io::Errno,
};
use std::{
    ffi::OsStr,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::Path,
    sync::Arc,
};

/// One line of the table (proc_pid_mountinfo(5)).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// Major and minor number, as text.
    pub device: Vec<u8>,
    /// The folder of the device's file system that is mounted.
    pub root: Vec<u8>,
    /// Where.
    pub place: Vec<u8>,
    /// The kind of file system.
    pub kind: Vec<u8>,
    /// The mounted device, or a server's directory.
    pub source: Vec<u8>,
}

impl Mount {
    /// The part of a path behind the mount point, if the path is there or below: empty, or `/` and more.
    fn rest<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        let rest = path.strip_prefix(self.place.strip_suffix(b"/").unwrap_or(&self.place))?;
        (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
    }
}

/// Everything that is mounted, in the order in which it was; nothing where the kernel doesn't say.
pub(super) fn mounts() -> Vec<Mount> {
    parse(&table().unwrap_or_default())
}

/// A path without links, as a place on its device; `None` where that isn't known.
pub(super) fn on_device(path: &[u8]) -> Option<Arc<[u8]>> {
    place_on_device(&mounts(), path).map(Into::into)
}

/// Identifies the file system of an open directory, whose `path` has no links: its fsid, which snapshots of a device share and
/// NFS doesn't have, and the mount's source.
pub(super) fn file_system(dir: &OwnedFd, path: &[u8]) -> Option<u64> {
    let id = rustix::fs::fstatvfs(dir).map_or(0, |st| st.f_fsid).to_le_bytes();
    let mounts = mounts();
    let (mount, _) = holder(&mounts, path)?;
    let parts = [&id[..], &mount.kind, b"\0", &mount.source, b"\0", &mount.root];
    hash_bytes(&[Algo::Crc64Nvme], &parts.concat()).crc64()
}

/// Kinds of file systems that show what a machine does, not what it keeps; and where others are mounted when they are looked at.
const OF_THE_MACHINE: [&[u8]; 19] = [
    b"autofs",
    b"binfmt_misc",
    b"bpf",
    b"cgroup",
    b"cgroup2",
    b"configfs",
    b"debugfs",
    b"devpts",
    b"devtmpfs",
    b"efivarfs",
    b"fusectl",
    b"hugetlbfs",
    b"mqueue",
    b"nsfs",
    b"proc",
    b"pstore",
    b"securityfs",
    b"sysfs",
    b"tracefs",
];

/// Where file systems that keep files are mounted below a folder: paths below it, `/` between names, in order. Nothing where the kernel
/// doesn't say.
pub fn below(folder: &Path) -> Vec<Vec<u8>> {
    let Ok(folder) = folder.canonicalize() else { return Vec::new() };
    let mut found = below_in(&mounts(), folder.as_os_str().as_bytes());
    found.sort();
    found.dedup();
    found
}

fn below_in(mounts: &[Mount], folder: &[u8]) -> Vec<Vec<u8>> {
    let folder = folder.strip_suffix(b"/").unwrap_or(folder);
    let rest = |mount: &Mount| Some(mount.place.strip_prefix(folder)?.strip_prefix(b"/")?.to_vec());
    let keeps = |mount: &&Mount| !OF_THE_MACHINE.contains(&&mount.kind[..]);
    // A bind mount whose directory was removed has no place any more: the kernel shows `//deleted`.
    let is_place = |rest: &Vec<u8>| !rest.is_empty() && !rest.windows(2).any(|two| two == b"//");
    mounts.iter().filter(keeps).filter_map(rest).filter(is_place).collect()
}

/// Those of [`below`] that are mounted whether somebody looks or not: not by an automounter, and not by the client of a server that
/// mounts what it finds there itself.
pub fn fixed_below(folder: &Path) -> Vec<Vec<u8>> {
    let Ok(folder) = folder.canonicalize() else { return Vec::new() };
    fixed_in(&mounts(), folder.as_os_str().as_bytes())
}

fn fixed_in(mounts: &[Mount], folder: &[u8]) -> Vec<Vec<u8>> {
    let automounted = |place: &[u8]| mounts.iter().any(|mount| mount.kind == b"autofs" && mount.rest(place).is_some());
    let whole = |rest: &Vec<u8>| [folder.strip_suffix(b"/").unwrap_or(folder), b"/", rest].concat();
    let fixed = |place: &[u8]| !automounted(place) && !is_by_client(mounts, place);
    below_in(mounts, folder).into_iter().filter(|rest| fixed(&whole(rest))).collect()
}

/// True where what is mounted at this place is of the server of the mount above it, and the directory that stands there on that server:
/// only then has the client mounted it itself. Anything else may be missing on another machine.
fn is_by_client(mounts: &[Mount], place: &[u8]) -> bool {
    let of_a_server = |mount: &Mount| [&b"nfs"[..], b"cifs", b"smb"].iter().any(|kind| mount.kind.starts_with(kind));
    // Of two at one place the one that was mounted last is seen.
    let Some(there) = mounts.iter().rfind(|mount| mount.place == place) else { return false };
    let above = mounts.iter().filter(|mount| mount.rest(place).is_some_and(|rest| !rest.is_empty()));
    let Some(above) = above.max_by_key(|mount| mount.place.len()) else { return false };
    let rest = above.rest(place).unwrap_or_default();
    // What is mounted there may be a folder of the server's, as in a container.
    let (source, root) = (above.source.strip_suffix(b"/"), above.root.strip_suffix(b"/"));
    let (source, root) = (source.unwrap_or(&above.source), root.unwrap_or(&above.root));
    of_a_server(there) && of_a_server(above) && there.source == [source, root, rest].concat()
}

/// False where a file system (FUSE, SMB) numbers its inodes separately on each machine, or may.
pub fn shares_inodes(folder: &Path) -> bool {
    const OF_ITS_OWN: [u32; 3] = [0x6573_5546, 0xff53_4d42, 0xfe53_4d42];
    rustix::fs::statfs(folder).is_ok_and(|st| !OF_ITS_OWN.contains(&(st.f_type as u32)))
}

/// Those of `wanted`, paths below a folder, at which nothing is mounted. What is mounted when it is looked at is mounted by this.
pub fn lacking<'a>(folder: &Path, wanted: &'a [Vec<u8>]) -> Vec<&'a [u8]> {
    for place in wanted {
        // The dot makes an automounter mount it.
        let _ = rustix::fs::stat(folder.join(OsStr::from_bytes(place)).join("."));
    }
    let there = below(folder);
    wanted.iter().filter(|place| !there.contains(place)).map(Vec::as_slice).collect()
}

/// True for a read-only mount.
pub fn is_read_only(folder: &Path) -> bool {
    rustix::fs::statvfs(folder).is_ok_and(|st| st.f_flag.contains(StatVfsMountFlags::RDONLY))
}

fn table() -> rustix::io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(CWD, c"/proc/self/mountinfo", flags, Mode::empty())?;
    let (mut table, mut block) = (Vec::new(), vec![0; 16 << 10]);
    loop {
        match rustix::io::read(&fd, &mut block) {
            Err(Errno::INTR) => {}
            Ok(0) => return Ok(table),
            answer => table.extend_from_slice(&block[..answer?]),
        }
    }
}

fn parse(table: &[u8]) -> Vec<Mount> {
    let lines = table.split(|b| *b == b'\n').filter_map(|line| {
        let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
        let dash = fields.iter().position(|f| *f == b"-")?;
        let (kind, source) = (fields.get(dash + 1)?, fields.get(dash + 2).copied().unwrap_or_default());
        let [_, _, device, root, place, ..] = fields[..] else { return None };
        let (root, place, source) = (unescaped(root), unescaped(place), unescaped(source));
        Some(Mount { device: device.to_vec(), root, place, kind: kind.to_vec(), source })
    });
    lines.collect()
}

/// A field as it is: space, tab, line break and backslash are written as three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let digits = field.get(at + 1..at + 4).filter(|_| field[at] == b'\\');
        let code = digits.and_then(|d| std::str::from_utf8(d).ok()).and_then(|d| u8::from_str_radix(d, 8).ok());
        plain.push(code.unwrap_or(field[at]));
        at += if code.is_some() { 4 } else { 1 };
    }
    plain
}

fn place_on_device(mounts: &[Mount], path: &[u8]) -> Option<Vec<u8>> {
    let (mount, rest) = holder(mounts, path)?;
    let root = mount.root.strip_suffix(b"/").unwrap_or(&mount.root);
    Some([&mount.device[..], root, &rest[..]].concat())
}

/// The mount that holds a path, and the rest of that.
fn holder<'a>(mounts: &'a [Mount], path: &[u8]) -> Option<(&'a Mount, Vec<u8>)> {
    // The deepest holds the path; of two at one place the one that was mounted last.
    mounts.iter().filter_map(|m| Some((m, m.rest(path)?.to_vec()))).max_by_key(|(mount, _)| mount.place.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"1 0 8:1 / / rw - ext4 /dev/a rw\n\
        2 1 8:2 / /data rw shared:7 - ext4 /dev/b rw\n\
        3 1 8:2 /in\\040here /mnt/bound rw - ext4 /dev/b rw\n\
        4 1 0:9 / /auto rw - autofs systemd-1 rw\n";

    #[test]
    fn a_line_is_read_with_its_escapes() {
        let mounts = parse(TABLE);
        assert_eq!(mounts.len(), 4);
        let bound = Mount {
            device: b"8:2".to_vec(),
            root: b"/in here".to_vec(),
            place: b"/mnt/bound".to_vec(),
            kind: b"ext4".to_vec(),
            source: b"/dev/b".to_vec(),
        };
        assert_eq!(mounts[2], bound);
        assert_eq!(mounts[3].kind, b"autofs");
        assert_eq!(unescaped(b"a\\134b\\"), b"a\\b\\");
    }

    #[test]
    fn what_is_mounted_below_a_folder_is_known_by_its_path_there() {
        let below = |folder: &str| {
            let found = below_in(&parse(TABLE), folder.as_bytes()).into_iter();
            found.map(|place| String::from_utf8(place).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(below("/"), ["data", "mnt/bound"]);
        assert_eq!((below("/mnt"), below("/data"), below("/dat")), (vec!["bound".to_owned()], vec![], vec![]));
        let wanted = [b"proc/self".to_vec()];
        assert_eq!(lacking(Path::new("/"), &wanted), [b"proc/self"]);
    }

    #[test]
    fn only_what_a_servers_client_mounts_itself_comes_and_goes() {
        let table = b"1 0 8:1 / / rw - ext4 /dev/a rw\n\
            2 1 0:50 / /home rw - nfs4 nas:/export/home rw,addr=10.0.0.1\n\
            3 2 0:51 / /home/ann rw - nfs4 nas:/export/home/ann rw,addr=10.0.0.1\n\
            4 3 0:52 / /home/ann/.snap rw - nfs4 nas:/export/home/ann/.snap rw,addr=10.0.0.1\n\
            5 2 0:53 / /home/proj rw - nfs4 filer:/proj rw,addr=10.0.0.2\n\
            6 2 0:54 / /home/data rw - nfs4 nas:/data rw,addr=10.0.0.1\n\
            7 2 8:9 / /home/local rw - ext4 /dev/b rw\n\
            8 7 0:55 / /home/local/x rw - nfs4 nas:/export/home/local/x rw,addr=10.0.0.1\n\
            9 1 0:60 / /smb rw - cifs //host/share rw\n\
            10 9 0:61 / /smb/dfs rw - cifs //host/share/dfs rw\n\
            11 9 0:62 / /smb/other rw - cifs //host/other rw\n\
            12 1 0:70 / /all rw - nfs4 nas:/ rw\n\
            13 12 0:71 / /all/a\\040b rw - nfs4 nas:/a\\040b rw\n";
        let fixed = |folder: &str| {
            let found = fixed_in(&parse(table), folder.as_bytes()).into_iter();
            found.map(|place| String::from_utf8(place).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(fixed("/home"), ["proj", "data", "local", "local/x"]);
        assert_eq!((fixed("/home/ann"), fixed("/all")), (vec![], vec![]));
        assert_eq!(fixed("/smb"), ["other"]);
    }

    #[test]
    fn two_ways_to_one_folder_are_one_place_on_the_device() {
        let on = |path: &str| place_on_device(&parse(TABLE), path.as_bytes()).map(|p| String::from_utf8(p).unwrap());
        assert_eq!(on("/data/in here/x").as_deref(), Some("8:2/in here/x"));
        assert_eq!(on("/mnt/bound/x").as_deref(), Some("8:2/in here/x"));
        assert_eq!(on("/mnt/boundless").as_deref(), Some("8:1/mnt/boundless"));
        assert_eq!(on("/data").as_deref(), Some("8:2"));
        assert_eq!(place_on_device(&[], b"/data"), None);
    }
}
