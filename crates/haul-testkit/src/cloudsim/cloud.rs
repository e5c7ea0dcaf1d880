//! What all threads share: buckets, settings in force, counters.

use super::{
    clock::Clock,
    delay::Random,
    limits::{Pipe, Requests},
    operation::Op,
    report::{self, Counters, Report},
    settings::Settings,
    space::Bucket,
    synthetic::SyntheticContent,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

/// Settings in force, with the state of their limits.
#[derive(Debug)]
pub struct Active {
    /// The settings.
    pub settings: Settings,
    /// Limits of all, of reading and of writing requests.
    limits: [Option<Arc<Requests>>; 3],
    /// To the server.
    pub pipe_in: Arc<Pipe>,
    /// From it.
    pub pipe_out: Arc<Pipe>,
}

impl Active {
    /// Settings that take the place of others: limits that stay the same go on from where they are.
    fn new(settings: Settings, before: Option<&Active>) -> Active {
        let rates =
            [settings.requests_per_second, settings.read_requests_per_second, settings.write_requests_per_second];
        let limits = std::array::from_fn(|at| {
            let rate = rates[at]?;
            let kept = before.and_then(|b| b.limits[at].clone()).filter(|limit| limit.rate() == rate);
            Some(kept.unwrap_or_else(|| Arc::new(Requests::new(rate))))
        });
        let same = |before: &Active| {
            (before.settings.rate_in, before.settings.rate_out) == (settings.rate_in, settings.rate_out)
        };
        let pipes = before.filter(|b| same(b)).map(|b| (b.pipe_in.clone(), b.pipe_out.clone()));
        let (pipe_in, pipe_out) = pipes.unwrap_or_default();
        Active { settings, limits, pipe_in, pipe_out }
    }

    /// True if a request may go on now.
    pub fn admits(&self, op: Op, now: Duration) -> bool {
        let kind = if op.reads() { &self.limits[1] } else { &self.limits[2] };
        [&self.limits[0], kind].into_iter().flatten().all(|limit| limit.take(now))
    }

    /// How long a request takes from its end to the beginning of its answer.
    pub fn delay(&self, op: Op, random: &Random) -> Duration {
        let settings = &self.settings;
        let more = if op.reads() { settings.read_latency } else { settings.write_latency };
        settings.latency.draw(random) + more.draw(random)
    }
}

/// Settings by name, for the endpoint or one bucket.
pub type Changes = Vec<(String, String)>;

/// Everything.
#[derive(Debug)]
pub struct Cloud {
    /// When it was started.
    pub start: Instant,
    /// To wait by.
    pub clock: Clock,
    /// The settings of buckets without their own.
    active: RwLock<Arc<Active>>,
    /// Settings that buckets changed, and those in force there.
    own: RwLock<BTreeMap<String, (Changes, Arc<Active>)>>,
    buckets: RwLock<BTreeMap<String, Arc<Bucket>>>,
    /// Counters.
    pub counters: Counters,
    /// Draws.
    pub random: Random,
}

fn read<T: ?Sized>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T: ?Sized>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

impl Cloud {
    /// With the settings' buckets.
    pub fn new(settings: Settings, clock: Clock) -> Cloud {
        let now = report::now_ms();
        let bucket =
            |(name, made): &(String, Option<SyntheticContent>)| (name.clone(), Arc::new(Bucket::new(*made, now)));
        Cloud {
            start: Instant::now(),
            clock,
            buckets: RwLock::new(settings.buckets.iter().map(bucket).collect()),
            own: RwLock::default(),
            counters: Counters::new(settings.log),
            random: Random::new(settings.seed),
            active: RwLock::new(Arc::new(Active::new(settings, None))),
        }
    }

    /// What is in force for a bucket.
    pub fn active(&self, bucket: &str) -> Arc<Active> {
        let own = read(&self.own);
        if !own.is_empty()
            && let Some((_, active)) = own.get(bucket)
        {
            return active.clone();
        }
        drop(own);
        read(&self.active).clone()
    }

    /// Changes settings, of the endpoint or one bucket.
    ///
    /// Errors: a setting is unknown, wrong, or can't be changed now; then none is changed.
    pub fn set(&self, bucket: Option<&str>, changes: &[(String, String)]) -> Result<(), String> {
        for (name, _) in changes {
            let fixed = super::settings::FLAGS.iter().any(|flag| flag.name == name && !flag.later);
            if fixed || (bucket.is_some() && matches!(&name[..], "seed" | "max-connections")) {
                return Err(format!("{name} can't be changed {}", if fixed { "later" } else { "for one bucket" }));
            }
        }
        let apply = |base: &Settings, changes: &[(String, String)]| {
            let mut settings = base.clone();
            changes.iter().try_for_each(|(name, value)| settings.set(name, value))?;
            Ok::<_, String>(settings)
        };
        let (mut own, mut active) = (write(&self.own), write(&self.active));
        if let Some(bucket) = bucket {
            let (mut all, before) = own.get(bucket).cloned().unwrap_or_else(|| (Vec::new(), active.clone()));
            all.extend(changes.iter().cloned());
            let settings = apply(&active.settings, &all)?;
            own.insert(bucket.to_owned(), (all, Arc::new(Active::new(settings, Some(&before)))));
            return Ok(());
        }
        let settings = apply(&active.settings, changes)?;
        let mut rest = Vec::new();
        for (name, (own, before)) in own.iter() {
            rest.push((name.clone(), (own.clone(), Arc::new(Active::new(apply(&settings, own)?, Some(before))))));
        }
        own.extend(rest);
        if changes.iter().any(|(name, _)| name == "seed") {
            self.random.restart(settings.seed);
        }
        *active = Arc::new(Active::new(settings, Some(&active)));
        Ok(())
    }

    /// A bucket.
    pub fn bucket(&self, name: &str) -> Option<Arc<Bucket>> {
        read(&self.buckets).get(name).cloned()
    }

    /// Names of all buckets, and when they were made (milliseconds since 1970).
    pub fn buckets(&self) -> Vec<(String, u64)> {
        read(&self.buckets).iter().map(|(name, bucket)| (name.clone(), bucket.created)).collect()
    }

    /// Makes a bucket; false if it is there.
    pub fn create(&self, name: &str) -> bool {
        let mut buckets = write(&self.buckets);
        if buckets.contains_key(name) {
            return false;
        }
        buckets.insert(name.to_owned(), Arc::new(Bucket::new(None, report::now_ms())));
        true
    }

    /// Makes a bucket, or makes it anew.
    pub fn replace(&self, name: &str, made: Option<SyntheticContent>) {
        let bucket = Arc::new(Bucket::new(made, report::now_ms()));
        let before = write(&self.buckets).insert(name.to_owned(), bucket);
        free(before);
    }

    /// Drops a bucket with all that it holds; false if it isn't there.
    pub fn drop_bucket(&self, name: &str) -> bool {
        let before = write(&self.buckets).remove(name);
        let was = before.is_some();
        free(before);
        was
    }

    /// What happened.
    pub fn report(&self) -> Report {
        let unfinished = read(&self.buckets).values().map(|bucket| bucket.uploads().len() as u64).sum();
        self.counters.report(self.active("").settings.price, unfinished)
    }
}

/// Millions of keys take their time to free: nobody waits for it.
fn free(bucket: Option<Arc<Bucket>>) {
    std::thread::spawn(move || drop(bucket));
}
