//! Conditions of writes: conflict behaviour for existing items.

use crate::{
    service::{Service, folds},
    version::parts_of,
};
use haul_core::{Error, ErrorKind, Key, Result, Version, plan::Replace};

/// Requests a file at `key` under its condition: `ask` gets the conflict behaviour for an existing file, and its tag. A file
/// that isn't known to exist under exactly this name is written as a new one first: otherwise one whose name differs by case alone
/// would be replaced.
pub async fn choose<T, A: Future<Output = Result<T, (Error, bool)>>>(
    service: &Service,
    key: &Key,
    replace: &Replace,
    ask: impl Fn(&'static str, Option<String>) -> A,
) -> Result<T, (Error, bool)> {
    let exists = |why: String| (Error::new(ErrorKind::Exists, "write", why).with_key(key), false);
    match replace {
        Replace::Exactly(version) => ask("replace", Some(tag(version))).await,
        Replace::Absent => match ask("fail", None).await {
            Err((error, _)) if error.kind() == ErrorKind::Exists => Err(exists("is there already".into())),
            other => other,
        },
        Replace::Anything if service.has_seen(key) => ask("replace", None).await,
        Replace::Anything => match ask("fail", None).await {
            Err((error, _)) if error.kind() == ErrorKind::Exists => {
                let there = service.at("write", key).await.map_err(|error| (error, false))?;
                if there.is_folder() {
                    return Err(exists("is a directory".into()));
                }
                if there.name != service.leaf(key).map_err(|error| (error, false))? {
                    return Err(exists(folds(&there.name)));
                }
                service.saw(key);
                ask("replace", None).await
            }
            other => other,
        },
    }
}

/// The tag of a version; one that isn't ours fits nothing.
fn tag(version: &Version) -> String {
    parts_of(version).map_or_else(|| "\"\"".to_owned(), |(_, tag)| tag.to_owned())
}
