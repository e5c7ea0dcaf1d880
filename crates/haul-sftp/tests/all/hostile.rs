//! A server that is slow, silent, or lists without an end.

use bytes::Bytes;
use futures::StreamExt as _;
use haul_core::{Error, ErrorKind, Key, Listed};
use haul_store::{CopyBatch, CopyHow, CopyItem, LateFacts, ListRequest, OpenRequest, Payload, Store, Watch, WriteSpec};
use haul_testkit::peers;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Less than the slow server takes for a copy and for forcing bytes to the disk, more than it takes for anything else.
const PATIENCE: Duration = Duration::from_secs(2);

fn open(how: &str) -> Option<Arc<dyn Store>> {
    let hostile = peers::own("haul-hostile-sftp")?;
    let ssh = format!("{} {how}", hostile.display());
    let mut request = OpenRequest {
        remote: "far".into(),
        path: b"/folder".to_vec(),
        options: [("ssh".to_owned(), ssh)].into(),
        ..OpenRequest::default()
    };
    request.net.idle_timeout = PATIENCE;
    Some((haul_sftp::KIND.open)(request).expect("opened"))
}

async fn list(store: &Arc<dyn Store>) -> (usize, Vec<Error>) {
    let (mut entries, mut failed) = (0, Vec::new());
    let mut listing = store.list(ListRequest::all());
    while let Some(listed) = listing.next().await {
        match listed {
            Listed::Batch(batch) => entries += batch.len(),
            Listed::Failed { error, .. } => failed.push(error),
            Listed::Vanished(_) | Listed::End => {}
        }
    }
    (entries, failed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_inside_may_take_longer_than_a_server_may_be_silent() {
    let Some(store) = open("slow") else { return };
    let from = store.caps().domain.clone().expect("a domain").place;
    let spec = WriteSpec::default();
    let item =
        CopyItem { from: Key::new("f"), want: None, size: 200 << 20, to: Key::new("g"), spec, how: CopyHow::Copy };
    let began = Instant::now();
    let batch = CopyBatch { from, items: vec![item], links: Default::default() };
    let stored = store.copy(batch, Watch::default()).await.remove(0).expect("copied");
    assert!(stored.size == 200 << 20 && began.elapsed() > 3 * PAUSE, "{:?}", began.elapsed());
}

/// As long as one request of the copy.
const PAUSE: Duration = Duration::from_millis(320);

#[tokio::test(flavor = "multi_thread")]
async fn forcing_bytes_to_the_disk_may_take_long() {
    let Some(store) = open("slow") else { return };
    let spec = WriteSpec { size: Some(7), fsync: true, ..WriteSpec::default() };
    let upload = store.write(&Key::new("g"), spec).await.expect("begun");
    let part = upload.part(0, 0, Payload::from(Bytes::from_static(b"content"))).await.expect("written");
    upload.publish(vec![part], LateFacts::default()).await.map_err(|failed| failed.error).expect("published");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stays_silent_is_given_up() {
    let Some(store) = open("mute") else { return };
    let error = store.stat(&Key::new("f")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.message().ends_with("the server has been silent for 2 seconds"), "{error}");
}

/// Several questions about one directory are under way at once, and a server may work on them at once.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_names_may_come_behind_the_end() {
    let Some(store) = open("swapped") else { return };
    let (entries, failed) = list(&store).await;
    assert_eq!((entries, failed.len()), (2, 0), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_seen_is_not_removed_when_a_write_in_place_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let removed = folder.path().join("removed");
    let Some(store) = open(&format!("unseen={}", removed.display())) else { return };
    let spec = WriteSpec { size: Some(7), inplace: true, ..WriteSpec::default() };
    let upload = store.write(&Key::new("f"), spec).await.expect("begun");
    assert!(upload.part(0, 0, Payload::from(Bytes::from_static(b"content"))).await.is_err());
    upload.abort().await.expect("given up");
    assert!(!removed.exists(), "it may be the user's");
}

/// As OpenSSH lists a directory that its disk doesn't give, here the first that is listed at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_which_nothing_can_be_read_is_not_empty() {
    let Some(store) = open("unread") else { return };
    let (entries, failed) = list(&store).await;
    let expected = "the server could not read this directory: it lists not even the directory itself";
    assert_eq!((entries, failed.iter().map(Error::message).collect::<Vec<_>>()), (0, vec![expected]));
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_in_directories_have_an_end() {
    let Some(store) = open("deep") else { return };
    let (entries, failed) = list(&store).await;
    assert!(entries < 500, "{entries}");
    let expected = "its path is longer than 4096 bytes: the server lists directories without an end";
    assert_eq!(failed.iter().map(Error::message).collect::<Vec<_>>(), [expected]);
}
