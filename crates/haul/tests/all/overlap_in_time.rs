//! A job's stages overlap: the first file is at the destination while the source's listing still goes on.

use futures::{
    StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use haul::{Cancel, Cx};
use haul_core::{
    Entry, Key, Listed, Meta, Mtime, Result, Version,
    event::{Event, Sink},
    filter::Filter,
    job::{Job, Verb},
};
use haul_mem::MemStore;
use haul_store::{
    Admin, Caps, CopyBatch, Encrypted, Hashing, Inodes, Lanes, LateFacts, ListRequest, Meters, Payload, Read,
    Resumable, Store, StoredFacts, Upload, Watch, WriteSpec,
};
use std::{ops::Range, sync::Arc, time::Duration};
use tokio::sync::Notify;

/// A store whose listing stops after its first key until it is told to go on.
#[derive(Debug)]
struct Hesitant {
    inner: Arc<dyn Store>,
    go_on: Arc<Notify>,
}

impl Store for Hesitant {
    fn locator(&self) -> &str {
        self.inner.locator()
    }

    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        let (inner, go_on) = (self.inner.list(request), self.go_on.clone());
        let singly = inner.flat_map(|step| match step {
            Listed::Batch(entries) => stream::iter(entries).map(|e| Listed::Batch(vec![e])).boxed(),
            other => stream::iter([other]).boxed(),
        });
        let waits = singly.enumerate().then(move |(number, step)| {
            let go_on = go_on.clone();
            async move {
                // The join needs the second key to know that the first one is settled.
                if number == 2 {
                    go_on.notified().await;
                }
                step
            }
        });
        waits.boxed()
    }

    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>> {
        self.inner.stat(key)
    }

    fn read(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        self.inner.read(key, want, range)
    }

    fn write(&self, key: &Key, spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        self.inner.write(key, spec)
    }

    fn make_dir(&self, key: &Key, spec: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        self.inner.make_dir(key, spec)
    }

    fn copy(&self, batch: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        self.inner.copy(batch, watch)
    }

    fn set_meta(&self, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        self.inner.set_meta(key, mtime, meta)
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        self.inner.delete(keys)
    }

    fn lanes(&self) -> Option<&Arc<Lanes>> {
        self.inner.lanes()
    }

    fn resumable(&self) -> Option<&dyn Resumable> {
        self.inner.resumable()
    }

    fn inodes(&self) -> Option<&dyn Inodes> {
        self.inner.inodes()
    }

    fn hashing(&self) -> Option<&dyn Hashing> {
        self.inner.hashing()
    }

    fn admin(&self) -> Option<&dyn Admin> {
        self.inner.admin()
    }

    fn encrypted(&self) -> Option<&dyn Encrypted> {
        self.inner.encrypted()
    }
}

/// Lets the listing go on when the first file has arrived.
struct GoOnWhenDone(Arc<Notify>);

impl Sink for GoOnWhenDone {
    fn emit(&self, event: &Event) {
        if matches!(event, Event::Done { .. }) {
            self.0.notify_one();
        }
    }
}

#[tokio::test]
async fn the_first_file_arrives_before_the_listing_ends() {
    let src: Arc<dyn Store> = Arc::new(MemStore::new());
    for name in ["a", "b", "c", "d"] {
        let upload = src.write(&Key::new(name), WriteSpec::default()).await.unwrap();
        let part = upload.part(0, 0, Payload::from(bytes::Bytes::from_static(b"x"))).await.unwrap();
        upload.publish(vec![part], LateFacts::default()).await.unwrap();
    }
    let go_on = Arc::new(Notify::new());
    let cx = Cx {
        src: Arc::new(Hesitant { inner: src, go_on: go_on.clone() }),
        dst: Arc::new(MemStore::new()),
        backup: None,
        compare_dest: vec![],
        copy_dest: vec![],
        filter: Arc::new(Filter::default()),
        sink: Arc::new(GoOnWhenDone(go_on)),
        meters: Arc::new(Meters::default()),
        cancel: Cancel::default(),
        confirm: None,
        journal: None,
        known: haul::index::EarlierKnowledge::default(),
    };
    // An engine that waited for the whole listing would wait for ever.
    let job = haul::run(Job::new(Verb::Copy), cx);
    let report = tokio::time::timeout(Duration::from_secs(60), job).await.expect("the job waits for its own listing");
    assert!(report.is_ok(), "{report:?}");
    assert_eq!(report.totals.transfers, 4);
}
