//! Messages: what is asked of the far end, and what it answers. They are the contract of `haul_store::Store` as data, in MessagePack with
//! the fields' names, so that an end ignores what a newer one adds.

use crate::{
    frame::{Frame, Kind, MOST},
    listen_address::{Listening, Ports},
};
use bytes::Bytes;
use haul_core::{
    Algo, Entry, Error, ErrorKind, Hashes, Key, Meta, Mtime, Result, Version,
    attributes::FileAttributes,
    delta::{Chunking, Recipe, Run},
    listing::MissedRange,
};
use haul_store::{
    AttributesItem, AttributesResult, Cleanup, CopyBatch, LateFacts, Links, ListRequest, Part, SentPart, SettleItem,
    SmallFile, SpaceUsage, StoredFacts, WriteSpec,
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error as _, SeqAccess, Visitor},
};
use std::{fmt, io, marker::PhantomData, ops::Range};

/// Names a write that was begun, for as long as the two ends are connected.
pub type UploadId = u64;

/// Names a folder that was opened, for as long as the two ends are connected.
pub type FolderId = u64;

/// A folder of the far end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder {
    /// Its path, raw bytes; relative to where the far end starts (a home folder).
    #[serde(with = "haul_core::wire::raw")]
    pub path: Vec<u8>,
    /// How symlinks in it are treated.
    pub links: Links,
    /// Symlinks on the way to it are followed only where they are root's or the user's.
    pub own_links: bool,
}

/// A request, and the folder that its keys are in.
#[derive(Debug, Serialize, Deserialize)]
pub struct FolderRequest<R> {
    /// The folder; 0 where none is meant.
    pub folder: FolderId,
    /// The folder to open under that number, if it isn't open yet. Sent until the near end, which picks the number, knows that it is
    /// open. Only to an end that says that it [opens folders so](crate::handshake::About::opens_along).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opens: Option<Folder>,
    /// The request itself.
    pub request: R,
}

/// Something asked for.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Opens a folder. Answer: [`Answer::Folder`].
    Open(Folder),
    /// Answers: [`Answer::Batch`], [`Answer::Lost`], [`Answer::Vanished`], then [`Answer::End`] or [`Answer::Cut`].
    List(ListRequest),
    /// Answer: [`Answer::Entry`].
    Stat(Key),
    /// Answers: [`Answer::Entry`], content, then [`Answer::Sent`].
    Read(Key, Option<Version>, Option<Range<u64>>),
    /// A small file as a whole. Answer: [`Answer::Stored`].
    Put {
        /// Its name.
        key: Key,
        /// How it is written.
        spec: WriteSpec,
        /// Its content.
        #[serde(with = "haul_core::wire::raw")]
        bytes: Bytes,
    },
    /// Small files as a whole. Only of an end that says that it takes them. Answer: [`Answer::AllStored`].
    PutAll(#[serde(deserialize_with = "of_bundle")] Vec<SmallFile>),
    /// Small files, no more than [`SmallFile::TOGETHER`] bytes as far as is known. Only of such an end. Answer: [`Answer::Files`].
    GetAll(#[serde(deserialize_with = "of_bundle")] Vec<(Key, Option<Version>)>),
    /// Begins a write. Answer: [`Answer::Upload`].
    Begin(Key, WriteSpec),
    /// Finds one again. Answer: [`Answer::Resumed`].
    Resume(Key, #[serde(with = "haul_core::wire::raw")] Vec<u8>, Vec<SentPart>, WriteSpec),
    /// Removes one that was left. Answer: [`Answer::Flag`].
    Discard(Key, #[serde(with = "haul_core::wire::raw")] Vec<u8>),
    /// Token of a write. Answer: [`Answer::Token`].
    Token(UploadId),
    /// A part, whose `size` bytes follow. Answer: [`Answer::Part`].
    Part {
        /// Of which write.
        upload: UploadId,
        /// Its number, from 0.
        index: u64,
        /// Its first byte's place in the whole.
        offset: u64,
        /// Bytes.
        size: u64,
    },
    /// Bytes that were sent already. Answers: content, then [`Answer::Sent`].
    ReadBack(UploadId, Range<u64>),
    /// Makes the whole visible. Answer: [`Answer::Stored`]; after an error the write continues.
    Publish(UploadId, Vec<Part>, LateFacts),
    /// Removes what was sent. Answer: [`Answer::Done`].
    Abort(UploadId),
    /// Answer: [`Answer::Done`].
    MakeDir(Key, WriteSpec),
    /// Copies from another folder of the far end. Answers: [`Answer::Progress`], then [`Answer::Copied`].
    Copy(CopyBatch),
    /// Answer: [`Answer::Done`].
    SetMeta(Key, Option<Mtime>, Option<Meta>),
    /// Answer: [`Answer::Deleted`].
    Delete(Vec<(Key, Option<Version>)>),
    /// Attributes of files, for another machine; of their insides too if the second is true. Answer: [`Answer::Carried`].
    Carry(Vec<Key>, bool),
    /// Compares attributes with those of another folder of the far end, or with carried ones, and sets them if `set`.
    /// Answer: [`Answer::Attributed`].
    Attributes {
        /// The other folder's place.
        #[serde(with = "haul_core::wire::raw")]
        from: Vec<u8>,
        /// Entries to set attributes on.
        items: Vec<AttributesItem>,
        /// See [`haul_store::AttributesBatch`].
        set: bool,
    },
    /// Gives files that were written under other names their own. Answer: [`Answer::Settled`].
    Settle(Vec<SettleItem>),
    /// Hashes of content where it lies. Answer: [`Answer::Hashes`].
    Hash(Key, Option<Version>, Vec<Algo>),
    /// Answer: [`Answer::Space`].
    About,
    /// Answer: [`Answer::Unfinished`].
    Cleanup(Cleanup),
    /// Answer: [`Answer::Done`].
    Sync,
    /// Pieces of a file, cut in this way. Answer: [`Answer::Recipe`].
    Recipe(Key, Option<Version>, Chunking),
    /// Runs of bytes of the file that has the name now. Answer: [`Answer::Parts`].
    Reuse(UploadId, Version, Vec<Run>),
    /// Opens a port for further pipes, which closes with the first pipe. Only of an end that says that it listens. Answer:
    /// [`Answer::Listens`].
    Listen(Ports),
}

/// As many as go with one request, and no more: each takes far more memory than bytes on the way.
fn of_bundle<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    struct Files<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Files<T> {
        type Value = Vec<T>;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(to, "no more than {} files", SmallFile::COUNT)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
            let mut files = Vec::new();
            while let Some(file) = from.next_element()? {
                if files.len() == SmallFile::COUNT {
                    return Err(A::Error::invalid_length(files.len() + 1, &self));
                }
                files.push(file);
            }
            Ok(files)
        }
    }
    from.deserialize_seq(Files(PhantomData))
}

/// A file that comes as a whole.
#[derive(Debug, Serialize, Deserialize)]
pub struct WholeFile {
    /// Its facts.
    pub entry: Entry,
    /// All that it holds.
    #[serde(with = "haul_core::wire::raw")]
    pub bytes: Bytes,
    /// CRC-64/NVME of that.
    pub crc64: u64,
}

/// An answer, or one of several.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// A folder was opened.
    Folder(FolderId),
    /// Entries of a listing.
    Batch(Vec<Entry>),
    /// A range that couldn't be listed.
    Lost(MissedRange, Error),
    /// A name that was listed, and was no longer there when it was looked at.
    Vanished(Key),
    /// All else of the listing was seen.
    End,
    /// The listing stopped before its end, and says nothing of why: its limit was reached.
    Cut,
    /// Facts.
    Entry(Entry),
    /// All content was sent; CRC-64/NVME of it.
    Sent(u64),
    /// A write was begun.
    Upload(UploadId),
    /// A write was found again, with these parts.
    Resumed(UploadId, Vec<Part>),
    /// Token of a write.
    Token(Option<Vec<u8>>),
    /// A part arrived; CRC-64/NVME of what arrived.
    Part(Part, u64),
    /// A file is there; CRC-64/NVME of what arrived, where it came as a whole.
    Stored(StoredFacts, Option<u64>),
    /// One answer for each file: it is there; CRC-64/NVME of what arrived.
    AllStored(Vec<Result<(StoredFacts, u64)>>),
    /// One answer for each file.
    Files(Vec<Result<WholeFile>>),
    /// Whether it was so.
    Flag(bool),
    /// Further bytes copied of this item.
    Progress(usize, u64),
    /// One answer for each item.
    Copied(Vec<Result<StoredFacts>>),
    /// One answer for each key.
    Deleted(Vec<Result<()>>),
    /// One answer for each key.
    Carried(Vec<Result<FileAttributes>>),
    /// One answer for each item.
    Attributed(Vec<Result<AttributesResult>>),
    /// One answer for each item.
    Settled(Vec<Result<()>>),
    /// Of the content.
    Hashes(Hashes),
    /// How much space there is.
    Space(SpaceUsage),
    /// Writes that were never finished, and what couldn't be looked through.
    Unfinished(Vec<(Key, Option<Mtime>)>, Vec<Error>),
    /// Pieces of a file.
    Recipe(Recipe),
    /// Parts arrived.
    Parts(Vec<Part>),
    /// Where it listens.
    Listens(Listening),
    /// It is done.
    Done,
    /// It failed.
    Failed(Error),
}

impl Answer {
    /// True when no further answer to the same request follows.
    pub fn is_last(&self) -> bool {
        !matches!(self, Answer::Batch(_) | Answer::Lost(..) | Answer::Vanished(_) | Answer::Progress(..))
    }
}

impl Request {
    /// Bytes that it and its answers are expected to move.
    pub fn weight(&self) -> u64 {
        match self {
            Request::Put { bytes, .. } => bytes.len() as u64,
            Request::PutAll(files) => files.iter().map(|file| file.bytes.len() as u64).sum(),
            Request::GetAll(_) => SmallFile::TOGETHER,
            Request::Part { size, .. } => *size,
            Request::Read(_, _, Some(range)) | Request::ReadBack(_, range) => range.end.saturating_sub(range.start),
            // A small file, most likely.
            Request::Read(_, _, None) => 64 << 10,
            _ => 1 << 10,
        }
    }

    /// How many things it is about, where the answer has something to say of each.
    pub fn items(&self) -> usize {
        match self {
            Request::Copy(batch) => batch.items.len(),
            Request::Delete(keys) => keys.len(),
            Request::Carry(keys, _) => keys.len(),
            Request::Attributes { items, .. } => items.len(),
            Request::Settle(items) => items.len(),
            Request::PutAll(files) => files.len(),
            Request::GetAll(wanted) => wanted.len(),
            _ => 1,
        }
    }

    /// Bytes that its answer may take before it is written, beside what was asked: of the few that take much.
    pub fn takes(&self) -> usize {
        match self {
            // Extended attributes and ACLs.
            Request::Carry(keys, true) => keys.len() * (8 << 10),
            // As many pieces as there may be.
            Request::Recipe(..) => 8 << 20,
            Request::GetAll(wanted) => SmallFile::FETCHED as usize + (wanted.len() << 10),
            Request::Cleanup(_) => MOST,
            _ if self.items() > 1 => self.items() << 10,
            _ => 0,
        }
    }

    /// True for requests that change something. Leaving out a listing's sweep, and the memory of a file's pieces, is up to the
    /// answering end.
    pub fn changes(&self) -> bool {
        match self {
            Request::Open(_)
            | Request::Listen(_)
            | Request::List(_)
            | Request::Stat(_)
            | Request::Read(..)
            | Request::About
            | Request::Sync
            | Request::ReadBack(..)
            | Request::Recipe(..)
            | Request::Token(_)
            | Request::GetAll(_)
            | Request::Carry(..)
            | Request::Hash(..) => false,
            Request::Cleanup(what) => !what.dry_run,
            Request::Attributes { set, .. } => *set,
            Request::Put { .. }
            | Request::PutAll(_)
            | Request::Begin(..)
            | Request::Resume(..)
            | Request::Discard(..)
            | Request::Part { .. }
            | Request::Reuse(..)
            | Request::Publish(..)
            | Request::Abort(_)
            | Request::MakeDir(..)
            | Request::Copy(_)
            | Request::SetMeta(..)
            | Request::Settle(_)
            | Request::Delete(_) => true,
        }
    }
}

/// A frame that carries a message.
///
/// Errors: `InvalidInput` for one that is larger than a frame.
pub fn frame(kind: Kind, id: u32, message: &impl Serialize) -> io::Result<Frame> {
    let body = rmp_serde::to_vec_named(message).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
    if body.len() > MOST {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a message is larger than a frame"));
    }
    Ok(Frame { kind, id, body: body.into() })
}

/// The message in a frame.
///
/// Errors: `Unsupported` for one that this version doesn't know.
pub fn read<T: DeserializeOwned>(frame: &Frame) -> Result<T> {
    rmp_serde::from_slice(&frame.body).map_err(|error| {
        let why = format!("the other end says what this version of haul doesn't understand: {error}");
        Error::new(ErrorKind::Unsupported, "connect", why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_of_more_files_than_are_agreed_is_refused() {
        let small = || SmallFile { key: Key::new("f"), spec: WriteSpec::default(), bytes: Bytes::new() };
        for count in [SmallFile::COUNT, SmallFile::COUNT + 1] {
            let put = Request::PutAll((0..count).map(|_| small()).collect());
            let get = Request::GetAll((0..count).map(|_| (Key::new("f"), None)).collect());
            for request in [put, get] {
                let frame = frame(Kind::Request, 1, &FolderRequest { folder: 1, opens: None, request }).unwrap();
                let decoded = read::<FolderRequest<Request>>(&frame);
                assert_eq!(
                    decoded.as_ref().map(|decoded| decoded.request.items()).ok(),
                    Some(count).filter(|n| *n <= SmallFile::COUNT)
                );
            }
        }
    }
}
