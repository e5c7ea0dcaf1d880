//! The contract on real servers, each with what it can't do and why.

use haul_core::Key;
use haul_store::{Links, OpenRequest, SharedObjects, Store};
use haul_testkit::{
    conformance::{
        self,
        Breaks::{Always, AtTimes},
        KnownBreak,
    },
    peers,
    proftpd::ProFtpd,
    servers::{Make, Server},
    sshd::{Setup, Sshd},
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

pub fn open(shared: &SharedObjects, path: &Path, options: &[(&str, &str)], links: Links) -> Arc<dyn Store> {
    let request = OpenRequest {
        remote: "far".into(),
        path: path.as_os_str().as_encoded_bytes().into(),
        options: options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        links,
        shared: shared.clone(),
        ..OpenRequest::default()
    };
    (haul_sftp::KIND.open)(request).expect("opened")
}

const SECONDS: &str = "it tells size and time in whole seconds alone: two files of one size within a second are one";

/// What SFTP can't do anywhere.
const EVERYWHERE: [KnownBreak; 5] = [
    ("a_stale_version_is_refused", AtTimes, SECONDS),
    ("replacing_gives_a_new_version", AtTimes, SECONDS),
    ("times_are_kept", Always, "its times begin in 1970"),
    ("set_meta_changes_only_that", Always, "its times begin in 1970"),
    ("metadata_is_kept", Always, "it knows mode, owner and times alone"),
];

/// What doesn't apply.
const SKIPPED: [&str; 5] = [
    "conditions_hold",
    "hashes_are_of_the_content",
    "it_hashes_what_it_holds",
    "a_leading_slash_comes_back",
    "a_file_and_a_folder_of_one_name",
];

async fn keeps_the_contract(command: &str, data: &Path, more: &[&str], except: &[KnownBreak]) {
    let (number, shared) = (AtomicUsize::new(0), SharedObjects::default());
    let root = || async {
        let path = data.join(format!("root {}/in/here", number.fetch_add(1, Ordering::Relaxed)));
        let store = open(&shared, &path, &[("ssh", command)], Links::Skip);
        store.make_dir(&Key::new(""), &Default::default()).await.expect("the root can be made");
        store
    };
    let except = [&EVERYWHERE, except].concat();
    let summary = conformance::run_except(root, &except).await;
    println!("{summary}");
    let skipped: Vec<&str> = summary.skipped.iter().map(|(name, _)| *name).collect();
    let known = |name: &&str| SKIPPED.contains(name) || more.contains(name) || except.iter().any(|(of, ..)| of == name);
    let surprises: Vec<_> = skipped.iter().filter(|name| !known(name)).collect();
    assert!(surprises.is_empty(), "skipped too: {surprises:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openssh_keeps_the_contract() {
    let Some(server) = Sshd::start(&Setup::default()) else { return };
    keeps_the_contract(&server.command(), &server.data(), &[], &[]).await;
    assert_eq!(server.logins(), 1, "{}", server.log());
}

/// Its library refuses what is longer than 34,000 bytes, knows neither limits nor lsetstat, and does reads and writes in any order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rclone_keeps_the_contract() {
    let Some(rclone) = peers::need("rclone") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    // Arguments after it, which ssh would take, are ignored.
    let command = format!(
        "sh -c \"exec '{}' serve sftp --stdio --vfs-cache-mode full '{}'\" rclone",
        rclone.display(),
        folder.path().display()
    );
    keeps_the_contract(&command, Path::new("/"), &["copies_stay_inside", "copies_answer_for_each"], &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proftpd_keeps_the_contract() {
    let Some(server) = ProFtpd::start() else { return };
    let denied = "it says permission denied of what would be below a file";
    let except = [("what_is_missing_is_not_found", Always, denied)];
    keeps_the_contract(&server.command(), &server.data(), &["copies_stay_inside", "copies_answer_for_each"], &except)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seaweedfs_keeps_the_contract() {
    let Some(server) = Server::shared(Make::Seaweed) else { return };
    let command = server.gateways.as_ref().expect("SFTP").ssh();
    let closed = "it keeps a file only when it is closed, with what came through one opening of it";
    let except = [
        ("strange_names_come_back", Always, "it takes names of text alone"),
        ("a_part_sent_again_replaces", Always, "it shortens no file"),
        ("a_resumed_write_publishes_the_whole", Always, closed),
        ("only_parts_that_are_there_are_believed", Always, closed),
        ("a_write_that_ended_is_gone", Always, closed),
        ("what_was_sent_is_read_back", Always, closed),
    ];
    keeps_the_contract(&command, Path::new("/"), &["copies_stay_inside", "copies_answer_for_each"], &except).await;
}
