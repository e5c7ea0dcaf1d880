//! Small files that are written many at once.

use super::local::carried;
use haul_core::{Key, Mtime};
use haul_store::{Links, WriteSpec};
use haul_testkit::disk::open;
use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    sync::Arc,
};
use tempfile::tempdir;

#[tokio::test]
async fn a_small_file_has_what_came_along_and_what_the_user_gave_with_its_name() {
    let temp = tempdir().unwrap();
    let store = open(temp.path(), Links::Keep);
    fs::write(temp.path().join("there"), "old").unwrap();
    fs::set_permissions(temp.path().join("there"), fs::Permissions::from_mode(0o666)).unwrap();
    let probe = rustix::fs::setxattr(temp.path(), "user.probe", b"", rustix::fs::XattrFlags::empty());
    let has_xattrs = probe.is_ok();
    let keep = haul_core::keep::Keep { perms: true, xattrs: true, atime: true, ..Default::default() };
    let along = haul_core::attributes::Xattr { name: b"user.along".to_vec(), value: b"1".to_vec() };
    let carried = haul_core::attributes::FileAttributes { xattrs: vec![along], ..carried(0o100_640) };
    let spec = WriteSpec {
        mtime: Some(Mtime(2_000_000_000_000_000_000)),
        meta: Some(Box::new(haul_core::Meta::from([("colour".into(), "blue".into())]))),
        keep: Some(Arc::new(keep)),
        carried: Some(Arc::new(carried)),
        ..WriteSpec::default()
    };
    let small = |name: &str| haul_store::SmallFile { key: Key::new(name), spec: spec.clone(), bytes: "new".into() };
    for stored in store.bundles().unwrap().put(vec![small("there"), small("not")]).await {
        assert_eq!(stored.unwrap().size, 3);
    }
    for name in ["there", "not"] {
        let st = fs::metadata(temp.path().join(name)).unwrap();
        assert_eq!((st.mode() & 0o7777, st.mtime(), st.atime()), (0o640, 2_000_000_000, 1_000_000_000), "{name}");
        if has_xattrs {
            let meta = store.stat(&Key::new(name)).await.unwrap().meta.unwrap();
            assert_eq!((&meta["along"][..], &meta["colour"][..]), ("1", "blue"), "{name}");
        }
    }
}
