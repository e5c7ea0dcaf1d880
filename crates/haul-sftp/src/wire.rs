//! SFTP version 3 as bytes: requests out, answers in. Pure; whatever the other side sends is an answer or an error, never a panic,
//! and no count in it takes memory that its bytes don't fill.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The version that everybody speaks.
pub const VERSION: u32 = 3;

/// Frames are no longer, whatever a length says: data of 256 KiB and what is around it; OpenSSH's own limit.
pub const FRAME_MAX: usize = 256 << 10;

/// Flags for opening a file.
pub mod open {
    /// To read.
    pub const READ: u32 = 1;
    /// To write.
    pub const WRITE: u32 = 2;
    /// It is made if it isn't there.
    pub const CREATE: u32 = 8;
    /// It is made, and must not be there.
    pub const EXCLUSIVE: u32 = 0x20;
}

/// Kinds of answers of a status.
pub mod status {
    /// It was done.
    pub const OK: u32 = 0;
    /// End of file or listing.
    pub const EOF: u32 = 1;
    /// It isn't there.
    pub const NO_SUCH_FILE: u32 = 2;
    /// It may not be done.
    pub const PERMISSION_DENIED: u32 = 3;
    /// The other side can't read what we sent.
    pub const BAD_MESSAGE: u32 = 5;
    /// It can't do that.
    pub const UNSUPPORTED: u32 = 8;
}

/// Facts of a file, as far as they are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attrs {
    /// Bytes.
    pub size: Option<u64>,
    /// Owner and group.
    pub owner: Option<(u32, u32)>,
    /// Type and permission bits.
    pub mode: Option<u32>,
    /// Last access and last modification, in seconds.
    pub times: Option<(u32, u32)>,
}

const TYPE: u32 = 0o170_000;

impl Attrs {
    fn is(&self, kind: u32) -> bool {
        self.mode.is_some_and(|mode| mode & TYPE == kind)
    }

    /// True for a directory.
    pub fn is_dir(&self) -> bool {
        self.is(0o040_000)
    }

    /// True for a file.
    pub fn is_file(&self) -> bool {
        self.is(0o100_000)
    }

    /// True for a symlink.
    pub fn is_link(&self) -> bool {
        self.is(0o120_000)
    }
}

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name, or a whole path.
    pub name: Bytes,
    /// Its attributes.
    pub attrs: Attrs,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// How it went, and in which words.
    Status(u32, String),
    /// Handle of an open file.
    Handle(Bytes),
    /// Content.
    Data(Bytes),
    /// Names.
    Names(Vec<Name>),
    /// Facts.
    Attrs(Attrs),
    /// Reply of an extension.
    Extended(Bytes),
}

/// A frame that isn't one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedFrame;

/// The server's greeting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Names of extensions and what is said of each.
    pub extensions: Vec<(String, String)>,
}

impl Hello {
    /// True when it has the extension in this version.
    pub fn has(&self, name: &str, version: &str) -> bool {
        self.extensions.iter().any(|(own, data)| own == name && data == version)
    }
}

impl Hello {
    /// True for a server that handles requests in order, as OpenSSH's does: others may set a time before bytes arrive that were sent
    /// earlier, and which change it.
    pub fn is_in_order(&self) -> bool {
        self.has("fsync@openssh.com", "1")
    }

    /// True for a server that several sessions on one connection stop for good, whatever the client: ProFTPD's `mod_sftp`, which
    /// reports its versions.
    pub fn takes_one_session(&self) -> bool {
        self.extensions.iter().any(|(name, _)| name == "versions")
    }
}

/// Reads the server's greeting where it ends the bytes at hand, behind whatever a login shell printed; `None` as long as it isn't there.
pub fn hello(bytes: &[u8]) -> Option<Hello> {
    (0..bytes.len().saturating_sub(8)).find_map(|at| hello_at(&bytes[at..]))
}

fn hello_at(bytes: &[u8]) -> Option<Hello> {
    let mut rest = Bytes::copy_from_slice(bytes.get(..9)?);
    let (len, kind, version) = (rest.get_u32() as usize, rest.get_u8(), rest.get_u32());
    if kind != 2 || version < VERSION || bytes.len() != len.checked_add(4)? {
        return None;
    }
    let mut rest = Bytes::copy_from_slice(&bytes[9..]);
    let mut extensions = Vec::new();
    while !rest.is_empty() {
        let (name, value) = (string(&mut rest).ok()?, string(&mut rest).ok()?);
        extensions.push((text(&name), text(&value)));
    }
    Some(Hello { extensions })
}

/// How a frame begins that is whole once `length` more bytes came: its length, if it can be one.
///
/// Errors: it can't be.
pub fn length(head: [u8; 4]) -> Result<usize, MalformedFrame> {
    let length = u32::from_be_bytes(head) as usize;
    if (5..=FRAME_MAX).contains(&length) { Ok(length) } else { Err(MalformedFrame) }
}

/// Reads an answer, without the length before it, and which request it is to.
///
/// Errors: it isn't one.
pub fn reply(mut frame: Bytes) -> Result<(u32, Reply), MalformedFrame> {
    let kind = frame.try_get_u8().map_err(|_| MalformedFrame)?;
    let id = frame.try_get_u32().map_err(|_| MalformedFrame)?;
    let rest = &mut frame;
    let reply = match kind {
        101 => {
            let code = rest.try_get_u32().map_err(|_| MalformedFrame)?;
            // Old servers leave the words out.
            let words = if rest.is_empty() { Bytes::new() } else { string(rest)? };
            Reply::Status(code, text(&words))
        }
        102 => Reply::Handle(string(rest)?),
        103 => Reply::Data(string(rest)?),
        104 => {
            let count = rest.try_get_u32().map_err(|_| MalformedFrame)?;
            let mut names = Vec::new();
            for _ in 0..count {
                let name = string(rest)?;
                string(rest)?;
                names.push(Name { name, attrs: attrs(rest)? });
            }
            Reply::Names(names)
        }
        105 => Reply::Attrs(attrs(rest)?),
        201 => Reply::Extended(rest.split_off(0)),
        _ => return Err(MalformedFrame),
    };
    Ok((id, reply))
}

fn string(rest: &mut Bytes) -> Result<Bytes, MalformedFrame> {
    let len = rest.try_get_u32().map_err(|_| MalformedFrame)? as usize;
    if len > rest.len() { Err(MalformedFrame) } else { Ok(rest.split_to(len)) }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().filter(|c| !c.is_control()).take(400).collect()
}

fn pair(rest: &mut Bytes) -> Result<(u32, u32), MalformedFrame> {
    Ok((rest.try_get_u32().map_err(|_| MalformedFrame)?, rest.try_get_u32().map_err(|_| MalformedFrame)?))
}

const SIZE: u32 = 1;
const OWNER: u32 = 2;
const MODE: u32 = 4;
const TIMES: u32 = 8;
const EXTENDED: u32 = 0x8000_0000;

fn attrs(rest: &mut Bytes) -> Result<Attrs, MalformedFrame> {
    let flags = rest.try_get_u32().map_err(|_| MalformedFrame)?;
    let mut attrs = Attrs::default();
    let has = |flag| flags & flag != 0;
    if has(SIZE) {
        attrs.size = Some(rest.try_get_u64().map_err(|_| MalformedFrame)?);
    }
    if has(OWNER) {
        attrs.owner = Some(pair(rest)?);
    }
    if has(MODE) {
        attrs.mode = Some(rest.try_get_u32().map_err(|_| MalformedFrame)?);
    }
    if has(TIMES) {
        attrs.times = Some(pair(rest)?);
    }
    if has(EXTENDED) {
        for _ in 0..rest.try_get_u32().map_err(|_| MalformedFrame)? {
            string(rest)?;
            string(rest)?;
        }
    }
    Ok(attrs)
}

/// The client's greeting.
pub fn init() -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u32(5);
    frame.put_u8(1);
    frame.put_u32(VERSION);
    frame.freeze()
}

/// A request. Paths are the server's: relative ones begin at the user's home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Opens a file.
    Open(&'a [u8], u32, Attrs),
    /// Gives an open file or directory back.
    Close(&'a [u8]),
    /// Reads some of it.
    Read(&'a [u8], u64, u32),
    /// Writes as many bytes as given, which follow the frame.
    Write(&'a [u8], u64, u32),
    /// Facts of a name, not of what it leads to.
    Lstat(&'a [u8]),
    /// Facts of what a name leads to.
    Stat(&'a [u8]),
    /// Facts of an open file.
    Fstat(&'a [u8]),
    /// Changes facts of what a name leads to.
    Setstat(&'a [u8], Attrs),
    /// Changes facts of an open file.
    Fsetstat(&'a [u8], Attrs),
    /// Opens a directory.
    Opendir(&'a [u8]),
    /// Some more names of it.
    Readdir(&'a [u8]),
    /// Removes a file.
    Remove(&'a [u8]),
    /// Makes a directory.
    Mkdir(&'a [u8]),
    /// Removes an empty directory.
    Rmdir(&'a [u8]),
    /// Renames, where nothing is there yet.
    Rename(&'a [u8], &'a [u8]),
    /// Where a symlink leads.
    Readlink(&'a [u8]),
    /// Makes a symlink: its name, then where it leads. OpenSSH, and with it everybody, reads the two the other way round than was
    /// once written.
    Symlink(&'a [u8], &'a [u8]),
    /// An extension that takes paths or handles.
    Extended(&'a str, &'a [&'a [u8]]),
    /// `lsetstat@openssh.com`: changes facts of a name, not of what it leads to.
    Lsetstat(&'a [u8], Attrs),
    /// `copy-data`: this many bytes (0: all) from an offset of an open file to an offset of another.
    CopyData(&'a [u8], u64, u64, &'a [u8], u64),
}

impl Request<'_> {
    /// Its frame, as request `id`; of a write what is before its bytes.
    pub fn frame(&self, id: u32) -> Bytes {
        let mut out = BytesMut::with_capacity(64);
        out.put_u32(0);
        let head = |out: &mut BytesMut, kind: u8| {
            out.put_u8(kind);
            out.put_u32(id);
        };
        let mut follow = 0;
        match self {
            Request::Open(path, flags, attrs) => {
                head(&mut out, 3);
                put(&mut out, path);
                out.put_u32(*flags);
                put_attrs(&mut out, attrs);
            }
            Request::Close(handle) => one(&mut out, head, 4, handle),
            Request::Read(handle, at, len) => {
                one(&mut out, head, 5, handle);
                out.put_u64(*at);
                out.put_u32(*len);
            }
            Request::Write(handle, at, len) => {
                one(&mut out, head, 6, handle);
                out.put_u64(*at);
                out.put_u32(*len);
                follow = *len;
            }
            Request::Lstat(path) => one(&mut out, head, 7, path),
            Request::Fstat(handle) => one(&mut out, head, 8, handle),
            Request::Setstat(path, attrs) => {
                one(&mut out, head, 9, path);
                put_attrs(&mut out, attrs);
            }
            Request::Fsetstat(handle, attrs) => {
                one(&mut out, head, 10, handle);
                put_attrs(&mut out, attrs);
            }
            Request::Opendir(path) => one(&mut out, head, 11, path),
            Request::Readdir(handle) => one(&mut out, head, 12, handle),
            Request::Remove(path) => one(&mut out, head, 13, path),
            Request::Mkdir(path) => {
                one(&mut out, head, 14, path);
                put_attrs(&mut out, &Attrs::default());
            }
            Request::Rmdir(path) => one(&mut out, head, 15, path),
            Request::Stat(path) => one(&mut out, head, 17, path),
            Request::Rename(from, to) => {
                one(&mut out, head, 18, from);
                put(&mut out, to);
            }
            Request::Readlink(path) => one(&mut out, head, 19, path),
            Request::Symlink(path, target) => {
                one(&mut out, head, 20, target);
                put(&mut out, path);
            }
            Request::Extended(name, paths) => {
                one(&mut out, head, 200, name.as_bytes());
                paths.iter().for_each(|path| put(&mut out, path));
            }
            Request::Lsetstat(path, attrs) => {
                one(&mut out, head, 200, b"lsetstat@openssh.com");
                put(&mut out, path);
                put_attrs(&mut out, attrs);
            }
            Request::CopyData(from, at, len, to, place) => {
                one(&mut out, head, 200, b"copy-data");
                put(&mut out, from);
                out.put_u64(*at);
                out.put_u64(*len);
                put(&mut out, to);
                out.put_u64(*place);
            }
        }
        let length = (out.len() - 4) as u32 + follow;
        out[..4].copy_from_slice(&length.to_be_bytes());
        out.freeze()
    }
}

fn one(out: &mut BytesMut, head: impl Fn(&mut BytesMut, u8), kind: u8, text: &[u8]) {
    head(out, kind);
    put(out, text);
}

fn put(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32(bytes.len() as u32);
    out.put_slice(bytes);
}

fn put_attrs(out: &mut BytesMut, attrs: &Attrs) {
    let flag = |has: bool, flag: u32| if has { flag } else { 0 };
    out.put_u32(
        flag(attrs.size.is_some(), SIZE)
            | flag(attrs.owner.is_some(), OWNER)
            | flag(attrs.mode.is_some(), MODE)
            | flag(attrs.times.is_some(), TIMES),
    );
    if let Some(size) = attrs.size {
        out.put_u64(size);
    }
    if let Some((a, b)) = attrs.owner {
        out.put_u32(a);
        out.put_u32(b);
    }
    if let Some(mode) = attrs.mode {
        out.put_u32(mode);
    }
    if let Some((a, b)) = attrs.times {
        out.put_u32(a);
        out.put_u32(b);
    }
}

/// `limits@openssh.com`: the longest read and the longest write that the server takes, in bytes; 0 where it doesn't say.
pub fn limits(mut answer: Bytes) -> Option<(u64, u64)> {
    let _packet = answer.try_get_u64().ok()?;
    Some((answer.try_get_u64().ok()?, answer.try_get_u64().ok()?))
}

/// `statvfs@openssh.com`: bytes in total, free, and available to this user.
pub fn space(mut answer: Bytes) -> Option<(u64, u64, u64)> {
    let mut next = || answer.try_get_u64().ok();
    let (_, unit, total, free, available) = (next()?, next()?, next()?, next()?, next()?);
    Some((total.checked_mul(unit)?, free.checked_mul(unit)?, available.checked_mul(unit)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn greeting(extensions: &[(&str, &str)]) -> Vec<u8> {
        let mut out = BytesMut::new();
        out.put_u32(0);
        out.put_u8(2);
        out.put_u32(3);
        for (name, value) in extensions {
            put(&mut out, name.as_bytes());
            put(&mut out, value.as_bytes());
        }
        let len = (out.len() - 4) as u32;
        out[..4].copy_from_slice(&len.to_be_bytes());
        out.to_vec()
    }

    #[test]
    fn the_greeting_is_found_behind_what_a_shell_prints() {
        let bytes = greeting(&[("posix-rename@openssh.com", "1"), ("copy-data", "1")]);
        for noise in ["", "Welcome to host!\nYou have mail.\n", "\0\0\0\u{5}"] {
            let all = [noise.as_bytes(), &bytes].concat();
            let found = hello(&all).unwrap();
            assert!(found.has("copy-data", "1") && !found.has("copy-data", "2"), "{noise:?}");
            assert_eq!(hello(&all[..all.len() - 1]), None);
        }
        assert_eq!(hello(&greeting(&[])), Some(Hello::default()));
        assert_eq!(hello(b"This account is currently not available.\n"), None);
    }

    #[test]
    fn requests_are_as_the_draft_has_them() {
        assert_eq!(Request::Lstat(b"/a").frame(7)[..], [0, 0, 0, 11, 7, 0, 0, 0, 7, 0, 0, 0, 2, b'/', b'a']);
        let write = Request::Write(b"h", 1, 5).frame(1);
        assert_eq!(u32::from_be_bytes(write[..4].try_into().unwrap()) as usize, write.len() - 4 + 5);
        let attrs = Attrs { size: None, owner: None, mode: Some(0o600), times: Some((1, 2)) };
        let open = Request::Open(b"f", open::WRITE | open::CREATE, attrs).frame(1);
        assert_eq!(open[9..], [0, 0, 0, 1, b'f', 0, 0, 0, 10, 0, 0, 0, 12, 0, 0, 1, 128, 0, 0, 0, 1, 0, 0, 0, 2]);
        // The link's name comes second.
        assert!(Request::Symlink(b"name", b"target").frame(1).ends_with(b"name"));
    }

    fn framed(kind: u8, id: u32, rest: &[u8]) -> Bytes {
        Bytes::from([&[kind][..], &id.to_be_bytes(), rest].concat())
    }

    #[test]
    fn answers_are_read() {
        assert_eq!(reply(framed(101, 9, &[0, 0, 0, 2])), Ok((9, Reply::Status(2, String::new()))));
        let words = [0, 0, 0, 4, 0, 0, 0, 3, b'n', 0x1b, b'o', 0, 0, 0, 0];
        assert_eq!(reply(framed(101, 9, &words)), Ok((9, Reply::Status(4, "no".into()))));
        let names = [0, 0, 0, 1, 0, 0, 0, 1, 0xFF, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0x81, 0xa4];
        let attrs = Attrs { mode: Some(0o100_644), ..Attrs::default() };
        assert_eq!(
            reply(framed(104, 1, &names)),
            Ok((1, Reply::Names(vec![Name { name: Bytes::from_static(&[0xFF]), attrs }])))
        );
        assert!(attrs.is_file() && !attrs.is_dir() && !attrs.is_link());
        for wrong in [framed(103, 1, &[0, 0, 0, 9, 1]), framed(104, 1, &[255; 8]), framed(77, 1, &[]), Bytes::new()] {
            assert_eq!(reply(wrong), Err(MalformedFrame));
        }
        assert_eq!(length([0, 0, 0, 4]), Err(MalformedFrame));
        assert_eq!(length([0, 4, 0, 0]), Ok(FRAME_MAX));
        assert_eq!(length(*b"Welc"), Err(MalformedFrame));
    }

    proptest! {
        #[test]
        fn garbage_is_an_answer_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 100_u8..106) {
            let _ = reply(Bytes::from(bytes.clone()));
            let _ = reply(framed(kind, 1, &bytes));
            let _ = reply(framed(201, 1, &bytes));
            let _ = hello(&bytes);
            let _ = (limits(Bytes::from(bytes.clone())), space(Bytes::from(bytes)));
        }

        #[test]
        fn what_is_set_comes_back(size in any::<Option<u64>>(), owner in any::<Option<(u32, u32)>>(),
                                  mode in any::<Option<u32>>(), times in any::<Option<(u32, u32)>>()) {
            let given = Attrs { size, owner, mode, times };
            let mut bytes = BytesMut::new();
            put_attrs(&mut bytes, &given);
            prop_assert_eq!(attrs(&mut bytes.freeze()), Ok(given));
        }
    }
}
