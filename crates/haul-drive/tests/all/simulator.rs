//! The contract on the simulator of the test kit, which rclone has passed; and what only this service does.

use crate::placement::moved;
use bytes::Bytes;
use futures::StreamExt;
use haul_core::{Entry, ErrorKind, Key, Listed, Mtime};
use haul_store::{
    Cleanup, CopyBatch, CopyHow, CopyItem, LateFacts, ListRequest, OpenRequest, Payload, SentPart, Store, WriteSpec,
};
use haul_testkit::{
    conformance::{self, Breaks},
    drivesim::{DriveSim, Fault, ROOT, Settings},
    tree::content,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

pub const PIECE: usize = 256 << 10;

pub fn open_with(sim: &DriveSim, path: &str, more: &[(&str, &str)]) -> Arc<dyn Store> {
    let (token, endpoint) = (sim.token(), sim.endpoint());
    let token_url = format!("{endpoint}/token");
    let base = [
        ("token", &*token),
        ("client_id", "x"),
        ("client_secret", "y"),
        ("token_url", &token_url),
        ("endpoint", &endpoint),
        ("chunk_size", "256Ki"),
        ("upload_cutoff", "256Ki"),
    ];
    let options = base.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let request = OpenRequest { remote: "g".into(), path: path.into(), options, ..OpenRequest::default() };
    (haul_drive::KIND.open)(request).expect("opened")
}

pub fn open(sim: &DriveSim, path: &str) -> Arc<dyn Store> {
    open_with(sim, path, &[])
}

pub async fn listed(store: &dyn Store) -> Vec<String> {
    let (mut told, mut listing) = (Vec::new(), store.list(ListRequest::all()));
    while let Some(listed) = listing.next().await {
        match listed {
            Listed::Batch(batch) => told.extend(batch.iter().map(|entry| entry.key.to_string())),
            Listed::Failed { lost, error } => told.push(format!("{}: {:?}", lost.from, error.kind())),
            Listed::Vanished(_) => {}
            Listed::End => told.push("end".into()),
        }
    }
    told
}

pub async fn put(store: &dyn Store, name: &str, bytes: &[u8]) -> haul_core::Result<()> {
    let spec = WriteSpec { size: Some(bytes.len() as u64), ..Default::default() };
    let upload = store.write(&Key::new(name), spec).await?;
    let part = upload.part(0, 0, Payload::from(Bytes::copy_from_slice(bytes))).await?;
    upload.publish(vec![part], LateFacts::default()).await?;
    Ok(())
}

pub async fn get(store: &dyn Store, name: &str) -> Vec<u8> {
    conformance::collect(store.read(&Key::new(name), None, None).await.expect("there")).await.expect("bytes")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_is_kept() {
    let sim = DriveSim::start(Settings { hole: Some(3), ..Settings::default() });
    let number = AtomicUsize::new(0);
    let root = || async {
        let store = open(&sim, &format!("root {}/in/here", number.fetch_add(1, Ordering::Relaxed)));
        store.make_dir(&Key::new(""), &Default::default()).await.expect("made");
        store
    };
    let kept = "the end of a file is kept until it is published: who goes on sends it again";
    let summary = conformance::run_except(root, &[("a_write_that_ended_is_gone", Breaks::Always, kept)]).await;
    println!("{summary}");
    let known = [
        "a_file_and_a_folder_of_one_name",
        "parts_arrive_in_any_order",
        "a_resumed_write_publishes_the_whole",
        "what_was_sent_is_read_back",
        "it_hashes_what_it_holds",
        "conditions_hold",
        "metadata_is_kept",
        "a_write_that_ended_is_gone",
    ];
    let surprises: Vec<_> = summary.skipped.iter().filter(|(name, _)| !known.contains(name)).collect();
    assert!(surprises.is_empty(), "skipped too: {surprises:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_folders_share_few_requests_and_none_is_lost() {
    let sim = DriveSim::start(Settings { hole: Some(4), ..Settings::default() });
    for a in 0..20 {
        let outer = sim.add_folder(ROOT, &format!("a{a:02}"));
        for b in 0..25 {
            let inner = sim.add_folder(&outer, &format!("b{b:02}"));
            sim.add_file(&inner, "f", b"x");
            sim.add_file(&inner, "g", b"y");
        }
    }
    sim.set(|settings| settings.hole = None);
    let store = open(&sim, "");
    let keys = listed(&*store).await;
    assert_eq!((keys.len(), keys.last().map(String::as_str)), (20 + 500 + 1000 + 1, Some("end")));
    let lists = sim.counts()["list"];
    assert!(lists <= 25, "{lists} requests for 521 folders");
    // Some queries find nothing, and yet nothing is missing.
    sim.set(|settings| settings.hole = Some(2));
    assert!(listed(&*store).await == keys);
    // An incomplete search proves no absence.
    sim.set(|settings| (settings.hole, settings.incomplete) = (None, true));
    assert_eq!(listed(&*store).await, [": Io"]);
    // Neither do pages that fail: the missing range is reported. A page that no caller waits for would be requested again.
    sim.set(|settings| settings.incomplete = false);
    (0..40).for_each(|_| sim.spoil("list", 3, Fault::Refused(500, "internalError")));
    let entries = listed(&*store).await;
    let failed = entries.iter().any(|line| line.ends_with(": Io"));
    assert!(failed && entries.len() < keys.len(), "{failed}, {} of {} lines", entries.len(), keys.len());
}

/// Also those of folders whose turn comes later, each with fewer folders than a query takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_queries_are_under_way() {
    let sim = DriveSim::start(Settings::default());
    for a in 0..40 {
        let outer = sim.add_folder(ROOT, &format!("a{a:02}"));
        (0..25).for_each(|b| drop(sim.add_file(&sim.add_folder(&outer, &format!("b{b:02}")), "f", b"x")));
    }
    sim.set(|settings| settings.latency = Duration::from_millis(30));
    assert_eq!(listed(&*open(&sim, "")).await.len(), 40 + 1000 + 1000 + 1);
    let (lists, at_once) = (sim.counts()["list"], sim.lists_at_once());
    assert!(at_once >= 4, "{at_once} at once");
    assert!(lists <= 30, "{lists} requests for 1041 folders");
}

/// What looks ahead ends with the listing that it is for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_that_is_given_up_asks_for_nothing_more() {
    let sim = DriveSim::start(Settings { latency: Duration::from_millis(20), ..Settings::default() });
    for a in 0..60 {
        let outer = sim.add_folder(ROOT, &format!("a{a:02}"));
        (0..60).for_each(|b| drop(sim.add_file(&sim.add_folder(&outer, &format!("b{b:02}")), "f", b"x")));
    }
    let store = open(&sim, "");
    let mut listing = store.list(ListRequest::all());
    let lists = || sim.counts()["list"];
    while !matches!(listing.next().await, Some(Listed::Batch(batch)) if batch.iter().any(|entry| !entry.is_dir())) {}
    drop(listing);
    let before = lists();
    // Waits long enough for further queries to show.
    for _ in 0..10 {
        store.stat(&Key::new("a00/b00/f")).await.expect("there");
    }
    let looked = lists() - before;
    assert!(before < 30, "3,600 folders are asked for by more than 60 queries; it was given up after {before}");
    assert!(looked <= 10 + 8, "{looked} more queries, of which 8 were under way and the others are the ten for a name");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_drive_allows_and_others_do_not() {
    let sim = DriveSim::start(Settings::default());
    let folder = sim.add_folder(ROOT, "d");
    let file = sim.add_file(&folder, "f", b"text");
    for bytes in [b"one", b"two"] {
        sim.add_file(ROOT, "twice", bytes);
    }
    sim.add_document(ROOT, "doc");
    sim.add_shortcut(ROOT, "short", &file);
    sim.add_shortcut(ROOT, "there", &folder);
    sim.add_shortcut(&folder, "up", &folder);
    sim.add_shortcut(ROOT, "nowhere", "gone");
    let store = open(&sim, "");
    let wanted = ["d/", "d/f", "doc.docx", "nowhere: NotFound", "short", "there/", "there/f", "twice: Invalid", "end"];
    assert_eq!(listed(&*store).await, wanted);
    assert_eq!(get(&*store, "short").await, b"text");
    // Nothing is deleted or replaced under a name that two have.
    assert_eq!(store.delete(vec![(Key::new("twice"), None)]).await[0].as_ref().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(put(&*store, "twice", b"three").await.unwrap_err().kind(), ErrorKind::Invalid);
    // A shortcut goes, and not what it leads to.
    for name in ["short", "there/"] {
        store.delete(vec![(Key::new(name), None)]).await.remove(0).expect("deleted");
    }
    assert_eq!(get(&*store, "d/f").await, b"text");
    assert_eq!(sim.held().1, 2, "in the trash");
    let bad = sim.add_file(ROOT, "bad", b"virus");
    sim.suspect(&bad);
    assert_eq!(store.read(&Key::new("bad"), None, None).await.unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(get(&*open_with(&sim, "", &[("acknowledge_abuse", "true")]), "bad").await, b"virus");
    let drive = sim.add_drive("Lab");
    let shared = open_with(&sim, "in", &[("team_drive", &drive), ("use_trash", "false")]);
    put(&*shared, "x/y", b"z").await.expect("written");
    assert_eq!(listed(&*shared).await, ["x/", "x/y", "end"]);
    let trashed = sim.held().1;
    shared.delete(vec![(Key::new("x/y"), None)]).await.remove(0).expect("deleted");
    assert_eq!(sim.held().1, trashed, "it is gone for good");
    // A search may not show yet what has come into a folder.
    shared.delete(vec![(Key::new("x/"), None)]).await.remove(0).expect("deleted");
    assert_eq!(sim.held().1, trashed + 1, "a folder goes into the trash, whatever is deleted otherwise");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_makes_no_second_file_and_tokens_are_renewed() {
    let sim = DriveSim::start(Settings::default());
    let store = open(&sim, "");
    sim.spoil("upload.create", 0, Fault::Lost);
    let upload = store.write(&Key::new("d/f"), WriteSpec::default()).await.expect("begun");
    let part = upload.part(0, 0, Payload::from(Bytes::from_static(b"once"))).await.expect("held");
    let failed = upload.publish(vec![part.clone()], LateFacts::default()).await.expect_err("lost");
    failed.upload.publish(vec![part], LateFacts::default()).await.expect("it was done");
    assert_eq!(listed(&*store).await, ["d/", "d/f", "end"]);
    sim.forget_tokens();
    assert_eq!(get(&*store, "d/f").await, b"once");
    assert_eq!(sim.counts()["token"], 1);
    sim.spoil("upload.replace", 0, Fault::Refused(403, "userRateLimitExceeded"));
    assert_eq!(put(&*store, "d/f", b"more").await.unwrap_err().kind(), ErrorKind::Busy);
    put(&*store, "d/f", b"more").await.expect("replaced");
    assert_eq!(get(&*store, "d/f").await, b"more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_goes_on_where_the_service_is() {
    let sim = DriveSim::start(Settings::default());
    let store = open(&sim, "");
    let bytes = content(4, 3 * PIECE as u64 + 1000);
    let spec = WriteSpec { size: Some(bytes.len() as u64), ..Default::default() };
    let key = Key::new("f");
    let upload = store.write(&key, spec.clone()).await.expect("begun");
    let token = upload.token().await.expect("a session").expect("a token");
    let part = |index: usize| {
        let chunk = &bytes[index * PIECE..bytes.len().min((index + 1) * PIECE)];
        (index as u64, (index * PIECE) as u64, Payload::from(Bytes::copy_from_slice(chunk)))
    };
    let mut sent = Vec::new();
    for index in 0..2 {
        let (index, offset, payload) = part(index);
        sent.push(SentPart { part: upload.part(index, offset, payload).await.expect("sent"), offset, crc64: 0 });
    }
    drop(upload);
    let (upload, parts) =
        store.resumable().unwrap().resume(&key, &token, sent.clone(), spec.clone()).await.expect("found");
    assert_eq!(parts.len(), 2);
    let (index, offset, payload) = part(2);
    // Its answer is lost: it isn't sent again.
    sim.spoil("upload.piece", 0, Fault::Lost);
    assert!(upload.part(index, offset, payload.clone()).await.is_err());
    let third = upload.part(index, offset, payload).await.expect("it was there");
    let (index, offset, payload) = part(3);
    let last = upload.part(index, offset, payload).await.expect("kept");
    assert_eq!(listed(&*store).await, ["end"], "nothing shows");
    upload.publish([parts, vec![third, last]].concat(), LateFacts::default()).await.expect("published");
    assert!(get(&*store, "f").await == bytes);
    assert_eq!(sim.uploaded(), bytes.len() as u64, "nothing was sent twice");
    sim.forget_sessions();
    let error = store.resumable().unwrap().resume(&key, &token, sent, spec).await.err().expect("gone");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

/// It is there already, under the name that was free when it began.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_file_whose_last_answer_was_lost_is_not_taken_for_anothers() {
    let sim = DriveSim::start(Settings::default());
    let store = open(&sim, "");
    let bytes = content(6, PIECE as u64 + 1000);
    let spec = WriteSpec { size: Some(bytes.len() as u64), ..Default::default() };
    let upload = store.write(&Key::new("f"), spec).await.expect("begun");
    let mut parts = Vec::new();
    for (index, chunk) in bytes.chunks(PIECE).enumerate() {
        let payload = Payload::from(Bytes::copy_from_slice(chunk));
        parts.push(upload.part(index as u64, (index * PIECE) as u64, payload).await.expect("sent"));
    }
    sim.spoil("upload.piece", 0, Fault::Lost);
    let failed = upload.publish(parts.clone(), LateFacts::default()).await.expect_err("lost");
    failed.upload.publish(parts, LateFacts::default()).await.expect("it was done");
    assert!(get(&*store, "f").await == bytes);
    assert_eq!(sim.uploaded(), bytes.len() as u64, "nothing was sent twice");
    assert_eq!(listed(&*store).await, ["f", "end"]);
}

async fn entry(store: &dyn Store, name: &str) -> Option<Entry> {
    let mut listing = store.list(ListRequest::all());
    while let Some(listed) = listing.next().await {
        if let Listed::Batch(batch) = listed
            && let Some(found) = batch.into_iter().find(|entry| entry.key == Key::new(name))
        {
            return Some(found);
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_are_files_whose_size_is_known_once_they_are_made() {
    let sim = DriveSim::start(Settings::default());
    sim.link_here();
    const PDF: &str = "application/pdf";
    let doc = sim.add_document_of(ROOT, "plan", &[("text/plain", b"plain"), (PDF, b"printed")]);
    let exports = [("export_formats", "docx,pdf")];
    let store = open_with(&sim, "", &exports);
    let listed = entry(&*store, "plan.pdf").await.expect("shown");
    assert!(!listed.sized && listed.size == 0 && listed.mtime.is_some());
    assert_eq!(sim.counts().get("export"), None, "nothing is made to be listed");
    let key = Key::new("plan.pdf");
    let known = store.stat(&key).await.expect("there");
    assert!(known.sized && known.size == 7 && known.version == listed.version);
    let whole = store.read(&key, listed.version.as_ref(), None).await.expect("read");
    assert_eq!(whole.entry.size, 7);
    assert_eq!(conformance::collect(whole).await.expect("bytes"), b"printed");
    assert_eq!(sim.counts()["export"], 1, "what was made to be measured is what is read");
    let part = store.read(&key, listed.version.as_ref(), Some(2..5)).await.expect("read");
    assert_eq!(conformance::collect(part).await.expect("bytes"), b"int");
    // More than Google exports at once comes by the document's own link.
    sim.set(|settings| settings.export_limit = 6);
    sim.edit(&doc, PDF, b"printed anew");
    let changed = store.read(&key, listed.version.as_ref(), None).await.unwrap_err();
    assert_eq!(changed.kind(), ErrorKind::Changed);
    assert_eq!(get(&*store, "plan.pdf").await, b"printed anew");
    assert_eq!(sim.counts()["exportContent"], 1);
    // A document stays one, and no file takes its place.
    assert_eq!(put(&*store, "plan.pdf", b"x").await.unwrap_err().kind(), ErrorKind::Exists);
    let rename = |to: &str| CopyBatch {
        from: store.caps().domain.as_ref().expect("a domain").place.clone(),
        items: vec![CopyItem {
            from: key.clone(),
            want: None,
            size: 0,
            to: Key::new(to),
            spec: WriteSpec::default(),
            how: CopyHow::Rename,
        }],
        links: Default::default(),
    };
    let refused = store.copy(rename("other.docx"), Default::default()).await.remove(0).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    let mut copy = rename("copied.pdf");
    copy.items[0].how = CopyHow::Copy;
    store.copy(copy, Default::default()).await.remove(0).expect("copied");
    store.delete(vec![(Key::new("copied.pdf"), None)]).await.remove(0).expect("deleted");
    let trashed = sim.held().1;
    store.copy(rename("d/other.pdf"), Default::default()).await.remove(0).expect("moved");
    assert_eq!(get(&*store, "d/other.pdf").await, b"printed anew");
    assert!(sim.held().1 == trashed && entry(&*store, "plan.pdf").await.is_none());
    assert!(entry(&*open_with(&sim, "", &[("skip_gdocs", "true")]), "d/other.pdf").await.is_none());
    store.delete(vec![(Key::new("d/other.pdf"), None)]).await.remove(0).expect("deleted");
    assert_eq!(sim.held().1, trashed + 1, "in the trash");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starred_and_trashed_files_are_listed_alone() {
    let sim = DriveSim::start(Settings::default());
    let folder = sim.add_folder(ROOT, "d");
    let (kept, gone) = (sim.add_file(&folder, "kept", b"k"), sim.add_file(&folder, "gone", b"g"));
    sim.add_file(ROOT, "plain", b"p");
    sim.star(&kept);
    sim.star(&folder);
    sim.trash(&gone);
    let starred = open_with(&sim, "", &[("starred_only", "true")]);
    assert_eq!(listed(&*starred).await, ["d/", "d/kept", "kept", "end"]);
    assert_eq!(get(&*starred, "kept").await, b"k");
    let trash = open_with(&sim, "", &[("trashed_only", "true")]);
    assert_eq!(listed(&*trash).await, ["d/", "d/gone", "end"]);
    assert_eq!(get(&*trash, "d/gone").await, b"g");
    assert_eq!(put(&*trash, "x", b"x").await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(trash.delete(vec![(Key::new("d/"), None)]).await.remove(0).is_err(), "not a folder with what is kept");
    // Nothing is removed for good, and no time is changed.
    let for_good = open_with(&sim, "", &[("trashed_only", "true"), ("use_trash", "false")]);
    for store in [&trash, &for_good] {
        let error = store.delete(vec![(Key::new("d/gone"), None)]).await.remove(0).unwrap_err();
        assert_eq!(error.message(), "with trashed_only nothing is written: it shows what is in the trash");
        assert_eq!(
            store.set_meta(&Key::new("d/gone"), Some(Mtime(0)), None).await.unwrap_err().kind(),
            ErrorKind::Unsupported
        );
    }
    assert_eq!(sim.held().1, 1);
    let store = open(&sim, "");
    let admin = store.admin().expect("it has a trash");
    // Who looks for unfinished uploads empties no trash.
    let what = Cleanup { older_than: Duration::ZERO, dry_run: false, below: Key::new("") };
    assert_eq!(admin.cleanup(what).await.unwrap_err().kind(), ErrorKind::Unsupported);
    for dry_run in [true, false] {
        let found = admin.empty_trash(dry_run).await.expect("looked");
        assert_eq!(found, [Key::new("gone")]);
        assert_eq!(sim.held().1, usize::from(dry_run));
    }
    assert_eq!(listed(&*store).await, ["d/", "d/kept", "plain", "end"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_file_costs_one_question_and_one_upload() {
    let sim = DriveSim::start(Settings::default());
    let store = open(&sim, "");
    put(&*store, "d/first", b"1").await.expect("written");
    sim.reset_counts();
    for name in ["second", "third"] {
        put(&*store, &format!("d/{name}"), b"2").await.expect("written");
    }
    // And one for the folder, once it is there: files that come together share it.
    assert_eq!(sim.counts(), [("get", 2), ("list", 2), ("upload.create", 2)].into());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_new_in_a_shared_drive_is_found_wherever_it_is_seen_from() {
    let sim = DriveSim::start(Settings { late: true, ..Settings::default() });
    let drive = sim.add_drive("Lab");
    for name in ["a", "b"] {
        let inner = sim.add_folder(&sim.add_folder(&drive, name), "in");
        sim.add_file(&inner, "old", b"x");
        sim.add_file(&inner, "new", b"x");
    }
    let folder = sim.add_folder(ROOT, "d");
    sim.add_shortcut(&folder, "lab", &drive);
    sim.add_folder(&sim.add_folder(&folder, "e"), "f");
    let lab = ["a/", "a/in/", "a/in/new", "a/in/old", "b/", "b/in/", "b/in/new", "b/in/old"];
    let by_id = open_with(&sim, "", &[("root_folder_id", &drive)]);
    assert_eq!(listed(&*by_id).await, [&lab[..], &["end"]].concat());
    let below: Vec<_> = lab.iter().map(|name| format!("d/lab/{name}")).collect();
    let below = below.iter().map(String::as_str);
    let wanted: Vec<_> = ["d/", "d/e/", "d/e/f/", "d/lab/"].into_iter().chain(below).chain(["end"]).collect();
    assert_eq!(listed(&*open(&sim, "")).await, wanted);
}

/// Of folders that others share Google may tell a part, where it is asked for several at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_somebodys_folders_is_found_whole() {
    let sim = DriveSim::start(Settings { late: true, ..Settings::default() });
    let theirs = sim.add_folder(ROOT, "theirs");
    for name in ["a", "b"] {
        let inner = sim.add_folder(&sim.add_folder(&theirs, name), "in");
        ["old", "new"].iter().for_each(|file| drop(sim.add_file(&inner, file, b"x")));
    }
    sim.share(&theirs);
    sim.add_shortcut(ROOT, "link", &theirs);
    (0..3).for_each(|n| drop(sim.add_file(&sim.add_folder(ROOT, &format!("mine{n}")), "f", b"x")));
    let below = ["a/", "a/in/", "a/in/new", "a/in/old", "b/", "b/in/", "b/in/new", "b/in/old"];
    let by_id = open_with(&sim, "", &[("root_folder_id", &theirs)]);
    assert_eq!(listed(&*by_id).await, [&below[..], &["end"]].concat());
    let below: Vec<_> = below.iter().map(|name| format!("link/{name}")).collect();
    let mine = ["mine0/", "mine0/f", "mine1/", "mine1/f", "mine2/", "mine2/f", "end"];
    let wanted: Vec<_> = ["link/"].into_iter().chain(below.iter().map(String::as_str)).chain(mine).collect();
    assert_eq!(listed(&*open(&sim, "")).await, wanted);
}

/// The service would do it with what has these names otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_is_a_place_of_its_own() {
    let sim = DriveSim::start(Settings::default());
    let plain = open(&sim, "");
    for view in ["trashed_only", "shared_with_me", "starred_only"] {
        let store = open_with(&sim, "", &[(view, "true")]);
        let (one, other) = (plain.caps().domain.as_ref().unwrap(), store.caps().domain.as_ref().unwrap());
        assert!(plain.caps().renames_dirs && !store.caps().renames_dirs && one.name != other.name, "{view}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shortcut_to_what_is_in_the_trash_is_no_empty_folder() {
    let sim = DriveSim::start(Settings::default());
    let (folder, file) = (sim.add_folder(ROOT, "d"), sim.add_file(ROOT, "f", b"x"));
    sim.add_file(&folder, "in", b"x");
    sim.add_shortcut(ROOT, "dir", &folder);
    sim.add_shortcut(ROOT, "file", &file);
    sim.add_shortcut(ROOT, "nowhere", "gone");
    sim.trash(&folder);
    sim.trash(&file);
    let store = open(&sim, "");
    assert_eq!(listed(&*store).await, ["dir: Invalid", "file: Invalid", "nowhere: NotFound", "end"]);
    let error = store.stat(&Key::new("dir/")).await.unwrap_err();
    assert_eq!(error.message(), "what this shortcut leads to is in the trash");
    // As in rclone.
    let some =
        open_with(&sim, "", &[("skip_dangling_shortcuts", "true"), ("pacer_min_sleep", "1ms"), ("pacer_burst", "9")]);
    assert_eq!(listed(&*some).await, ["dir: Invalid", "file: Invalid", "end"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_came_wrong_are_never_taken_for_the_sources() {
    let sim = DriveSim::start(Settings::default());
    let store = open(&sim, "");
    put(&*store, "f", b"old").await.expect("written");
    let mtime = Mtime(1_600_000_000_000_000_000);
    sim.spoil("upload.replace", 0, Fault::Garbled);
    let spec = WriteSpec { size: Some(3), mtime: Some(mtime), ..Default::default() };
    let upload = store.write(&Key::new("f"), spec).await.expect("begun");
    let part = upload.part(0, 0, Payload::from(Bytes::from_static(b"new"))).await.expect("held");
    let error = upload.publish(vec![part], LateFacts::default()).await.unwrap_err().error;
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let there = store.stat(&Key::new("f")).await.expect("there");
    assert_eq!((there.size, there.mtime), (3, Some(Mtime(mtime.0 - 86_400_000_000_000))));
    // What is new doesn't stay at all.
    sim.spoil("upload.create", 0, Fault::Garbled);
    assert_eq!(put(&*store, "g", b"new").await.unwrap_err().kind(), ErrorKind::Corrupt);
    sim.spoil("copy", 0, Fault::Garbled);
    let copy = moved(&*store, "f", "g", CopyHow::Copy);
    let error = store.copy(copy, Default::default()).await.remove(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(listed(&*store).await, ["f", "end"]);
}
