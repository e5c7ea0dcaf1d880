//! Listings in ranges, through the S3 store against cloudsim: many shapes of buckets, faults, new keys that show late. Every key
//! once and in order, whatever happens, and no more than 10 % more requests than pages.

use futures::StreamExt;
use haul::ListOptions;
use haul_core::{
    Entry, ErrorKind, Key, Kind, Listed, MissedRange, Retry,
    filter::Filter,
    part::{KeyRange, Part},
};
use haul_mem::MemStore;
use haul_store::{Links, Meters, OpenRequest, Store, layers::LayerSettings};
use haul_testkit::{
    cloudsim::{Cloudsim, ObjectSpec},
    faults::{Fault, Faulty, Op},
    servers::{ACCESS_KEY, SECRET_KEY},
};
use std::{collections::BTreeSet, sync::Arc};

fn open(cloud: &Cloudsim, path: &str, options: &[(&str, &str)]) -> Arc<dyn Store> {
    let endpoint = cloud.endpoint();
    let given = [
        ("provider", "Other"),
        ("endpoint", &endpoint),
        ("access_key_id", ACCESS_KEY),
        ("secret_access_key", SECRET_KEY),
    ];
    let options = given.iter().chain(options).map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let meters = Arc::new(Meters::default());
    let request = OpenRequest {
        remote: "s".into(),
        path: path.into(),
        options,
        meters: meters.clone(),
        links: Links::Skip,
        ..OpenRequest::default()
    };
    let store = (haul_s3::KIND.open)(request).unwrap();
    haul_store::layers::stack(store, &LayerSettings::default(), &meters)
}

async fn listed(store: &Arc<dyn Store>, options: ListOptions) -> (Vec<Entry>, Vec<MissedRange>, bool) {
    let (mut entries, mut lost, mut ended) = (Vec::new(), Vec::new(), false);
    let mut steps = haul::list(store, &Arc::new(Filter::default()), options);
    while let Some(step) = steps.next().await {
        assert!(!ended, "nothing comes after the end");
        match step {
            Listed::Batch(batch) => entries.extend(batch),
            Listed::Failed { lost: range, error } => {
                eprintln!("{range:?}: {error}");
                lost.push(range)
            }
            Listed::Vanished(_) => {}
            Listed::End => ended = true,
        }
    }
    (entries, lost, ended)
}

async fn keys(store: &Arc<dyn Store>) -> Vec<Vec<u8>> {
    let (entries, lost, ended) = listed(store, ListOptions::default()).await;
    assert!(ended && lost.is_empty(), "{lost:?}");
    entries.iter().map(|entry| entry.key.as_bytes().to_vec()).collect()
}

/// Keys of many shapes; 2,500 each.
fn shapes() -> Vec<(&'static str, BTreeSet<Vec<u8>>)> {
    let n = || 0..2_500u64;
    let hash = |n: u64| n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    vec![
        ("hashes", n().map(|n| format!("{:02x}/{:016x}", hash(n) >> 56, hash(n)).into_bytes()).collect()),
        ("one folder", n().map(|n| format!("logs/2024/{n}.gz").into_bytes()).collect()),
        ("deep", n().map(|n| format!("a/{}/b/{}/c/{}/{n}", n % 3, n % 5, n % 7).into_bytes()).collect()),
        ("long and alike", n().map(|n| format!("{}{:x}", "same/".repeat(60), hash(n)).into_bytes()).collect()),
        ("empty parts", n().map(|n| format!("d//x{}/{n}", "/".repeat((n % 4) as usize)).into_bytes()).collect()),
        (
            "no UTF-8",
            n().map(|n| [&hash(n).to_be_bytes()[..], n.to_string().as_bytes()].concat())
                .map(|k| k.into_iter().filter(|b| *b > 32).collect())
                .collect(),
        ),
        ("other scripts", n().map(|n| format!("{}/é{n}", ["日本", "ü", "z"][(n % 3) as usize]).into_bytes()).collect()),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_once_of_every_shape_with_faults_too() {
    for (name, wanted) in shapes() {
        for fault in [None, Some("error500=0.05,reset=0.05")] {
            let cloud = Cloudsim::with(&[("bucket", "b"), ("page", "10"), ("latency", "1ms")]);
            for key in &wanted {
                cloud.make("b", key, &ObjectSpec::default());
            }
            let store = open(&cloud, "b", &[("list_chunk", "10")]);
            if let Some(fault) = fault {
                cloud.set(None, &[("fault", fault)]).unwrap();
            }
            cloud.reset();
            let keys = keys(&store).await;
            assert!(keys.iter().eq(wanted.iter()), "{name} {fault:?}: {} keys of {}", keys.len(), wanted.len());
            let requests = cloud.report().of("ListObjectsV2");
            let pages = wanted.len() as u64 / 10;
            let most = if fault.is_some() { pages * 125 / 100 } else { pages * 110 / 100 };
            assert!(requests <= most, "{name} {fault:?}: {requests} requests for {pages} pages");
            if fault.is_none() && name == "hashes" {
                assert!(cloud.report().peak_in_flight > 1, "nothing was read at once");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn computed_buckets_whole_and_frugal() {
    for shape in ["flat", "tree", "dvc"] {
        for (count, most) in [(100_000u64, 110), (10_000, 10), (1_000, 1), (999, 1), (0, 1)] {
            let bucket = format!("b:keys={count},shape={shape},size=1");
            let cloud = Cloudsim::with(&[("bucket", &bucket)]);
            let wanted = cloud.keys("b").len();
            let keys = keys(&open(&cloud, "b", &[])).await;
            assert!(
                keys.len() as u64 == count && keys.windows(2).all(|pair| pair[0] < pair[1]),
                "{shape} {count}: {wanted}"
            );
            let requests = cloud.report().of("ListObjectsV2");
            assert!(requests <= most, "{shape} {count}: {requests} requests");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_level_of_a_large_folder_and_prefixes() {
    let cloud = Cloudsim::with(&[("bucket", "b"), ("page", "10")]);
    let mut wanted = BTreeSet::new();
    for n in 0..1_500u32 {
        let (file, below) = (format!("p/f{n:05}"), format!("p/d{n:05}/x/y"));
        cloud.make("b", file.as_bytes(), &ObjectSpec::default());
        cloud.make("b", below.as_bytes(), &ObjectSpec::default());
        wanted.extend([format!("f{n:05}"), format!("d{n:05}/")]);
    }
    let store = open(&cloud, "b/p", &[("list_chunk", "10")]);
    let options = ListOptions { max_depth: Some(1), dirs: true, ..ListOptions::default() };
    let (entries, lost, ended) = listed(&store, options).await;
    assert!(ended && lost.is_empty());
    assert!(entries.iter().map(|e| e.key.to_string()).eq(wanted.iter().cloned()));
    assert!(entries.iter().all(|e| (e.kind == Kind::Dir) == e.key.is_dir()));
    let requests = cloud.report().of("ListObjectsV2");
    // Each cut costs one, and how many pay depends on who is quicker: 310 to 340 were counted.
    assert!(requests <= 400, "{requests} requests for 300 pages");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_shows_late_disturbs_nothing() {
    let cloud = Cloudsim::with(&[("bucket", "b:keys=30000,shape=dvc,size=1"), ("list-delay", "3600s")]);
    let store = open(&cloud, "b", &[]);
    for n in 0..50 {
        let upload = store.write(&Key::new(format!("files/md5/{n:02x}/new")), Default::default()).await.unwrap();
        upload.publish(Vec::new(), Default::default()).await.unwrap();
    }
    assert_eq!(keys(&store).await.len(), 30_000);
}

/// What can't be read is lost, nothing else; and only what was seen proves anything.
#[tokio::test]
async fn a_range_that_fails_is_lost_alone() {
    let whole: Arc<dyn Store> = Arc::new(MemStore::new().with_caps(|caps| caps.page = Some(5)));
    let names: Vec<String> = (0..2_000).map(|n| format!("{n:06}")).collect();
    for name in &names {
        let upload = whole.write(&Key::new(name), Default::default()).await.unwrap();
        upload.publish(Vec::new(), Default::default()).await.unwrap();
    }
    for nth in [1, 2, 30, 60, 200] {
        let broken = Faulty::new(whole.clone()).on(Op::List, nth, Fault::Fail(ErrorKind::Io, Retry::Never));
        let (entries, lost, ended) = listed(&(Arc::new(broken) as Arc<dyn Store>), ListOptions::default()).await;
        assert_eq!(lost.len(), 1, "{nth}");
        let seen: Vec<String> = entries.iter().map(|e| e.key.to_string()).collect();
        let rest: Vec<String> = names.iter().filter(|name| !lost[0].holds(&Key::new(name))).cloned().collect();
        assert_eq!(seen, rest, "{nth}");
        assert_eq!(ended, lost[0].to.is_some(), "{nth}");
    }
}

/// A listing of a missing bucket loses the whole range, wherever it begins, so that such a destination counts as empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_is_not_there_is_not_there_for_any_part() {
    let cloud = Cloudsim::with(&[]);
    let store = open(&cloud, "missing", &[]);
    for (after, through) in [(None, Some("k")), (Some("k"), Some("m")), (Some("m"), None)] {
        let range = KeyRange { after: after.map(Key::new), through: through.map(Key::new) };
        let options = ListOptions { part: Part::Range(range), ..ListOptions::default() };
        let (entries, lost, _) = listed(&store, options).await;
        assert!(entries.is_empty() && lost.len() == 1 && lost[0].from.is_root(), "{lost:?}");
    }
}
