//! Layers between the engine and a store: the same for every store, in one order.

pub mod clock;
pub mod links;
pub mod rate;
pub mod retry;

use crate::{Links, Meters, Store};
use clock::Clock;
use futures::future::BoxFuture;
use rate::Rate;
use std::{sync::Arc, time::Duration};

/// Resolves once the user wants the run to end.
#[derive(Clone)]
pub struct Stop(Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>);

impl Stop {
    /// From what gives such a future, as often as it is asked.
    pub fn new(stopped: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static) -> Self {
        Stop(Arc::new(stopped))
    }
}

/// Settings of all layers.
#[derive(Clone)]
pub struct LayerSettings {
    /// How often a request is tried in all (`--low-level-retries`); 0 and 1 mean once.
    pub tries: u32,
    /// Tries for a store that has never answered.
    pub tries_unanswered: u32,
    /// Longest wait after the first failure; it doubles with each further one.
    pub backoff: Duration,
    /// Longest wait of all.
    pub backoff_max: Duration,
    /// Bytes a second (`--bwlimit`), shared by all stores of the run; `None` means that there never is a limit.
    pub rate: Option<Arc<Rate>>,
    /// Waits, and draws the lots that spread the waits.
    pub clock: Arc<dyn Clock>,
    /// Ends all waiting of network stores; what is under way is given up a little later. `None` for a run that nobody stops.
    pub stop: Option<Stop>,
}

impl Default for LayerSettings {
    /// Ten tries as rclone; 100 ms and 20 s are the usual values of the AWS SDKs for "full jitter". A mistyped endpoint is reported
    /// within a second; a server that is being started is worth a second and third try.
    fn default() -> Self {
        LayerSettings {
            tries: 10,
            tries_unanswered: 3,
            backoff: Duration::from_millis(100),
            backoff_max: Duration::from_secs(20),
            rate: None,
            clock: Arc::new(clock::System),
            stop: None,
        }
    }
}

/// Puts `store` into the layer in which symlinks are symlinks, if they are to be kept and it has none itself. It is the outermost
/// of all, around what the user named, not around what such a store is made on: that holds what the store puts there.
pub fn with_links(store: Arc<dyn Store>, links: Links) -> Arc<dyn Store> {
    if links.keeps() && !store.caps().symlinks { Arc::new(links::LinkFiles::new(store)) } else { store }
}

/// Puts the layers around `store`, from the outside in:
///
/// 1. **links** ([`with_links`]): only keys change there, so it sees whole requests.
/// 2. **retry**: sees every failure, also those of the layers below; the only place that retries.
/// 3. **rate**: nearest to the store, so that bytes sent again count against the bandwidth limit too.
///
/// The first is added by whoever opens the store for a user, the others here.
/// Requests per second (`--tpslimit`) are limited inside the network stores, by [`crate::Gate`], since one call here
/// may be many requests.
pub fn stack(store: Arc<dyn Store>, settings: &LayerSettings, meters: &Arc<Meters>) -> Arc<dyn Store> {
    let store = match &settings.rate {
        Some(rate) => Arc::new(rate::LimitedStore::new(store, rate.clone(), settings.clock.clone())),
        None => store,
    };
    Arc::new(retry::Retrying::new(store, settings, meters.clone()))
}
