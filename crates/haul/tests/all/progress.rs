//! Bytes are reported as they are sent, not when a file or part is complete.

use haul::{Cancel, Cx};
use haul_core::{
    Key,
    event::{Event, Sink},
    filter::Filter,
    job::{Job, Verb},
};
use haul_mem::MemStore;
use haul_s3::S3;
use haul_store::{
    LateFacts, Meters, OpenRequest, Payload, Store, WriteSpec,
    layers::{LayerSettings, stack},
};
use haul_testkit::{
    cloudsim::Cloudsim,
    folder::noise,
    servers::{ACCESS_KEY, SECRET_KEY},
};
use std::sync::{Arc, Mutex};

const MI: usize = 1 << 20;

#[derive(Default)]
struct Told(Mutex<Vec<i64>>);

impl Sink for Told {
    fn emit(&self, event: &Event) {
        if let Event::Moved { bytes, .. } = event {
            self.0.lock().unwrap().push(*bytes);
        }
    }
}

/// Bytes that are reported, event by event, for an upload of `size` bytes to a service with these settings.
async fn moved_bytes(size: usize, options: &[(&str, &str)], settings: &[(&str, &str)]) -> Vec<i64> {
    let cloud = Cloudsim::with(&[&[("bucket", "b")], settings].concat());
    let src = Arc::new(MemStore::new());
    let upload = src.write(&Key::new("f"), WriteSpec::default()).await.unwrap();
    let part = upload.part(0, 0, Payload::from(bytes::Bytes::from(noise(1, size)))).await.unwrap();
    upload.publish(vec![part], LateFacts::default()).await.unwrap();
    let endpoint = cloud.endpoint();
    let set = [
        ("provider", "Minio"),
        ("endpoint", &endpoint),
        ("access_key_id", ACCESS_KEY),
        ("secret_access_key", SECRET_KEY),
    ];
    let meters = Arc::new(Meters::default());
    let store = S3::open(OpenRequest {
        remote: "r".into(),
        path: "b".into(),
        options: set.iter().chain(options).map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        meters: meters.clone(),
        ..OpenRequest::default()
    });
    let reported = Arc::new(Told::default());
    let cx = Cx {
        src,
        dst: stack(Arc::new(store.unwrap()), &LayerSettings::default(), &meters),
        backup: None,
        compare_dest: vec![],
        copy_dest: vec![],
        filter: Arc::new(Filter::default()),
        sink: reported.clone(),
        meters,
        cancel: Cancel::default(),
        confirm: None,
        journal: None,
        known: haul::index::EarlierKnowledge::default(),
    };
    let report = haul::run(Job::new(Verb::Copy), cx).await;
    assert!(report.is_ok(), "{report:?}");
    let reported = reported.0.lock().unwrap().clone();
    assert_eq!(reported.iter().sum::<i64>(), size as i64, "{reported:?}");
    reported
}

#[tokio::test]
async fn an_upload_is_told_as_it_goes() {
    let parts = [("upload_cutoff", "5Mi"), ("chunk_size", "5Mi")];
    for options in [&[][..], &parts] {
        let bytes_reported = moved_bytes(12 * MI, options, &[]).await;
        assert!(
            bytes_reported.len() >= 48 && bytes_reported.iter().all(|bytes| (1..=256 << 10).contains(bytes)),
            "{bytes_reported:?}"
        );
    }
}

#[tokio::test]
async fn what_is_sent_again_is_told_once() {
    let parts = [("upload_cutoff", "5Mi"), ("chunk_size", "5Mi")];
    for options in [&[][..], &parts] {
        let bytes_reported = moved_bytes(12 * MI, options, &[("fault", "error500=0.4"), ("seed", "7")]).await;
        assert!(
            options.is_empty() || bytes_reported.iter().any(|bytes| *bytes < 0),
            "nothing was sent again: {bytes_reported:?}"
        );
    }
}
