//! Opening by name, under one set of limits, as in a front end other than the command line.

#![allow(clippy::disallowed_methods)] // A test makes its own files.

#[allow(dead_code)] // its `main`
#[path = "../examples/open.rs"]
mod open;

use haul_remotes::{
    Environment, Error, OpenOptions, Session, Settings,
    config::{ConfigPaths, Password},
};
use haul_store::{Lanes, Store, layers::rate::Rate};
use std::{ffi::OsStr, fs, path::Path, sync::Arc};

fn session(config: &str) -> (tempfile::TempDir, Session) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c");
    fs::write(&path, config).unwrap();
    let session = Session::new(Settings { places: ConfigPaths::Only(path), ..Settings::default() });
    (dir, session)
}

fn open(session: &Session, typed: &str) -> Result<Arc<dyn Store>, Error> {
    session.open(typed, &OpenOptions::default())
}

fn lanes(store: &Arc<dyn Store>) -> Arc<Lanes> {
    store.lanes().cloned().expect("a store of the network")
}

#[tokio::test]
async fn a_remote_is_listed_in_a_few_lines() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("files/d")).unwrap();
    fs::write(at("files/a"), "12345").unwrap();
    let config = format!("[r]\ntype = alias\nremote = {}\n", at("files").display());
    fs::write(at("rclone.conf"), config).unwrap();
    let variables = [("RCLONE_CONFIG", at("rclone.conf")), ("HOME", dir.path().into())];
    let variables = variables.map(|(name, value)| (name.into(), value.into_os_string()));
    let session = Session::new(Settings::from_environment(Environment::new(variables)));
    let lines = open::list(&session, OsStr::new("r:")).await.unwrap();
    assert_eq!(lines, ["           5 a", "           0 d/"]);
    let error = open::list(&session, OsStr::new(":memory:b")).await.unwrap_err().to_string();
    assert!(error.contains("list: "), "{error}");
    let error = open::list(&session, OsStr::new("x:")).await.unwrap_err().to_string();
    assert!(error.starts_with("unknown remote \"x\": not in "), "{error}");
}

#[test]
fn a_local_folder_needs_no_configuration() {
    let (_dir, session) = session("not a configuration");
    assert!(open(&session, "/").is_ok());
    assert!(matches!(open(&session, "r:").map(drop).unwrap_err(), Error::Config(_)));
}

#[test]
fn each_mistake_has_its_own_kind_of_error() {
    let (_dir, session) = session("[x]\ntype = teleport\n[a]\ntype = alias\nremote = \"a,b\n");
    assert!(matches!(open(&session, "r,a=\"b").map(drop).unwrap_err(), Error::Typed(_)));
    let unknown = open(&session, "x:b").map(drop).unwrap_err();
    assert!(matches!(unknown.cause(), Error::Store(_)), "{unknown:?}");
    assert_eq!(unknown.to_string(), "remote \"x\"");
    let error = session.open_parent(":memory:a/", &OpenOptions::default()).map(drop).unwrap_err();
    assert_eq!(error.to_string(), ":memory:a/ names a directory: give the file a name");
}

#[tokio::test]
async fn a_source_may_be_one_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "1").unwrap();
    let session = Session::new(Settings::default());
    let source = async |path: &Path| session.open_source(path, &OpenOptions::default()).await.unwrap().1;
    assert_eq!(source(&dir.path().join("a")).await.unwrap().as_bytes(), b"a");
    assert!(source(dir.path()).await.is_none());
}

/// However often and in whatever way a service is opened, it has one table of lanes.
#[tokio::test]
async fn all_that_a_session_opens_shares_its_limits() {
    let (_dir, session) = session("[r]\ntype = s3\nprovider = Minio\nendpoint = http://127.0.0.1:1\n");
    let first = lanes(&open(&session, "r:a").unwrap());
    let silent = OpenOptions { idle_timeout: Some(std::time::Duration::from_secs(1)), ..OpenOptions::default() };
    assert!(Arc::ptr_eq(&first, &lanes(&session.open("r:b", &silent).unwrap())));
    let packed = OpenOptions { pack: true, ..OpenOptions::default() };
    assert!(session.open("r:b", &packed).is_ok());
    let places = session.places().clone();
    let other = session.beside(Settings { places, ..Settings::default() });
    assert!(Arc::ptr_eq(&first, &lanes(&open(&other, "r:a").unwrap())));
    let (_dir, stranger) = self::session("[r]\ntype = s3\nprovider = Minio\nendpoint = http://127.0.0.1:1\n");
    assert!(!Arc::ptr_eq(&first, &lanes(&open(&stranger, "r:a").unwrap())));
}

/// A limit that comes later counts for what is opened from then on, and only where there is none.
#[test]
fn the_first_limit_of_bandwidth_counts() {
    let session = Session::new(Settings::default());
    let (first, second) = (Arc::new(Rate::new(Some(1), None)), Arc::new(Rate::new(Some(2), None)));
    session.limit_bandwidth(first.clone());
    session.limit_bandwidth(second.clone());
    let _store = open(&session, "/").unwrap();
    assert_eq!(Arc::strong_count(&first), 3, "of the session, and of the store");
    assert_eq!(Arc::strong_count(&second), 1);
}

#[test]
fn the_password_of_a_file_is_asked_for_until_it_fits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c");
    fs::write(&path, include_str!("data/encrypted.conf")).unwrap();
    let ask = |shown: &Path, again: bool| {
        assert!(shown.ends_with("c"));
        Ok(if again { "correct horse é " } else { "wrong" }.to_string())
    };
    let password = Password { ask: Some(Arc::new(ask)), ..Password::default() };
    let session = Session::new(Settings { places: ConfigPaths::Only(path), password, ..Settings::default() });
    assert_eq!(session.config().unwrap().get("enc", "type").as_deref(), Some("local"));
}
