//! Taking back a content that isn't what was sent, at services that keep earlier versions of a file: with the size and the time that the
//! source has, the next run would take it for what was sent.

use haul_core::{Mtime, Result};

/// In seconds: by so much the time of a file that is to be sent again is another. An earlier one, so that `--update` sends it too.
const A_DAY: i64 = 24 * 60 * 60;

/// A file whose content was just written and is wrong.
pub trait WrongContent {
    /// The current tag of the file, empty where it has none; `None` when its content has changed or the file is missing.
    fn tag(&self) -> impl Future<Output = Result<Option<String>>> + Send;

    /// The version before it; `None` where it is the first.
    fn before(&self) -> impl Future<Output = Result<Option<String>>> + Send;

    /// Makes this version the current one.
    fn restore(&self, version: String) -> impl Future<Output = Result<()>> + Send;

    /// Moves the file to where deleted ones go, if it still has this tag.
    fn remove(&self, tag: String) -> impl Future<Output = Result<()>> + Send;

    /// Gives the file this time.
    fn date(&self, mtime: Mtime) -> impl Future<Output = Result<()>> + Send;
}

/// Undoes a write of wrong content: a new file is removed, a replaced one is restored, with a time other than `mtime`, which was sent
/// with the wrong content. Later writes by others are kept, and nothing is deleted for good.
///
/// Errors: the service's; the file still gets the other time if that could be set.
pub async fn undo_write(wrong: &impl WrongContent, mtime: Option<Mtime>) -> Result<()> {
    let Some(tag) = wrong.tag().await? else { return Ok(()) };
    let restored = match wrong.before().await {
        Ok(None) => return wrong.remove(tag).await,
        Ok(Some(version)) => wrong.restore(version).await,
        Err(error) => Err(error),
    };
    let other = mtime.map_or(0, Mtime::secs) - A_DAY;
    wrong.date(Mtime::new(other, 0)).await?;
    restored
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::{Error, ErrorKind};
    use std::sync::Mutex;

    /// Whether it is there, what was before it (`Err` where that can't be told), and what was done.
    struct File(bool, Result<Option<&'static str>, ()>, Mutex<Vec<String>>);

    impl File {
        fn note(&self, done: String) -> Result<()> {
            self.2.lock().unwrap().push(done);
            Ok(())
        }
    }

    impl WrongContent for File {
        async fn tag(&self) -> Result<Option<String>> {
            Ok(self.0.then(|| "tag".to_owned()))
        }

        async fn before(&self) -> Result<Option<String>> {
            let untold = |()| Error::new(ErrorKind::Io, "write", "no versions");
            self.1.map(|version| version.map(str::to_owned)).map_err(untold)
        }

        async fn restore(&self, version: String) -> Result<()> {
            self.note(format!("restore {version}"))
        }

        async fn remove(&self, tag: String) -> Result<()> {
            self.note(format!("remove {tag}"))
        }

        async fn date(&self, mtime: Mtime) -> Result<()> {
            self.note(format!("date {}", mtime.secs()))
        }
    }

    #[tokio::test]
    async fn what_is_wrong_doesnt_stay_with_the_time_of_its_source() {
        for (there, before, done, well) in [
            (false, Ok(Some("1")), "", true),
            (true, Ok(None), "remove tag", true),
            (true, Ok(Some("1")), "restore 1, date 100000", true),
            (true, Err(()), "date 100000", false),
        ] {
            let file = File(there, before, Mutex::default());
            let taken = undo_write(&file, Some(Mtime::new(186_400, 5))).await;
            let did = file.2.lock().unwrap().join(", ");
            assert_eq!((&*did, taken.is_ok()), (done, well));
        }
    }
}
