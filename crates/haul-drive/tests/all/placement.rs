//! Uploads into a folder that is trashed meanwhile, or that several writers create at once.

use crate::simulator::{PIECE, get, open, open_with, put};
use bytes::Bytes;
use futures::future::join_all;
use haul_core::{ErrorKind, Key};
use haul_store::{CopyBatch, CopyHow, CopyItem, LateFacts, Payload, SentPart, Store, WriteSpec};
use haul_testkit::{
    drivesim::{DriveSim, Fault, ROOT, Settings},
    tree::content,
};
use std::time::Duration;

pub fn moved(store: &dyn Store, from: &str, to: &str, how: CopyHow) -> CopyBatch {
    CopyBatch {
        from: store.caps().domain.as_ref().expect("a domain").place.clone(),
        items: vec![CopyItem {
            from: Key::new(from),
            want: None,
            size: 0,
            to: Key::new(to),
            spec: WriteSpec::default(),
            how,
        }],
        links: Default::default(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_file_counts_as_there_whose_folder_is_in_the_trash() {
    let sim = DriveSim::start(Settings::default());
    let (folder, other) = (sim.add_folder(ROOT, "d"), sim.add_folder(ROOT, "e"));
    sim.add_file(ROOT, "moves", b"m");
    let (store, second) = (open(&sim, ""), open(&sim, ""));
    put(&*store, "d/before", b"1").await.expect("written");
    put(&*second, "e/before", b"1").await.expect("written");
    sim.trash(&folder);
    // It is moved to where the name leads now, and what came before stays where somebody put it.
    put(&*store, "d/after", b"2").await.expect("written");
    assert_eq!(sim.tree(ROOT), ["d/", "d/after=2", "e/", "e/before=1", "moves=m"]);
    // A folder, and what is moved and copied by Google.
    sim.trash(&other);
    put(&*second, "e/in/here", b"3").await.expect_err("its folder was made in the trash");
    put(&*second, "e/in/here", b"3").await.expect("written");
    let new = sim.find(ROOT, "d").expect("there");
    sim.trash(&new);
    store.copy(moved(&*store, "moves", "d/moved", CopyHow::Rename), Default::default()).await.remove(0).expect("moved");
    let new = sim.find(ROOT, "d").expect("there");
    sim.trash(&new);
    store
        .copy(moved(&*store, "e/in/here", "d/copied", CopyHow::Copy), Default::default())
        .await
        .remove(0)
        .expect("copied");
    assert_eq!(sim.tree(ROOT), ["d/", "d/copied=3", "e/", "e/in/", "e/in/here=3"]);
    // One that got another name counts as gone too.
    let new = sim.find(ROOT, "d").expect("there");
    sim.rename(&new, "old");
    put(&*store, "d/last", b"4").await.expect("written");
    assert_eq!(sim.tree(ROOT), ["d/", "d/last=4", "e/", "e/in/", "e/in/here=3", "old/", "old/copied=3"]);
    // The folder that is the remote's root can't be made anew.
    let root = open_with(&sim, "", &[("root_folder_id", &folder)]);
    let error = put(&*root, "x", b"5").await.unwrap_err();
    assert_eq!(error.message(), "the folder is in the trash of Google Drive: take it out of there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shortcut_to_a_folder_is_a_folder() {
    let sim = DriveSim::start(Settings::default());
    let folder = sim.add_folder(ROOT, "real");
    sim.add_shortcut(ROOT, "short", &folder);
    let store = open(&sim, "");
    put(&*store, "short/f", b"1").await.expect("written");
    put(&*store, "short/f", b"2").await.expect("replaced");
    assert_eq!(get(&*store, "real/f").await, b"2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_goes_on_in_its_own_folder_only() {
    let sim = DriveSim::start(Settings::default());
    let folder = sim.add_folder(ROOT, "d");
    let bytes = content(4, PIECE as u64 + 1000);
    let spec = WriteSpec { size: Some(bytes.len() as u64), ..Default::default() };
    let (key, first) = (Key::new("d/f"), Payload::from(Bytes::copy_from_slice(&bytes[..PIECE])));
    let last = Payload::from(Bytes::copy_from_slice(&bytes[PIECE..]));
    let upload = open(&sim, "").write(&key, spec.clone()).await.expect("begun");
    let token = upload.token().await.expect("a session").expect("a token");
    let part = upload.part(0, 0, first.clone()).await.expect("sent");
    drop(upload);
    sim.trash(&folder);
    let store = open(&sim, "");
    let sent = vec![SentPart { part, offset: 0, crc64: 0 }];
    let error = store.resumable().unwrap().resume(&key, &token, sent, spec.clone()).await.err().expect("refused");
    assert_eq!((error.kind(), error.message()), (ErrorKind::Changed, "the folder is another now"));
    // Its folder goes while it is sent.
    let upload = store.write(&key, spec).await.expect("begun");
    let part = upload.part(0, 0, first).await.expect("sent");
    sim.trash(&sim.find(ROOT, "d").expect("made"));
    let parts = vec![part, upload.part(1, PIECE as u64, last).await.expect("sent")];
    upload.publish(parts, LateFacts::default()).await.expect("published");
    assert!(get(&*open(&sim, ""), "d/f").await == bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_come_together_share_the_question_for_their_folder() {
    let sim = DriveSim::start(Settings { latency: Duration::from_millis(20), ..Settings::default() });
    let store = open(&sim, "");
    put(&*store, "d/first", b"1").await.expect("written");
    sim.reset_counts();
    let names: Vec<_> = (0..40).map(|number| format!("d/{number}")).collect();
    let all = join_all(names.iter().map(|name| put(&*store, name, b"2"))).await;
    assert!(all.iter().all(Result::is_ok));
    let requests = sim.counts()["get"];
    assert!(requests <= 25, "{requests} questions for 40 files");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_who_make_one_folder_take_the_same() {
    for round in 0..20 {
        let sim = DriveSim::start(Settings::default());
        let stores: Vec<_> = (0..4).map(|_| open(&sim, "box")).collect();
        let names: Vec<_> = (0..4).map(|number| format!("a/b/{number}")).collect();
        let all = join_all(stores.iter().zip(&names).map(|(store, name)| put(&**store, name, b"x"))).await;
        all.into_iter().for_each(|done| done.expect("written"));
        let wanted = ["box/", "box/a/", "box/a/b/", "box/a/b/0=x", "box/a/b/1=x", "box/a/b/2=x", "box/a/b/3=x"];
        assert_eq!(sim.tree(ROOT), wanted, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_whose_answer_was_lost_is_finished() {
    let sim = DriveSim::start(Settings::default());
    sim.add_file(ROOT, "f", b"new");
    sim.add_file(ROOT, "g", b"old");
    let store = open(&sim, "");
    let version = store.stat(&Key::new("f")).await.expect("there").version;
    let batch = || {
        let mut batch = moved(&*store, "f", "g", CopyHow::Rename);
        batch.items[0].want = version.clone();
        batch
    };
    sim.spoil("update", 0, Fault::Lost);
    store.copy(batch(), Default::default()).await.remove(0).expect_err("lost");
    store.copy(batch(), Default::default()).await.remove(0).expect("moved");
    assert_eq!(sim.tree(ROOT), ["g=new"]);
    // All of it was done.
    store.copy(batch(), Default::default()).await.remove(0).expect("moved");
    let onto_itself = moved(&*store, "g", "g", CopyHow::Rename);
    let refused = store.copy(onto_itself, Default::default()).await.remove(0).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert_eq!(sim.tree(ROOT), ["g=new"]);
}
