//! Many small files with one request: what a request costs by itself, and a task and a wait at either end, they share.

use crate::{
    Far, FarStore, crc64,
    list::near,
    message::{Answer, Request, Whole},
    open::weight,
    read::other_bytes,
    upload,
    wire::unexpected,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use haul_core::{Algo, Entry, Error, Hashes, Key, Result, Version, hash::hash_bytes};
use haul_store::{Bundles, Small, Stored, none_offered};

impl Bundles for FarStore {
    fn fetch(&self, wanted: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<(Entry, Bytes)>>> {
        Box::pin(async move {
            let count = wanted.len();
            let keys: Vec<Key> = wanted.iter().map(|(key, _)| key.clone()).collect();
            match self.far.all("READ", Request::GetAll(wanted)).await {
                Ok(None) => none_offered(count, "read"),
                Ok(Some(Answer::Files(files))) if files.len() == count => {
                    keys.iter().zip(files).map(|(key, file)| proved(key, file?)).collect()
                }
                Ok(Some(_)) => each(count, &unexpected()),
                Err(error) => each(count, &error),
            }
        })
    }

    fn put(&self, files: Vec<Small>) -> BoxFuture<'_, Vec<Result<Stored>>> {
        Box::pin(async move {
            let sent: Vec<_> = files
                .iter()
                .map(|file| (file.bytes.len() as u64, hash_bytes(&[Algo::Crc64Nvme], &file.bytes)))
                .collect();
            let told = |file: Small| Small { spec: upload::told(&file.spec), ..file };
            let files = files.into_iter().map(told).collect();
            match self.far.all("PUT", Request::PutAll(files)).await {
                Ok(None) => none_offered(sent.len(), "write"),
                Ok(Some(Answer::AllStored(answers))) if answers.len() == sent.len() => {
                    sent.into_iter().zip(answers).map(|(sent, answer)| arrived(sent, answer?)).collect()
                }
                Ok(Some(_)) => each(sent.len(), &unexpected()),
                Err(error) => each(sent.len(), &error),
            }
        })
    }
}

impl Far {
    /// Asks for many files at once; `None` of a far end that knows no such request.
    ///
    /// Errors: the far end's; it can't be reached.
    async fn all(&self, kind: &'static str, request: Request) -> Result<Option<Answer>> {
        let (channel, folder) = self.opened().await?;
        if !self.line.about.get().is_some_and(|about| about.bundles && about.keeps) {
            return Ok(None);
        }
        let bytes = request.weight();
        // Closed never.
        let _room = self.line.on_the_way.acquire_many(weight(bytes)).await.ok();
        self.meters.request(kind);
        let asked = channel.room(bytes).await.ask_in_turn(folder, &request).await?;
        // Its bytes are on their way, and not held here besides.
        drop(request);
        Ok(Some(asked.answer().await?))
    }
}

/// One error for each of so many.
fn each<T>(count: usize, error: &Error) -> Vec<Result<T>> {
    (0..count).map(|_| Err(error.to_report())).collect()
}

/// A file that came, if it is what was asked for and sent.
fn proved(key: &Key, file: Whole) -> Result<(Entry, Bytes)> {
    let Whole { entry, bytes, crc64: sent } = file;
    if entry.key != *key || entry.size != bytes.len() as u64 {
        return Err(unexpected());
    }
    match crc64(&hash_bytes(&[Algo::Crc64Nvme], &bytes)) == sent {
        true => Ok((near(entry), bytes)),
        false => Err(other_bytes("read")),
    }
}

/// What the far end stored, if that is what was sent.
fn arrived((size, hashes): (u64, Hashes), (stored, arrived): (Stored, u64)) -> Result<Stored> {
    match arrived == crc64(&hashes) && stored.size == size {
        true => Ok(Stored { hashes, ..stored }),
        false => Err(other_bytes("write")),
    }
}
