//! The kind of store, its options, and what it can do.

use crate::{
    Far, FarStore, Line,
    dial::{Dial, ShellCommand},
    message::Folder,
    serve::SIGN_OF_LIFE,
};
use haul_core::{Error, ErrorKind, Result};
use haul_store::{Caps, Changed, Domain, OpenRequest, OptionKind, OptionSpec, PartLimits, Store, StoreKind};
use std::{sync::Arc, time::Duration};
use tokio::sync::{Mutex, Semaphore};

/// The kind.
pub const KIND: StoreKind = StoreKind {
    name: "far",
    description: "A folder of another machine that has haul too, over any command that leads there",
    options: OPTIONS,
    open,
};

const OPTIONS: &[OptionSpec] = &[OptionSpec {
    name: "command",
    help: "Command for sh that runs haul far on the other machine and leads there with its standard input and output, such as \
           \"ssh host haul far\" or \"kubectl exec -i pod -- haul far\".",
    default: "",
    kind: OptionKind::Text,
    advanced: false,
    secret: false,
    examples: &[],
}];

/// A file up to this size goes as one message.
pub const SMALL: u64 = 1 << 20;

/// Bytes of content on their way to the far end: what a link of 1 GB/s holds in 60 ms.
const ON_THE_WAY: usize = 64 << 20;

/// Requests at once, where the user doesn't say.
const AT_ONCE: usize = 64;

/// Small files whose answers may be on their way.
const GATHERS: usize = 512;

fn open(request: OpenRequest) -> Result<Arc<dyn Store>> {
    let command = request.options.get("command").filter(|command| !command.trim().is_empty());
    let command = command.ok_or_else(|| {
        let why = "set command to what runs haul far on the other machine, such as \"ssh host haul far\"";
        Error::new(ErrorKind::Invalid, "open", why)
    })?;
    let dial = Arc::new(ShellCommand(command.clone()));
    open_on(&request, dial, &format!("far {command}"))
}

/// Opens a folder on a connection that `dial` makes. Stores of the same `domain` are on the same machine.
///
/// Errors: the path has a zero byte.
pub fn open_on(request: &OpenRequest, dial: Arc<dyn Dial>, domain: &str) -> Result<Arc<dyn Store>> {
    let shown = String::from_utf8_lossy(&request.path);
    if request.path.contains(&0) {
        let why = format!("{}: a path can't contain a zero byte", shown.escape_debug());
        return Err(Error::new(ErrorKind::Invalid, "open", why));
    }
    let path = if request.path.is_empty() { b".".to_vec() } else { request.path.clone() };
    let place = Domain { name: domain.to_owned(), place: path.clone().into(), on_device: None };
    let locator = format!("{}:{shown}", request.remote);
    let line = request.shared.get(domain, || {
        let (channel, on_the_way) = (Mutex::default(), Arc::new(Semaphore::new(ON_THE_WAY)));
        let idle = request.net.idle_timeout.max(2 * SIGN_OF_LIFE);
        Ok(Line { dial, patience: request.net.connect_timeout, idle, channel, on_the_way })
    })?;
    let folder = Folder { path, links: request.links, own_links: request.own_links };
    let far = Far { line, folder, opened: Mutex::default(), meters: request.meters.clone() };
    Ok(Arc::new(FarStore { far: Arc::new(far), caps: caps(place, request.links.tells()), locator }))
}

fn caps(domain: Domain, symlinks: bool) -> Caps {
    Caps {
        mtime: Some(Duration::from_nanos(1)),
        set_mtime: true,
        set_dir_mtime: true,
        mtime_listed: true,
        // Inodes of another machine: what is remembered of this one's must not be taken for theirs.
        changed: Changed::Unknown,
        dirs: true,
        symlinks,
        keeps_empty_dirs: true,
        hashes_listed: Vec::new(),
        hashes_stored: Vec::new(),
        cheap_reads: false,
        files: false,
        relays: false,
        parts: Some(PartLimits { single: SMALL, ..PartLimits::FILE }),
        domain: Some(domain),
        delete_batch: 1000,
        copy_batch: 64,
        conditional: true,
        deletes_version: true,
        page: None,
        case_insensitive: false,
        meta: true,
        attributes: None,
        concurrency: AT_ONCE,
        gathers: GATHERS,
        lanes: None,
    }
}

/// So many bytes of content count as on their way.
pub fn weight(bytes: u64) -> u32 {
    bytes.clamp(1, ON_THE_WAY as u64) as u32
}
