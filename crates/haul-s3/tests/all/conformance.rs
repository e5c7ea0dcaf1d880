//! S3 keeps the contract, bare and through all layers, on servers of several makes.

use haul_store::{Links, OpenRequest, Store};
use haul_testkit::{
    amount::rounds,
    cloudsim::Cloudsim,
    conformance::{
        self,
        Breaks::{Always, AtTimes},
        KnownBreak, layered, skipped,
    },
    servers::{ACCESS_KEY, Make, SECRET_KEY, Server},
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

fn s3_store(endpoint: String, bucket: String, provider: &str, layers: bool) -> Arc<dyn Store> {
    let options = [
        ("provider", provider.to_owned()),
        ("endpoint", endpoint),
        ("access_key_id", ACCESS_KEY.to_owned()),
        ("secret_access_key", SECRET_KEY.to_owned()),
        ("force_path_style", "true".to_owned()),
    ];
    let request = OpenRequest {
        remote: "s3".to_owned(),
        path: bucket.into_bytes(),
        options: options.map(|(name, value)| (name.to_owned(), value)).into(),
        links: Links::Skip,
        ..OpenRequest::default()
    };
    let store = (haul_s3::KIND.open)(request).expect("opened");
    if layers { layered(store) } else { store }
}

/// The cases that a store without directories skips, and which has to be asked for bytes.
const FLAT: [&str; 5] = [
    "what_was_sent_is_read_back",
    "set_meta_changes_only_that",
    "a_full_folder_is_not_deleted",
    "folders_are_made_once",
    "it_hashes_what_it_holds",
];

/// As `provider` on a make, through the layers (`true`) and without, but for what that make is known to break; `more` are the cases
/// that it skips besides those of [`FLAT`].
async fn on_a_server(make: Make, provider: &str, layers: &[bool], more: &[&str], except: &[KnownBreak]) {
    let Some(server) = Server::shared(make) else { return };
    for layers in layers {
        let open = || async { s3_store(server.endpoint(), server.no_bucket("conformance"), provider, *layers) };
        let summary = conformance::run_except(open, except).await;
        let mut skips = skipped(&summary);
        let mut known: Vec<_> = [more, &FLAT].concat();
        known.extend(except.iter().map(|(name, ..)| *name));
        skips.sort_unstable();
        known.sort_unstable();
        assert_eq!(skips, known, "{}", make.name());
    }
}

/// They keep keys as the names of files, so they hide what is below a key and drop a leading slash.
const AS_FILES: [&str; 2] = ["a_file_and_a_folder_of_one_name", "a_leading_slash_comes_back"];

/// They give a leading slash back, and `Other` sends no conditions.
const NO_CONDITIONS: [&str; 2] = ["a_file_and_a_folder_of_one_name", "conditions_hold"];
const BOTH: [bool; 2] = [false, true];
/// Requests that come together make it answer 500 now and then: the layers try again.
const STUMBLES: [bool; 1] = [true];
/// What rclone's server and moto do alike.
const COPIES_WHAT_IS_THERE: KnownBreak =
    ("copies_answer_for_each", Always, "it doesn't look at x-amz-copy-source-if-match");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_on_minio() {
    on_a_server(Make::Minio, "Minio", &BOTH, &AS_FILES, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_on_versitygw() {
    let except = [(
        "strange_names_come_back",
        Always,
        "it drops empty, `.` and `..` parts, and lists U+FFFD for what XML can't hold",
    )];
    on_a_server(Make::Versity, "AWS", &BOTH, &AS_FILES, &except).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_on_moto() {
    let except = [
        ("strange_names_come_back", Always, "its router takes a line's end for that of the path"),
        ("only_parts_that_are_there_are_believed", Always, "its list of parts has no checksums"),
        COPIES_WHAT_IS_THERE,
    ];
    on_a_server(Make::Moto, "AWS", &STUMBLES, &[], &except).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_on_rclones_server() {
    let except = [
        COPIES_WHAT_IS_THERE,
        ("writers_of_one_key_dont_mix", AtTimes, "a name that two bring at once is listed twice"),
    ];
    on_a_server(Make::Rclone, "Other", &STUMBLES, &NO_CONDITIONS, &except).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_on_s3proxy() {
    let except = [
        ("strange_names_come_back", Always, "it drops empty, `.` and `..` parts"),
        ("what_is_missing_is_not_found", Always, "500 for what would be below a file"),
        ("a_write_that_ended_is_gone", Always, "an aborted upload takes parts"),
        ("several_send_parts_of_one_write", Always, "an upload that has ended takes parts"),
        ("a_write_given_up_later_leaves_nothing", Always, "half done uploads are listed"),
    ];
    // It takes a minute for one of them.
    let layers = &[true, false][..rounds(1, 2) as usize];
    on_a_server(Make::S3Proxy, "Other", layers, &NO_CONDITIONS, &except).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_on_seaweedfs() {
    let except = [
        ("strange_names_come_back", Always, "it drops empty parts, refuses `.` and `..`, and takes `\\` for `/`"),
        ("only_parts_that_are_there_are_believed", Always, "its list of parts has no checksums"),
    ];
    // Each bucket takes it a while, and each case has one of its own.
    on_a_server(Make::Seaweed, "SeaweedFS", &[true], &["a_leading_slash_comes_back"], &except).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_on_a_simulated_cloud() {
    for (provider, layers, etag) in [("AWS", false, "cheap"), ("Minio", true, "md5"), ("Other", true, "cheap")] {
        let server = Cloudsim::with(&[("page", "7"), ("latency", "lognormal:1ms,1"), ("etag", etag)]);
        let number = AtomicUsize::new(0);
        let make = || async {
            let bucket = format!("b{}", number.fetch_add(1, Ordering::Relaxed));
            s3_store(server.endpoint(), bucket, provider, layers)
        };
        let summary = conformance::run(make).await;
        let skips = skipped(&summary);
        // Most services know no conditional writes, so haul doesn't ask an unknown one for them.
        let conditions = usize::from(provider == "Other");
        assert_eq!(skips[..conditions], ["conditions_hold"][..conditions], "{provider}");
        assert_eq!(skips[conditions..], FLAT, "{provider}");
    }
}
