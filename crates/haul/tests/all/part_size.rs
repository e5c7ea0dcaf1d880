//! A store that says for each upload how long its parts are gets such parts, through all layers.

use haul::{Cancel, Cx};
use haul_core::{
    Key,
    event::NoSink,
    filter::Filter,
    job::{Job, Verb},
};
use haul_mem::MemStore;
use haul_store::{
    LateFacts, Meters, Payload, Store, WriteSpec,
    layers::{LayerSettings, rate::Rate, stack},
};
use haul_testkit::{
    conformance::collect,
    faults::{Faulty, Op},
    folder::noise,
};
use std::sync::Arc;

const MI: usize = 1 << 20;

#[tokio::test]
async fn what_the_store_says_is_the_size_of_parts() {
    let bytes = noise(1, 20 * MI + 1);
    for (told, parts) in [(None, 3), (Some(5 * MI), 5), (Some(MI), 21)] {
        let src: Arc<dyn Store> = Arc::new(MemStore::new());
        let upload = src.write(&Key::new("f"), WriteSpec::default()).await.unwrap();
        let part = upload.part(0, 0, Payload::from(bytes::Bytes::from(bytes.clone()))).await.unwrap();
        upload.publish(vec![part], LateFacts::default()).await.unwrap();
        // Parts that go from store to store are smaller.
        let dst = MemStore::new().with_caps(|caps| (caps.relays, caps.domain) = (false, None));
        let dst = Faulty::new(Arc::new(dst));
        let dst = if let Some(told) = told { dst.parts_of(told as u64) } else { dst };
        let meters = Arc::new(Meters::default());
        let settings = LayerSettings { rate: Some(Arc::new(Rate::new(None, None))), ..LayerSettings::default() };
        let cx = Cx {
            src,
            dst: stack(Arc::new(dst.clone()), &settings, &meters),
            backup: None,
            compare_dest: vec![],
            copy_dest: vec![],
            filter: Arc::new(Filter::default()),
            sink: Arc::new(NoSink),
            meters,
            cancel: Cancel::default(),
            confirm: None,
            journal: None,
            known: haul::index::EarlierKnowledge::default(),
        };
        let report = haul::run(Job::new(Verb::Copy), cx).await;
        assert!(report.is_ok(), "{report:?}");
        assert_eq!(dst.calls(Op::Part), parts, "{told:?}");
        let read = dst.read(&Key::new("f"), None, None).await.unwrap();
        assert!(collect(read).await.unwrap() == bytes, "{told:?}");
    }
}
