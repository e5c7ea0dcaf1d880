//! Wire format of the messages, by version: this build's bytes match the file of its version, and the bytes in older files are still
//! readable. A test that fails here shows that an end of another build would not understand this one. Fields may be added, with a default
//! for ends that don't send them: then the old file stays and must be read, and the new bytes go into a file with a new name. All else is a
//! new version.

use crate::{
    compression::{Compression, Packing},
    frame::{Frame, Kind, Marks},
    handshake::{About, Hello, HelloResponse},
    listen_address::{Listening, Ports, Token},
    message::{self, Answer, Folder, FolderRequest, Request, WholeFile},
};
use haul_core::{
    Algo, Entry, Error, ErrorKind, Hashes, Key, Meta, Mtime, Retry, Version,
    attributes::{Attribute, Differs, FileAttributes, UnpreservedAttributes, UnpreservedReason, Xattr},
    delta::{Chunking, Cutter, Run},
    keep::Keep,
    listing::MissedRange,
    plan::Replace,
};
use haul_store::{
    AttributesItem, AttributesResult, Cleanup, CopyBatch, CopyHow, CopyItem, LateFacts, Links, ListRequest, Part,
    SentPart, SettleItem, SmallFile, SpaceUsage, StoredFacts, WriteSpec,
};
use serde::{Serialize, de::DeserializeOwned};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Messages of version 2.
const VERSION_2: &str = include_str!("golden/version-2.txt");

/// Its further messages, if it supports frames that are compressed with a history.
const HISTORY: &str = include_str!("golden/version-2-history.txt");

/// How ends meet that know of many small files with one request as well.
const BUNDLES: &str = include_str!("golden/version-2-bundles.txt");

/// And of blocks of 4 KiB.
const BLOCKS: &str = include_str!("golden/version-2-blocks.txt");

/// And of folders that are opened along with the first request.
const OPENS: &str = include_str!("golden/version-2-opens.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn meta() -> Option<Box<Meta>> {
    Some(Box::new(Meta::from([("mode".to_owned(), "644".to_owned())])))
}

fn hashes() -> Hashes {
    Hashes::default().with(Algo::Blake3, [3_u8; 32])
}

fn carried() -> Arc<FileAttributes> {
    let xattrs = vec![Xattr { name: b"user.\xff".to_vec(), value: b"\0v".to_vec() }];
    Arc::new(FileAttributes {
        mode: 0o100_640,
        uid: 1,
        gid: 2,
        rdev: (3, 4),
        mtime: Mtime(5),
        atime: Mtime(-6),
        xattrs,
    })
}

fn spec() -> WriteSpec {
    WriteSpec {
        size: Some(7),
        replace: Replace::Exactly(Version::new(b"v\xff")),
        mtime: Some(Mtime(1_600_000_000_123_456_789)),
        meta: meta(),
        hashes: hashes(),
        keep: Some(Arc::new(Keep { perms: true, owner: true, ..Keep::default() })),
        carried: Some(carried()),
        fsync: true,
        ..WriteSpec::default()
    }
}

fn part() -> Part {
    Part { index: 1, size: 8 << 20, tag: b"\x00tag".to_vec() }
}

fn requests() -> Vec<Request> {
    let (key, version) = (Key::new(b"d/\xff name"), Some(Version::new(b"v")));
    let after = Some(Key::new("d/a"));
    let list =
        ListRequest { prefix: b"d/".to_vec(), after, limit: Some(5), meta: true, sweep: true, ..ListRequest::all() };
    let copy = CopyItem {
        from: key.clone(),
        want: version.clone(),
        size: 9,
        to: Key::new("to"),
        spec: spec(),
        how: CopyHow::Rename,
    };
    let keep = Some(Arc::new(Keep::default()));
    let item = AttributesItem {
        from: key.clone(),
        to: key.clone(),
        mtime: Some(Mtime(5)),
        meta: meta(),
        keep: keep.clone(),
        carried: Some(carried()),
        new: true,
    };
    let settle = SettleItem { from: Key::new("a"), to: Key::new("b"), replace: Replace::Absent, keep };
    let late = LateFacts { mtime: Some(Mtime(1)), meta: meta(), hashes: hashes() };
    let sent = SentPart { part: part(), offset: 8 << 20, crc64: u64::MAX };
    let cleanup = Cleanup { older_than: Duration::from_millis(1500), dry_run: true, below: Key::new("d/") };
    vec![
        Request::Open(Folder { path: b"/srv/\xff".to_vec(), links: Links::Keep, own_links: true }),
        Request::List(list),
        Request::Stat(key.clone()),
        Request::Read(key.clone(), version.clone(), Some(1..u64::MAX)),
        Request::Put { key: key.clone(), spec: spec(), bytes: b"by\xfftes".to_vec().into() },
        Request::Begin(key.clone(), WriteSpec::default()),
        Request::Resume(key.clone(), b"token\xff".to_vec(), vec![sent], WriteSpec::default()),
        Request::Discard(key.clone(), b"token".to_vec()),
        Request::Token(3),
        Request::Part { upload: 3, index: 1, offset: 2, size: 4 },
        Request::ReadBack(3, 0..9),
        Request::Publish(3, vec![part()], late),
        Request::Abort(3),
        Request::MakeDir(Key::new("new/"), WriteSpec::default()),
        Request::Copy(CopyBatch { from: (*b"/from").into(), items: vec![copy], links: Default::default() }),
        Request::SetMeta(key.clone(), Some(Mtime(-1)), meta().map(|meta| *meta)),
        Request::Delete(vec![(key.clone(), version.clone()), (Key::new("x"), None)]),
        Request::Carry(vec![key.clone()], true),
        Request::Attributes { from: b"/from".to_vec(), items: vec![item], set: true },
        Request::Settle(vec![settle]),
        Request::Hash(key.clone(), version.clone(), vec![Algo::Md5, Algo::Sha256]),
        Request::About,
        Request::Cleanup(cleanup),
        Request::Sync,
        Request::Recipe(key, version, Chunking::Content(16 << 10)),
        Request::Reuse(3, Version::new(b"v"), vec![Run { index: 1, offset: 2, from: 3, size: 4 }]),
        Request::Listen(Ports { first: 50_000, last: 50_100 }),
        Request::PutAll(vec![SmallFile { key: Key::new("d/f"), spec: spec(), bytes: b"by\xfftes".to_vec().into() }]),
        Request::GetAll(vec![(Key::new("d/f"), Some(Version::new(b"v"))), (Key::new("x"), None)]),
    ]
}

fn answers() -> Vec<Answer> {
    let entry = Entry { mtime: Some(Mtime(7)), version: Some(Version::new(b"v")), ..Entry::file(Key::new(b"\xff"), 5) };
    let error =
        || Error::new(ErrorKind::NotFound, "read", "no such file").with_key(&Key::new("f")).with_retry(Retry::Backoff);
    let mut unpreserved = UnpreservedAttributes::default();
    unpreserved.add(Attribute::Owner, UnpreservedReason::Denied);
    let stored = StoredFacts { version: Some(Version::new(b"v")), size: 5, hashes: hashes(), unpreserved };
    let mut cutter = Cutter::new(Chunking::Blocks(16 << 10)).expect("a cut");
    cutter.update(&[1; 40_000]);
    let whole = haul_core::hash::hash_bytes(&[Algo::Blake3], &[1; 40_000]);
    let listening =
        Listening { address: [127, 0, 0, 1].into(), port: 50_000, fingerprint: vec![1; 32], token: Token(vec![2; 32]) };
    vec![
        Answer::Folder(7),
        Answer::AllStored(vec![Ok((stored.clone(), 9)), Err(error())]),
        Answer::Files(vec![
            Ok(WholeFile { entry: entry.clone(), bytes: b"by\xfftes".to_vec().into(), crc64: 9 }),
            Err(error()),
        ]),
        Answer::Batch(vec![entry.clone(), Entry::dir(Key::new("d/")), Entry::file(Key::symlink("l"), 3)]),
        Answer::Lost(MissedRange { from: Key::new("a/"), to: Some(Key::new("a0")) }, error()),
        Answer::Vanished(Key::new("gone")),
        Answer::End,
        Answer::Cut,
        Answer::Entry(entry),
        Answer::Sent(u64::MAX),
        Answer::Upload(3),
        Answer::Resumed(3, vec![part()]),
        Answer::Token(Some(b"token\xff".to_vec())),
        Answer::Part(part(), 9),
        Answer::Stored(stored.clone(), Some(9)),
        Answer::Flag(true),
        Answer::Progress(1, 2),
        Answer::Copied(vec![Ok(stored), Err(error())]),
        Answer::Deleted(vec![Ok(()), Err(error())]),
        Answer::Carried(vec![Ok((*carried()).clone())]),
        Answer::Attributed(vec![Ok(AttributesResult { differs: Differs::default(), unpreserved })]),
        Answer::Settled(vec![Ok(())]),
        Answer::Hashes(hashes()),
        Answer::Space(SpaceUsage { total: Some(3), used: None, free: Some(1) }),
        Answer::Unfinished(vec![(Key::new(".haul-x"), Some(Mtime(1)))], vec![error()]),
        Answer::Recipe(cutter.finish(Some(Version::new(b"v")), whole.get(Algo::Blake3).expect("hashed").to_vec())),
        Answer::Parts(vec![part()]),
        Answer::Listens(listening),
        Answer::Done,
        Answer::Failed(error()),
    ]
}

/// The variant's name.
fn name(message: &impl std::fmt::Debug) -> String {
    let text = format!("{message:?}");
    text.chars().take_while(char::is_ascii_alphanumeric).collect()
}

fn body(message: &impl Serialize) -> Vec<u8> {
    message::frame(Kind::Answer, 0, message).expect("a frame").body.to_vec()
}

/// How two ends meet that know so much that version 2 didn't begin with: frames that are compressed behind others, many small files with
/// one request, blocks of 4 KiB, folders that are opened along with a request.
fn meeting(more: usize) -> (Vec<u8>, Vec<u8>) {
    let [history, bundles, small_blocks, opens_along] = [1, 2, 3, 4].map(|number| number <= more);
    let packing = Packing { when: Compression::Slow, level: Some(3), history };
    let hello = Hello { oldest: 1, newest: 2, build: "1".into(), packing, joins: Some("door".into()) };
    let joins = Some("x".into());
    let about = About {
        rights: None,
        confined: true,
        packs: true,
        keeps: true,
        joins,
        listens: true,
        history,
        bundles,
        small_blocks,
        opens_along,
    };
    (body(&hello), body(&HelloResponse::Serves { version: 2, build: "1".into(), about }))
}

/// All that is said, by name.
fn current_messages() -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for request in requests() {
        let name = format!("request {}", name(&request));
        all.insert(name, body(&FolderRequest { folder: 7, opens: None, request }));
    }
    for answer in answers() {
        all.insert(format!("answer {}", name(&answer)), body(&answer));
    }
    let (hello, welcome) = meeting(0);
    all.insert("hello".into(), hello);
    all.insert("welcome".into(), welcome);
    all.insert("refusal".into(), body(&HelloResponse::Refuses("why".into())));
    all
}

/// Reads a message and says it again.
fn again<T: DeserializeOwned + Serialize>(body: &[u8]) -> Vec<u8> {
    let frame = Frame { kind: Kind::Answer, id: 0, body: body.to_vec().into() };
    self::body(&message::read::<T>(&frame).expect("it is read"))
}

fn lines(file: &str) -> BTreeMap<String, String> {
    let lines = file.lines().filter_map(|line| line.rsplit_once(' '));
    lines.map(|(name, bytes)| (name.to_owned(), bytes.to_owned())).collect()
}

#[test]
fn each_message_is_said_as_its_version_has_it() {
    let current: BTreeMap<String, String> =
        current_messages().into_iter().map(|(name, body)| (name, hex(&body))).collect();
    let kept = lines(VERSION_2);
    let all: String = current.iter().map(|(name, bytes)| format!("{name} {bytes}\n")).collect();
    assert!(current == kept, "src/golden/version-2.txt has other messages than are said now:\n{all}");
}

#[test]
fn ends_that_know_of_more_say_so() {
    let files = [("history", HISTORY), ("bundles", BUNDLES), ("blocks", BLOCKS), ("opens", OPENS)];
    let folder = Folder { path: b"/srv/\xff".to_vec(), links: Links::Keep, own_links: true };
    let along = FolderRequest { folder: 7, opens: Some(folder), request: Request::Stat(Key::new("a")) };
    for (more, (name, kept)) in (1..).zip(files) {
        let (hello, welcome) = meeting(more);
        let along = (more == 4).then(|| format!("request along {}\n", hex(&body(&along))));
        let current = format!("hello {}\nwelcome {}\n{}", hex(&hello), hex(&welcome), along.unwrap_or_default());
        assert!(current == kept, "src/golden/version-2-{name}.txt has other messages than are said now:\n{current}");
    }
}

#[test]
fn each_message_of_its_version_is_read() {
    for (name, bytes) in [VERSION_2, HISTORY, BUNDLES, BLOCKS, OPENS].into_iter().flat_map(lines) {
        let body: Vec<u8> =
            (0..bytes.len()).step_by(2).map(|at| u8::from_str_radix(&bytes[at..at + 2], 16).expect("hex")).collect();
        let read = match name.split(' ').next() {
            Some("request") => again::<FolderRequest<Request>>(&body),
            Some("answer") => again::<Answer>(&body),
            Some("hello") => again::<Hello>(&body),
            _ => again::<HelloResponse>(&body),
        };
        assert_eq!(hex(&read), bytes, "{name}");
    }
}

#[test]
fn each_frame_is_written_as_its_version_has_it() {
    let write_as = |frame: Frame, marks| {
        let mut pipe = Vec::new();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(frame.write_as(marks, &frame.body, &mut pipe)).expect("written");
        hex(&pipe)
    };
    let write = |frame| write_as(frame, Marks::default());
    let frame = |kind| Frame { kind, id: 0x0102_0304, body: vec![0xaa, 0xbb].into() };
    let marked = |marks| write_as(frame(Kind::Data), marks);
    for (kind, code) in [(Kind::Request, 1), (Kind::Answer, 2), (Kind::Data, 3), (Kind::Cancel, 5)] {
        assert_eq!(write(frame(kind)), format!("00000007{code:02x}01020304aabb"));
    }
    assert_eq!(write(Frame::taken(9, 1 << 20)), "0000000d04000000090000000000100000");
    assert_eq!(write(Frame::ALIVE), "000000050600000000");
    // And marked, for ends that agreed on it: compressed, kept for others, both.
    for (packed, kept, code) in [(true, false, 0x83), (false, true, 0x43), (true, true, 0xc3)] {
        assert_eq!(marked(Marks { packed, kept }), format!("00000007{code:02x}01020304aabb"));
    }
}
