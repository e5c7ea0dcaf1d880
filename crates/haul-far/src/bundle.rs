//! Many small files in one request: they share the cost of a request, and a task and a wait at either end.

use crate::{
    Far, FarStore, answers, crc64, crc64_of,
    list::near,
    message::{Answer, Request, WholeFile},
    open::weight,
    read::other_bytes,
    upload,
    wire::unexpected,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use haul_core::{Algo, Entry, Hashes, Key, Result, Version, hash::hash_bytes};
use haul_store::{Bundles, SmallFile, StoredFacts, offered};

impl Bundles for FarStore {
    fn fetch(&self, wanted: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<(Entry, Bytes)>>> {
        Box::pin(async move {
            let keys: Vec<Key> = wanted.iter().map(|(key, _)| key.clone()).collect();
            let answer = self.far.all("READ", Request::GetAll(wanted)).await;
            let files = answers(answer, keys.len(), |answer| match answer {
                Answer::Files(files) => Some(files),
                _ => None,
            });
            keys.iter().zip(files).map(|(key, file)| proved(key, file?)).collect()
        })
    }

    fn put(&self, files: Vec<SmallFile>) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        Box::pin(async move {
            let sent = |file: &SmallFile| (file.bytes.len() as u64, hash_bytes(&[Algo::Crc64Nvme], &file.bytes));
            let sent: Vec<_> = files.iter().map(sent).collect();
            let keys: Vec<Key> = files.iter().map(|file| file.key.clone()).collect();
            let described = |(file, (_, crc)): (SmallFile, &(u64, Hashes))| {
                let spec = upload::wire_spec_whole(&file.spec, crc);
                SmallFile { spec, ..file }
            };
            let answer =
                self.far.all("PUT", Request::PutAll(files.into_iter().zip(&sent).map(described).collect())).await;
            let stored = answers(answer, sent.len(), |answer| match answer {
                Answer::AllStored(stored) => Some(stored),
                _ => None,
            });
            let mut all = Vec::with_capacity(keys.len());
            for ((sent, key), stored) in sent.into_iter().zip(&keys).zip(stored) {
                all.push(match stored {
                    Ok(stored) => self.arrived(key, sent, stored).await,
                    Err(error) => Err(error),
                });
            }
            all
        })
    }
}

impl FarStore {
    /// The far end's answer, if it stored exactly the bytes sent.
    async fn arrived(
        &self,
        key: &Key,
        (size, hashes): (u64, Hashes),
        (stored, arrived): (StoredFacts, u64),
    ) -> Result<StoredFacts> {
        if arrived == crc64(&hashes) && stored.size == size {
            return Ok(StoredFacts { hashes, ..stored });
        }
        self.far.remove_wrong(key, stored).await;
        Err(other_bytes("write"))
    }
}

impl Far {
    /// Asks for many files at once.
    ///
    /// Errors: `Unsupported` of a far end that knows no such request; its own; it can't be reached.
    async fn all(&self, kind: &'static str, request: Request) -> Result<Answer> {
        let (channel, folder) = self.opened().await?;
        offered(self.line.about.get().filter(|about| about.takes_bundles()), "copy")?;
        let bytes = request.weight();
        // Closed never.
        let _room = self.line.on_the_way.acquire_many(weight(bytes)).await.ok();
        self.meters.request(kind);
        let exchange = channel.room(bytes).await.ask_in_turn(&folder, &request).await?;
        // Its bytes are on their way, and not held here besides.
        drop(request);
        exchange.answer().await
    }
}

/// A file that came, if it is what was asked for and sent.
fn proved(key: &Key, file: WholeFile) -> Result<(Entry, Bytes)> {
    let WholeFile { entry, bytes, crc64: sent } = file;
    if entry.key != *key || entry.size != bytes.len() as u64 {
        return Err(unexpected());
    }
    match crc64_of(&bytes) == sent {
        true => Ok((near(entry), bytes)),
        false => Err(other_bytes("read")),
    }
}
