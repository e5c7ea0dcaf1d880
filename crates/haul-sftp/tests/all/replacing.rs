//! Files that take the place of others: what others see meanwhile, and what a killed run leaves.

use crate::servers::open;
use bytes::Bytes;
use futures::StreamExt as _;
use haul_core::{Key, Listed};
use haul_store::{Cleanup, LateFacts, Links, ListRequest, Payload, SharedObjects, Store, WriteSpec};
use haul_testkit::sshd::{Setup, Sshd};
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::Arc,
    time::Duration,
};

async fn put(store: &Arc<dyn Store>, name: &str, bytes: &'static str) -> haul_core::Result<()> {
    let spec = WriteSpec { size: Some(bytes.len() as u64), ..WriteSpec::default() };
    let upload = store.write(&Key::new(name), spec).await?;
    let part = upload.part(0, 0, Payload::from(Bytes::from_static(bytes.as_bytes()))).await?;
    upload.publish(vec![part], LateFacts::default()).await?;
    Ok(())
}

/// The names that a listing shows, and those that it can't.
async fn list(store: &Arc<dyn Store>, sweep: bool) -> (Vec<String>, Vec<String>) {
    let (mut seen, mut lost) = (Vec::new(), Vec::new());
    let mut listing = store.list(ListRequest { sweep, ..ListRequest::all() });
    while let Some(listed) = listing.next().await {
        match listed {
            Listed::Batch(entries) => seen.extend(entries.iter().map(|entry| entry.key.to_string())),
            Listed::Failed { lost: range, error } => lost.push(format!("{}: {}", range.from, error.message())),
            Listed::Vanished(_) | Listed::End => {}
        }
    }
    (seen, lost)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_can_not_replace_never_loses_the_old_file() {
    let lines = vec!["Subsystem sftp internal-sftp -P posix-rename".to_owned()];
    let Some(server) = Sshd::start(&Setup { lines, ..Setup::default() }) else { return };
    let data = server.data();
    let store = open(&SharedObjects::default(), &data, &[("ssh", &server.command())], Links::Skip);
    let read = || fs::read_to_string(data.join("f")).unwrap();
    for text in ["first", "second", "third"] {
        put(&store, "f", text).await.unwrap();
        assert_eq!((read().as_str(), names(&data)), (text, vec!["f".to_owned()]));
    }
    // Killed between the two renames: it is neither shown as absent, nor lost.
    let aside = data.join(aside());
    fs::rename(data.join("f"), &aside).unwrap();
    let message = "an interrupted run has put it aside: copy to this folder again, or clean it up (haul cleanup)";
    assert_eq!(list(&store, false).await, (vec![], vec![format!("f: {message}")]));
    assert!(aside.exists(), "a listing that may change nothing changes nothing");
    assert_eq!(list(&store, true).await, (vec!["f".to_owned()], vec![]));
    assert_eq!((read().as_str(), names(&data)), ("third", vec!["f".to_owned()]));
    // Killed after them: what was put aside is in nobody's way.
    fs::write(&aside, "older").unwrap();
    assert_eq!(list(&store, false).await, (vec!["f".to_owned()], vec![]));
    put(&store, "f", "fourth").await.unwrap();
    assert_eq!((read().as_str(), names(&data)), ("fourth", vec!["f".to_owned()]));
    fs::write(&aside, "older").unwrap();
    assert_eq!(list(&store, true).await, (vec!["f".to_owned()], vec![]));
    assert_eq!((read().as_str(), names(&data)), ("fourth", vec!["f".to_owned()]));
    // A new file that comes first gets the name, and the old one goes.
    fs::rename(data.join("f"), &aside).unwrap();
    put(&store, "f", "fifth").await.unwrap();
    list(&store, true).await;
    assert_eq!((read().as_str(), names(&data)), ("fifth", vec!["f".to_owned()]));
    // A cleanup removes no file's last copy.
    fs::rename(data.join("f"), &aside).unwrap();
    let cleanup = |dry_run| Cleanup { older_than: Duration::ZERO, dry_run, below: Key::new("") };
    store.admin().unwrap().cleanup(cleanup(true)).await.unwrap();
    assert!(aside.exists());
    store.admin().unwrap().cleanup(cleanup(false)).await.unwrap();
    assert_eq!((read().as_str(), names(&data)), ("fifth", vec!["f".to_owned()]));
}

/// The name under which `f` is put aside: were it another, what an earlier version left would not be found again.
fn aside() -> String {
    let digits = b"f".iter().fold(0x811C_9DC5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    format!(".haul-{digits:08x}{:08x}.f.old", digits.wrapping_mul(0x9E37_79B1) ^ 0x6861_756C)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_replaces_a_file_that_others_may_not_read_is_closed_while_it_comes() {
    let Some(server) = Sshd::start(&Setup::default()) else { return };
    let data = server.data();
    let store = open(&SharedObjects::default(), &data, &[("ssh", &server.command())], Links::Skip);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for (name, bits) in [("closed", Some(0o600)), ("group", Some(0o640)), ("open", Some(0o644)), ("new", None)] {
        let path = data.join(name);
        if let Some(bits) = bits {
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(bits)).unwrap();
        }
        let upload = store.write(&Key::new(name), WriteSpec::default()).await.unwrap();
        let part = upload.part(0, 0, Payload::from(Bytes::from_static(b"new"))).await.unwrap();
        let hidden = names(&data).into_iter().find(|name| name.starts_with(".haul-")).unwrap();
        let is_closed = mode(&data.join(hidden)) & 0o044 == 0;
        assert_eq!(is_closed, bits.is_some_and(|bits| bits != 0o644), "{name}");
        upload.publish(vec![part], LateFacts::default()).await.map_err(|failed| failed.error).unwrap();
        assert!(bits.is_none_or(|bits| mode(&path) == bits), "{name}");
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
    assert_eq!(names(&data), ["closed", "group", "new", "open"]);
}
