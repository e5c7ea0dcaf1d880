//! The section of a remote whose token changes by itself: read anew under a lock, and written back, so that neither another haul nor
//! rclone is logged out.

use super::{
    Password,
    crypt::Secret,
    file::Ini,
    store::{self, FileLock},
};
use crate::{Error, Result};
use futures::{FutureExt, future::BoxFuture};
use haul_core::ErrorKind;
use haul_store::{Locked, Section};
use std::{
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

/// rclone has this long to renew a token.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a remote is described.
#[derive(Clone, Debug)]
pub struct ConfigSection {
    /// The file.
    pub path: PathBuf,
    /// Its key, when it is encrypted.
    pub secret: Option<Secret>,
    /// Where its password comes from.
    pub password: Password,
    /// The remote's name.
    pub remote: String,
    /// Held for reading by whoever holds a section: who may write has none of the session's sections in use.
    pub in_use: Arc<RwLock<()>>,
}

/// The section, while nobody else changes the file.
struct LockedSection {
    section: ConfigSection,
    ini: Ini,
    _lock: Option<FileLock>,
    _in_use: OwnedRwLockReadGuard<()>,
}

fn config_error(error: Error) -> haul_core::Error {
    haul_core::Error::new(ErrorKind::Io, "config", error.to_string())
}

async fn apart<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> haul_core::Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(config_error),
        Err(_) => Err(haul_core::Error::new(ErrorKind::Cancelled, "config", "stopped")),
    }
}

impl ConfigSection {
    fn hold(self, in_use: OwnedRwLockReadGuard<()>) -> Result<LockedSection> {
        let lock = FileLock::take(&self.path)?;
        let ini = store::read_again(&self.path, self.secret.as_ref())?;
        Ok(LockedSection { section: self, ini, _lock: lock, _in_use: in_use })
    }

    /// Any command of rclone that asks the service renews the token and saves it.
    fn by_rclone(&self) -> Result<()> {
        let mut command = Command::new("rclone");
        command
            .args(["lsd", "--ask-password=false", "--retries=1", "--config"])
            .arg(&self.path)
            .arg(format!("{}:", self.remote));
        if let Some(text) = self.password.without_asking()? {
            command.env("RCLONE_CONFIG_PASS", text);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child = child.map_err(|e| Error::system("can't run rclone", e))?;
        let begun = Instant::now();
        loop {
            match child.try_wait().map_err(|e| Error::system("can't wait for rclone", e))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(Error::config(format!("rclone lsd {}: failed ({status})", self.remote))),
                None if begun.elapsed() > PATIENCE => {
                    // It may have ended in between.
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(Error::config("rclone took too long"));
                }
                None => thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

impl Section for ConfigSection {
    fn lock(&self) -> BoxFuture<'_, haul_core::Result<Box<dyn Locked>>> {
        let section = self.clone();
        async move {
            let in_use = self.in_use.clone().read_owned().await;
            apart(|| section.hold(in_use)).await.map(|held| Box::new(held) as _)
        }
        .boxed()
    }
}

impl Locked for LockedSection {
    fn get(&self, option: &str) -> Option<String> {
        self.ini.get(&self.section.remote, option)
    }

    fn set(&mut self, option: &str, value: &str) -> haul_core::Result<()> {
        let ConfigSection { path, secret, remote, .. } = &self.section;
        // Changes that rclone, which takes no lock, or an editor has saved since must stay; one of them may just be putting the file in
        // place.
        let mut ini = match store::read_again(path, secret.as_ref()) {
            Ok(now) if now.sections().is_empty() => self.ini.clone(),
            now => now.map_err(config_error)?,
        };
        let gone = || Error::config(format!("{} has no remote {remote:?} any more", path.display()));
        let set = ini.has(remote).then_some(()).ok_or_else(gone);
        let set = set.and_then(|()| ini.set(remote, option, value).map_err(Error::Config));
        set.and_then(|()| store::save(path, &ini, secret.as_ref())).map_err(config_error)?;
        self.ini = ini;
        Ok(())
    }

    fn by_rclone(&mut self) -> BoxFuture<'_, haul_core::Result<()>> {
        async move {
            let section = self.section.clone();
            // It may have renewed the token and then failed for another reason.
            let renew = move || {
                let done = section.by_rclone();
                store::read_again(&section.path, section.secret.as_ref()).map(|ini| (ini, done))
            };
            let (ini, done) = apart(renew).await?;
            self.ini = ini;
            done.map_err(config_error)
        }
        .boxed()
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // a test's own file
mod tests {
    use super::*;
    use std::fs;

    fn section(dir: &tempfile::TempDir, text: &str) -> ConfigSection {
        let path = dir.path().join("rclone.conf");
        fs::write(&path, text).unwrap();
        let (secret, in_use) = (None, Arc::default());
        ConfigSection { path, secret, password: Password::default(), remote: "b".into(), in_use }
    }

    #[tokio::test]
    async fn a_token_is_written_back_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let section = section(&dir, "# mine\n[a]\ntoken = 1\n\n[b]\ntype = box\ntoken = 2\nx = 3\n");
        let mut held = section.lock().await.unwrap();
        assert_eq!(held.get("token").as_deref(), Some("2"));
        held.set("token", "{\"access_token\":\"é\"}").unwrap();
        let text = fs::read_to_string(&section.path).unwrap();
        assert_eq!(text, "# mine\n[a]\ntoken = 1\n\n[b]\ntype = box\ntoken = {\"access_token\":\"é\"}\nx = 3\n");
        // Changes that a program without locks has saved meanwhile stay.
        fs::write(&section.path, "[a]\ntoken = 7\n\n[b]\ntoken = 2\n\n[c]\ntype = s3\n").unwrap();
        held.set("token", "3").unwrap();
        let text = fs::read_to_string(&section.path).unwrap();
        assert_eq!(text, "[a]\ntoken = 7\n\n[b]\ntoken = 3\n\n[c]\ntype = s3\n");
        // It was removed meanwhile.
        fs::write(&section.path, "[a]\ntoken = 1\n").unwrap();
        drop(held);
        let mut held = section.lock().await.unwrap();
        assert!(held.set("token", "4").unwrap_err().message().contains("no remote"));
        assert_eq!(fs::read_to_string(&section.path).unwrap(), "[a]\ntoken = 1\n");
    }

    #[tokio::test]
    async fn a_session_knows_whether_a_section_of_its_own_is_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let section = section(&dir, "[b]\ntoken = 0\n");
        let held = section.lock().await.unwrap();
        assert!(section.in_use.try_write().is_err());
        drop(held);
        assert!(section.in_use.try_write().is_ok());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn each_sees_what_the_one_before_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let section = section(&dir, "[b]\ntoken = 0\n");
        let count = async |section: ConfigSection| {
            for _ in 0..20 {
                let mut held = section.lock().await.unwrap();
                let next = held.get("token").unwrap().parse::<u32>().unwrap() + 1;
                held.set("token", &next.to_string()).unwrap();
            }
        };
        futures::future::join_all((0..8).map(|_| tokio::spawn(count(section.clone())))).await;
        assert_eq!(section.lock().await.unwrap().get("token").as_deref(), Some("160"));
    }
}
