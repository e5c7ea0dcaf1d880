//! Limits on a malicious near end, whatever it sends.

#![allow(clippy::disallowed_methods)] // Tests make their own files.

use super::*;
use crate::{
    compression::{Compression, Packing, pack},
    dial::{Call, Pipe},
    frame::{Marks, crossing},
    wire::{Incoming, Named, Wire},
};
use haul_core::{Algo, Key, Mtime, attributes::FileAttributes, delta::Chunking, keep::Keep};
use haul_store::{
    AttributesItem, Cleanup, CopyBatch, CopyHow, CopyItem, LateFacts, ListRequest, OpenRequest, SettleItem, SmallFile,
    WriteSpec,
};
use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt as _, path::PathBuf};
use tokio::{
    io::{AsyncWriteExt as _, duplex, split},
    time::timeout,
};

const SOON: Duration = Duration::from_secs(20);
const ALWAYS: Packing = Packing { when: Compression::Always, level: None, history: false };

const PACKED: Marks = Marks { packed: true, kept: false };

/// A far end in this process, and a near end's pipe to it that was greeted.
async fn far_end(settings: Settings, packing: Packing) -> (Pipe, Task<io::Result<()>>) {
    let (near, far) = duplex(1 << 16);
    let (from, to) = split(far);
    let serving = Task::spawn(serve(from, to, settings));
    let (input, output) = split(near);
    let pipe = Pipe { input: Box::new(input), output: Box::new(output), end: None };
    let (pipe, _) = Call::Pipes(pipe).greet(packing, SOON, None).await.unwrap();
    (pipe, serving)
}

async fn wire(settings: Settings) -> Arc<Wire> {
    let (pipe, serving) = far_end(settings, Packing::default()).await;
    tokio::spawn(serving);
    Wire::new(pipe, SOON, Packing::default(), "far".into())
}

async fn ask(wire: &Arc<Wire>, folder: FolderId, request: &Request) -> Result<Answer> {
    let mut exchange = wire.share(0).ask(&folder.into(), request)?;
    loop {
        match exchange.next().await? {
            // The facts before content.
            Incoming::Answer(Answer::Entry(_)) if matches!(request, Request::Read(..)) => exchange.goes_on(),
            Incoming::Answer(answer) if answer.is_last() => return Ok(answer),
            _ => {}
        }
    }
}

fn raw(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

async fn open(wire: &Arc<Wire>, path: &Path) -> FolderId {
    let folder = Folder { path: raw(path), links: Links::Keep, own_links: false };
    match ask(wire, 0, &Request::Open(folder)).await.unwrap() {
        Answer::Folder(id) => id,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_opened_along_with_what_is_asked_of_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("f"), "text").unwrap();
    let wire = wire(Settings::of_disk(None, false)).await;
    let named = |path: &Path| Named::along(7, Folder { path: raw(path), links: Links::Keep, own_links: false });
    let stat = Request::Stat(Key::new("f"));
    let answer_to = async |named: &Named| wire.share(0).ask(named, &stat)?.answer().await;
    let own = named(folder.path());
    assert!(own.is_new());
    assert!(matches!(answer_to(&own).await, Ok(Answer::Entry(entry)) if entry.size == 4));
    assert!(!own.is_new(), "it says no more of the folder");
    assert!(answer_to(&own).await.is_ok());
    assert!(answer_to(&named(folder.path())).await.is_ok(), "said once more, by a request that was on its way");
    let error = answer_to(&named(Path::new("/"))).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Invalid, "the near end has two folders of one number"));
}

/// All that is in a folder: modes, times and contents.
fn tree(folder: &Path) -> BTreeMap<PathBuf, (u32, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let facts = fs::symlink_metadata(&folder).unwrap();
        found.insert(folder.clone(), (facts.mode(), facts.mtime_nsec(), Vec::new()));
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let facts = fs::symlink_metadata(&path).unwrap();
            match facts.is_dir() {
                true => folders.push(path),
                false => {
                    let bytes = if facts.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
                    found.insert(path, (facts.mode(), facts.mtime_nsec(), bytes));
                }
            }
        }
    }
    found
}

fn carried(mode: u32) -> Arc<FileAttributes> {
    let time = Mtime(1_000_000_000_000_000_000);
    Arc::new(FileAttributes { mode, uid: 0, gid: 0, rdev: (0, 0), mtime: time, atime: time, xattrs: Vec::new() })
}

fn copy_item(how: CopyHow, spec: WriteSpec) -> CopyItem {
    CopyItem { from: Key::new("f"), want: None, size: 3, to: Key::new("copy"), spec, how }
}

fn batch(folder: &Path, item: CopyItem) -> Request {
    Request::Copy(CopyBatch { from: raw(folder).into(), items: vec![item], links: Default::default() })
}

fn attributes(folder: &Path, set: bool) -> Request {
    let item = AttributesItem {
        from: Key::new("f"),
        to: Key::new("f"),
        mtime: Some(Mtime(5)),
        meta: None,
        keep: Some(Arc::new(Keep { perms: true, ..Keep::default() })),
        carried: Some(carried(0o100_600)),
        new: false,
    };
    Request::Attributes { from: raw(folder), items: vec![item], set }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suffix_does_not_lead_out_of_the_root() {
    let outside = tempfile::tempdir().unwrap();
    let root = outside.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(outside.path().join("precious"), "precious").unwrap();
    fs::write(root.join("f"), "old").unwrap();
    let wire = wire(Settings::of_disk(Some(raw(&root)), false)).await;
    let folder = open(&wire, &root).await;
    let before = tree(outside.path());
    for suffix in ["/../../precious", "/../../pwned", "/x", "", "a\0b", "seventeen bytes !"] {
        let spec = |resumable| WriteSpec { partial_suffix: suffix.into(), resumable, ..WriteSpec::default() };
        let special = WriteSpec { carried: Some(carried(0o10_600)), ..spec(false) };
        for request in [
            Request::Begin(Key::new("x"), spec(false)),
            Request::Begin(Key::new("x"), spec(true)),
            Request::Put { key: Key::new("x"), spec: spec(false), bytes: b"new".to_vec().into() },
            Request::Put { key: Key::symlink("l"), spec: spec(false), bytes: b"new".to_vec().into() },
            Request::PutAll(vec![SmallFile { key: Key::new("x"), spec: spec(false), bytes: b"new".to_vec().into() }]),
            batch(&root, copy_item(CopyHow::Special, special)),
            batch(&root, copy_item(CopyHow::Link, spec(false))),
        ] {
            let error = match ask(&wire, folder, &request).await {
                Ok(Answer::Copied(mut answers)) => answers.remove(0).unwrap_err(),
                Ok(Answer::AllStored(mut answers)) => answers.remove(0).unwrap_err(),
                other => other.unwrap_err(),
            };
            let expected = "a partial file's suffix has 1 to 16 bytes, no / and no zero byte";
            assert_eq!((error.kind(), error.message()), (ErrorKind::Invalid, expected), "{request:?}");
        }
        assert_eq!(tree(outside.path()), before, "{suffix:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_write_is_open_once() {
    let folder = tempfile::tempdir().unwrap();
    let wire = wire(Settings::of_disk(None, false)).await;
    let id = open(&wire, folder.path()).await;
    let spec = WriteSpec { resumable: true, ..WriteSpec::default() };
    let ask = async |request: Request| ask(&wire, id, &request).await.unwrap();
    let Answer::Upload(upload) = ask(Request::Begin(Key::new("f"), spec.clone())).await else { panic!("a write") };
    let Answer::Token(Some(token)) = ask(Request::Token(upload)).await else { panic!("its token") };
    let open_files = || fs::read_dir("/proc/self/fd").unwrap().count();
    let (before, mut last) = (open_files(), upload);
    for _ in 0..200 {
        let resume = Request::Resume(Key::new("f"), token.clone(), Vec::new(), spec.clone());
        let Answer::Resumed(id, _) = ask(resume).await else { panic!("the same write") };
        last = id;
    }
    // Other tests open files meanwhile.
    assert!(open_files() < before + 100, "{} before, {} after", before, open_files());
    assert!(matches!(ask(Request::Abort(last)).await, Answer::Done));
}

/// A number for each verb: a new one must be thought of here.
fn number(request: &Request) -> usize {
    match request {
        Request::Open(_) => 0,
        Request::List(_) => 1,
        Request::Stat(_) => 2,
        Request::Read(..) => 3,
        Request::Put { .. } => 4,
        Request::Begin(..) => 5,
        Request::Resume(..) => 6,
        Request::Discard(..) => 7,
        Request::Token(_) => 8,
        Request::Part { .. } => 9,
        Request::ReadBack(..) => 10,
        Request::Publish(..) => 11,
        Request::Abort(_) => 12,
        Request::MakeDir(..) => 13,
        Request::Copy(_) => 14,
        Request::SetMeta(..) => 15,
        Request::Delete(_) => 16,
        Request::Carry(..) => 17,
        Request::Attributes { .. } => 18,
        Request::Settle(_) => 19,
        Request::Hash(..) => 20,
        Request::About => 21,
        Request::Cleanup(_) => 22,
        Request::Sync => 23,
        Request::Recipe(..) => 24,
        Request::Reuse(..) => 25,
        Request::Listen(_) => 26,
        Request::PutAll(_) => 27,
        Request::GetAll(_) => 28,
    }
}

const VERBS: usize = 29;

/// A hidden name that a process left which has ended.
fn dead_name() -> String {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    let (random, place) = (7_u32, haul_fs::process::place().unwrap());
    let check = random.wrapping_mul(0x9E37_79B1) ^ 0x6861_756C;
    format!(".haul-{random:08x}{check:08x}-{place:016x}{pid:08x}.f.partial")
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_changes_nothing_whatever_is_asked() {
    let all = tempfile::tempdir().unwrap();
    let (there, state) = (all.path().join("there"), all.path().join("state"));
    fs::create_dir_all(there.join("d")).unwrap();
    fs::create_dir(&state).unwrap();
    let dead = dead_name();
    for name in ["f", "d/g", &dead] {
        fs::write(there.join(name), "old").unwrap();
    }
    let kept = state.clone();
    let open_folder = move |path: &[u8], links: Links, own_links: bool| {
        let mut request = OpenRequest { path: path.to_vec(), links, own_links, ..Default::default() };
        request.net.state = Some(kept.clone());
        (haul_fs::KIND.open)(request)
    };
    let settings = |read_only| Settings { open: Arc::new(open_folder.clone()), root: None, read_only, listens: None };
    let (key, spec) = (Key::new("f"), WriteSpec::default());
    let token = dead.clone().into_bytes();
    let folder = Folder { path: raw(&there), links: Links::Keep, own_links: false };
    let settle = SettleItem { from: Key::new("f"), to: Key::new("h"), replace: spec.replace.clone(), keep: None };
    let cleanup = |dry_run| Cleanup { older_than: Duration::ZERO, dry_run, below: Key::new("") };
    let requests = vec![
        Request::Open(folder),
        Request::List(ListRequest { sweep: true, ..ListRequest::all() }),
        Request::Stat(key.clone()),
        Request::Read(key.clone(), None, None),
        Request::Put { key: key.clone(), spec: spec.clone(), bytes: b"new".to_vec().into() },
        Request::Begin(key.clone(), spec.clone()),
        Request::Begin(key.clone(), WriteSpec { inplace: true, ..spec.clone() }),
        Request::Resume(key.clone(), token.clone(), Vec::new(), spec.clone()),
        Request::Discard(key.clone(), token),
        Request::Token(1),
        Request::Part { upload: 1, index: 0, offset: 0, size: 0 },
        Request::ReadBack(1, 0..1),
        Request::Publish(1, Vec::new(), LateFacts::default()),
        Request::Abort(1),
        Request::MakeDir(Key::new("new/"), spec.clone()),
        batch(&there, copy_item(CopyHow::Copy, spec.clone())),
        batch(&there, copy_item(CopyHow::Rename, spec.clone())),
        Request::SetMeta(key.clone(), Some(Mtime(5)), None),
        Request::Delete(vec![(key.clone(), None)]),
        Request::Carry(vec![key.clone()], true),
        attributes(&there, false),
        attributes(&there, true),
        Request::Settle(vec![settle]),
        Request::Hash(key.clone(), None, vec![Algo::Sha256]),
        Request::About,
        Request::Cleanup(cleanup(true)),
        Request::Cleanup(cleanup(false)),
        Request::Sync,
        Request::Recipe(key.clone(), None, Chunking::Blocks(16 << 10)),
        Request::Reuse(1, haul_core::Version::new(b"v"), Vec::new()),
        Request::Listen(Ports { first: 0, last: 0 }),
        Request::PutAll(vec![SmallFile { key: Key::new("f"), spec: spec.clone(), bytes: b"new".to_vec().into() }]),
        Request::GetAll(vec![(Key::new("f"), None)]),
    ];
    let numbers: std::collections::BTreeSet<usize> = requests.iter().map(number).collect();
    assert!(numbers.into_iter().eq(0..VERBS), "one of each");
    let wire = wire(settings(true)).await;
    let folder = open(&wire, &there).await;
    let before = tree(all.path());
    for request in &requests {
        let answer = ask(&wire, folder, request).await;
        assert_eq!(tree(all.path()), before, "{request:?}: {answer:?}");
        if request.changes() {
            let error = answer.unwrap_err();
            let expected = "haul there was started with --read-only";
            assert_eq!((error.kind(), error.message()), (ErrorKind::Denied, expected), "{request:?}");
        }
    }
    // Of what a file holds it says the same as one that may write, which remembers it, and sweeps.
    let writing = self::wire(settings(false)).await;
    let other = open(&writing, &there).await;
    let recipe = Request::Recipe(key, None, Chunking::Blocks(16 << 10));
    let [read, kept] = [ask(&wire, folder, &recipe).await.unwrap(), ask(&writing, other, &recipe).await.unwrap()];
    assert_eq!(format!("{read:?}"), format!("{kept:?}"));
    assert!(state.join("pieces").exists());
    ask(&writing, other, &Request::List(ListRequest { sweep: true, ..ListRequest::all() })).await.unwrap();
    assert!(!there.join(&dead).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_listens_to_no_answer_is_no_longer_heard() {
    let here = tempfile::tempdir().unwrap();
    let (pipe, serving) = far_end(Settings::of_disk(None, false), ALWAYS).await;
    let Pipe { input, mut output, .. } = pipe;
    let folder = Folder { path: raw(here.path()), links: Links::Keep, own_links: false };
    let opened =
        message::frame(Kind::Request, 1, &FolderRequest { folder: 0, opens: None, request: Request::Open(folder) })
            .unwrap();
    opened.write(&mut output).await.unwrap();
    let keys: Vec<Key> = (0..9_000).map(|number| Key::new(format!("{number}"))).collect();
    // The first folder has the first number.
    let frame = message::frame(
        Kind::Request,
        2,
        &FolderRequest { folder: 1, opens: None, request: Request::Carry(keys, false) },
    )
    .unwrap();
    let packed = pack(&frame.body, 3).unwrap();
    let mut taken = 0;
    for id in 2..5_000 {
        let frame = Frame { id, ..frame.clone() };
        let write = async {
            frame.write_as(PACKED, &packed, &mut output).await?;
            output.flush().await
        };
        match timeout(Duration::from_secs(3), write).await {
            Ok(write) => write.unwrap(),
            Err(_) => break,
        }
        taken = id;
    }
    // Once parsed, they take less than the room for requests.
    assert!(taken < 4_000, "{taken} requests were taken in");
    // It ends with the near end all the same.
    drop((input, output));
    assert!(timeout(SOON, serving).await.unwrap().is_err());
}

/// Content that is compressed alone.
const DATA_PACKED: u8 = 0x83;

fn text() -> Vec<u8> {
    (0..).flat_map(|n: u32| format!("line {n} of a log\n").into_bytes()).take(1 << 20).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_near_end_that_knows_no_history_gets_frames_packed_by_themselves() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("f"), text()).unwrap();
    let (pipe, _serving) = far_end(Settings::of_disk(None, false), ALWAYS).await;
    let Pipe { mut input, mut output, .. } = pipe;
    let folder = Folder { path: raw(here.path()), links: Links::Keep, own_links: false };
    for (id, folder, request) in [(1, 0, Request::Open(folder)), (2, 1, Request::Read(Key::new("f"), None, None))] {
        message::frame(Kind::Request, id, &FolderRequest { folder, opens: None, request })
            .unwrap()
            .write(&mut output)
            .await
            .unwrap();
        output.flush().await.unwrap();
        while id == 1 && crossing(&mut input).await.0[4] & 0x7f != 2 {}
    }
    let mut came = Vec::new();
    while came.len() < text().len() {
        let (head, body) = crossing(&mut input).await;
        match head[4] {
            DATA_PACKED => came.extend_from_slice(&crate::compression::unpack(&body).unwrap()),
            code => assert_eq!(code & 0x7f, 2, "an answer"),
        }
    }
    assert_eq!(came, text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_near_end_has_only_so_many_things_open() {
    let here = tempfile::tempdir().unwrap();
    let wire = wire(Settings::of_disk(None, false)).await;
    let folder = Request::Open(Folder { path: raw(here.path()), links: Links::Keep, own_links: false });
    for _ in 0..FOLDERS {
        ask(&wire, 0, &folder).await.unwrap();
    }
    let error = ask(&wire, 0, &folder).await.unwrap_err();
    let expected = "the near end has 1024 folders open, and gets no more";
    assert_eq!((error.kind(), error.message()), (ErrorKind::Busy, expected));
    let keys = vec![(Key::new("x"), None); 10_001];
    let error = ask(&wire, 1, &Request::Delete(keys)).await.unwrap_err();
    let expected = "the near end asks for more than 10000 files at once";
    assert_eq!((error.kind(), error.message()), (ErrorKind::Invalid, expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_to_be_compressed_is_not_unpacked() {
    let (pipe, serving) = far_end(Settings::of_disk(None, false), Packing::default()).await;
    let mut output = pipe.output;
    let frame = Frame { kind: Kind::Data, id: 1, body: Bytes::from(vec![0; 16 << 20]) };
    // It may hang up before all is said.
    let _ = frame.write_as(PACKED, &pack(&frame.body, 3).unwrap(), &mut output).await;
    let _ = output.flush().await;
    let error = timeout(SOON, serving).await.unwrap().unwrap_err();
    assert!(error.to_string().starts_with("a frame is compressed, which was not agreed on"), "{error}");
}
