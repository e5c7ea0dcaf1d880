//! Writing symlinks: the target arrives as bytes, the symlink is made under a hidden name and renamed.

use super::{OP, beside, if_present, next, total};
use crate::{
    change, hidden, pool,
    service::{AttributeChange, Service, at},
    wire::Request,
};
use futures::{FutureExt, future::BoxFuture};
use haul_core::{Error, ErrorKind, Key, Result};
use haul_store::{Body, LateFacts, Part, Payload, StoredFacts, Unpublished, Upload, WriteSpec, body::Pieces};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

/// Longest target of a symlink: that of Linux (PATH_MAX less its zero byte).
const TARGET_MAX: usize = 4095;

/// See [`super::begin`].
pub(super) fn begin(service: &Arc<Service>, key: &Key, spec: WriteSpec) -> Box<dyn Upload> {
    let link = Link { service: service.clone(), key: key.clone(), spec, bytes: Mutex::default() };
    Box::new(LinkWrite(Arc::new(link)))
}

/// A symlink that arrives as the bytes of its target.
struct LinkWrite(Arc<Link>);

struct Link {
    service: Arc<Service>,
    key: Key,
    spec: WriteSpec,
    bytes: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl Link {
    fn target(&self, parts: &[Part]) -> Result<Vec<u8>> {
        let size = total(&self.key, &self.spec, parts)?;
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let target: Vec<u8> = bytes.values().flatten().copied().collect();
        if target.len() as u64 != size || target.is_empty() || target.contains(&0) {
            let message = "this isn't the target of a symbolic link: it is empty, incomplete or contains a zero byte";
            return Err(Error::new(ErrorKind::Invalid, OP, message).with_key(&self.key));
        }
        Ok(target)
    }

    async fn publish(&self, parts: &[Part], late: &LateFacts) -> Result<StoredFacts> {
        let target = self.target(parts)?;
        let plain = Key::new(self.key.path());
        let temp = self.service.path(&beside(&plain, &hidden::new(plain.name(), &self.spec.partial_suffix)))?;
        let error = at(OP, &self.key);
        change::make_dir(&self.service, &plain.parent()).await?;
        let make = async |channel: &pool::Claim| pool::done(channel.ask(&Request::Symlink(&temp, &target))).await;
        self.service.ask("Symlink", make).await.map_err(&error)?;
        let mtime = late.mtime.or(self.spec.mtime).filter(|_| self.service.set_times);
        let wish = AttributeChange::new(&self.key, mtime, None, false)?;
        let own = self.service.path(&plain)?;
        let settled = async {
            if !wish.is_empty() {
                change::set_own(&self.service, &self.key, &temp, &wish).await?;
            }
            let there = if_present(self.service.facts(&own, false).await).map_err(&error)?;
            let settled = change::settle(&self.service, &temp, &self.key, &self.spec.replace, there.as_ref()).await;
            settled.map_err(|(error, _)| error)
        };
        if let Err(error) = settled.await {
            // Any remains are hidden, and `cleanup` finds them.
            let _ = change::remove(&self.service, &temp, &self.key).await;
            return Err(error);
        }
        Ok(StoredFacts { size: target.len() as u64, ..StoredFacts::default() })
    }
}

impl Upload for LinkWrite {
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        async { Ok(None) }.boxed()
    }

    fn read_back(&self, _: Range<u64>) -> BoxFuture<'_, Result<Body>> {
        let message = "a symbolic link that isn't there yet can't be read";
        async move { Err(Error::new(ErrorKind::Unsupported, OP, message).with_key(&self.0.key)) }.boxed()
    }

    fn part(&self, index: u64, offset: u64, payload: Payload) -> BoxFuture<'_, Result<Part>> {
        let size = payload.len();
        async move {
            if offset.saturating_add(size) > TARGET_MAX as u64 {
                let message = format!("a symbolic link's target can have at most {TARGET_MAX} bytes");
                return Err(Error::new(ErrorKind::Invalid, OP, message).with_key(&self.0.key));
            }
            let (mut pieces, mut bytes) = (Pieces::new(payload), Vec::new());
            while (bytes.len() as u64) < size {
                bytes.extend_from_slice(&next(&mut pieces).await.map_err(at(OP, &self.0.key))?);
            }
            self.0.bytes.lock().unwrap_or_else(PoisonError::into_inner).insert(offset, bytes);
            Ok(Part { index, size, tag: Vec::new() })
        }
        .boxed()
    }

    fn publish(
        self: Box<Self>,
        parts: Vec<Part>,
        late: LateFacts,
    ) -> BoxFuture<'static, Result<StoredFacts, Unpublished>> {
        async move {
            match self.0.publish(&parts, &late).await {
                Ok(stored) => Ok(stored),
                Err(error) => Err(Unpublished { error, upload: self }),
            }
        }
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async { Ok(()) }.boxed()
    }
}
