//! Shards that are given up: one whose last record can't be read, so that its remaining work is unknown, or one over which worker
//! after worker died. Each is one error of the job, nothing is deleted in it any more, and all other shards go on.

use crate::{
    job_folder::is_spoiled,
    outcome::WorkDone,
    protocol::{FileShard, Lease, Record, RemainingWork, ShardId, Stage, WorkerId},
    worker::Crew,
};
use haul_core::{Error, ErrorKind, Result, part::KeyRange};

impl Crew {
    /// True for a shard of which its holder only writes down that it is given up.
    pub fn is_given_up(&self, lease: &Lease<WorkDone>) -> bool {
        lease.record.given_up.is_some() || lease.record.deaths >= self.worker.settings.deaths
    }

    /// Takes over a shard whose last record can't be read, once its holder had time to write another.
    ///
    /// Errors: of the store.
    pub async fn take_unread(&self, id: ShardId, number: u64, error: &Error) -> Result<Option<Lease<WorkDone>>> {
        if !self.may_take_from(&WorkerId::unread(&id, number)) {
            return Ok(None);
        }
        let why = format!("its record can't be read: {}", (self.worker.line)(error));
        let lease = self.last_readable(&id, number).await?.beyond(number, self.me(), why);
        Ok(self.write(&lease).await?.then_some(lease))
    }

    /// The last record before this one that can be read; one that says nothing if there is none.
    async fn last_readable(&self, id: &ShardId, before: u64) -> Result<Lease<WorkDone>> {
        for number in (0..before).rev() {
            match self.record(id, number).await {
                Ok(Some(record)) => return Ok(Lease { id: id.clone(), number, record }),
                Ok(None) => {}
                Err(error) if is_spoiled(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Lease { id: id.clone(), number: 0, record: Record::first(self.me(), RemainingWork::Nothing) })
    }

    /// Records that a shard is given up.
    ///
    /// Errors: of the job's directory.
    pub async fn give_up_shard(&self, lease: Lease<WorkDone>) -> Result<()> {
        let error = self.why(&lease);
        self.tell(&error);
        match &lease.record.rest {
            RemainingWork::File(FileShard { stage: Stage::Range(..), .. }) => self.range_failed(&lease, &error).await,
            RemainingWork::File(file) => {
                self.board().note_failed(&lease.id).await?;
                if let Some(about) = self.write_of(&lease, file).await? {
                    self.give_up_about(&lease, &about).await;
                }
                self.is_done(&lease, self.failed(&error)).await
            }
            RemainingWork::Keys(_) | RemainingWork::Nothing => self.is_done(&lease, self.failed(&error)).await,
        }
    }

    fn why(&self, lease: &Lease<WorkDone>) -> Error {
        let Record { deaths, given_up, rest, .. } = &lease.record;
        let died = || format!("{deaths} workers died while they held it (of too little memory?)");
        let why = given_up.clone().unwrap_or_else(died);
        let message = format!("{}{why}; a new job transfers what is missing", part_in_words(lease));
        let error = Error::new(ErrorKind::Io, "copy", message);
        match rest {
            RemainingWork::File(file) => error.with_key(&file.key),
            RemainingWork::Keys(_) | RemainingWork::Nothing => error,
        }
    }

    /// Known state of a file's write. The record that can't be read may have begun it: then its ranges have it.
    async fn write_of(&self, lease: &Lease<WorkDone>, file: &FileShard) -> Result<Option<String>> {
        if file.stage == Stage::Begun {
            return Ok(Some(file.about.clone()));
        }
        match self.board().record(&lease.id.child(0), 0).await {
            Ok(Some(Record { rest: RemainingWork::File(range), .. })) => Ok(Some(range.about)),
            Ok(_) => Ok(None),
            Err(error) if is_spoiled(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The shard's part of the job in words, except for files, which errors name.
fn part_in_words(lease: &Lease<WorkDone>) -> String {
    let of = match &lease.record.rest {
        RemainingWork::File(_) => return String::new(),
        RemainingWork::Nothing => "an unknown part".into(),
        RemainingWork::Keys(_) if lease.id.is_finish() => "times and attributes of directories".into(),
        RemainingWork::Keys(KeyRange { after: None, through: None }) => "all files".into(),
        RemainingWork::Keys(KeyRange { after: Some(after), through: None }) => format!("files after {after}"),
        RemainingWork::Keys(KeyRange { after: None, through: Some(through) }) => format!("files up to {through}"),
        RemainingWork::Keys(KeyRange { after: Some(after), through: Some(through) }) => {
            format!("files after {after} up to {through}")
        }
    };
    format!("{of} (shard {}): ", lease.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::Key;

    #[test]
    fn what_is_given_up_is_named() {
        let key = |text: &str| Some(Key::new(text));
        let of = |id, rest| {
            let record = Record::first(&WorkerId("w".into()), rest);
            part_in_words(&Lease { id, number: 1, record })
        };
        let keys = |after, through| of(ShardId::first(3), RemainingWork::Keys(KeyRange { after, through }));
        assert_eq!(keys(None, None), "all files (shard 000003): ");
        assert_eq!(keys(key("a"), None), "files after a (shard 000003): ");
        assert_eq!(keys(None, key("b")), "files up to b (shard 000003): ");
        assert_eq!(keys(key("a"), key("b")), "files after a up to b (shard 000003): ");
        assert_eq!(of(ShardId::first(3), RemainingWork::Nothing), "an unknown part (shard 000003): ");
        let finish = of(ShardId::finish(), RemainingWork::Keys(KeyRange::default()));
        assert_eq!(finish, "times and attributes of directories (shard finish): ");
    }
}
