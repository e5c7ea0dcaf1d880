//! Files without a name.

use haul_store::unnamed_file::{create, give_name};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

#[test]
fn it_appears_whole_and_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let dir = rustix::fs::open(folder.path(), OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
    let names = || std::fs::read_dir(folder.path()).unwrap().count();
    let make = |path: &[u8]| create(&dir, path, Mode::from_raw_mode(0o400), || b"probe".to_vec());
    let Some(file) = make(b".").unwrap() else {
        return haul_testkit::peers::skip("files without a name can't be made here");
    };
    rustix::io::write(&file, b"whole").unwrap();
    assert_eq!(names(), 0);
    give_name(&file, &dir, b"name").unwrap();
    assert_eq!((names(), std::fs::read(folder.path().join("name")).unwrap()), (1, b"whole".to_vec()));
    let other = make(b".").unwrap().unwrap();
    assert_eq!(give_name(&other, &dir, b"name").unwrap_err(), Errno::EXIST);
    assert_eq!(make(b"none").unwrap_err(), Errno::NOENT);
}
