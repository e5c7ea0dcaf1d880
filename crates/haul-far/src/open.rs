//! The kind of store, its options, and what it can do.

use crate::{
    Far, FarStore, Line,
    dial::{self, Dial, OverSsh, ShellCommand},
    message::Folder,
    serve::SIGN_OF_LIFE,
};
use haul_core::{Error, ErrorKind, Result};
use haul_ssh::{
    Ssh,
    options::{and, text, value},
};
use haul_store::{Caps, Changed, Domain, OpenRequest, OptionSpec, PartLimits, Store, StoreKind};
use std::{sync::Arc, time::Duration};
use tokio::sync::{Mutex, Semaphore};

/// The kind.
pub const KIND: StoreKind = StoreKind {
    name: "far",
    description: "A folder of another machine that has haul too, over any command that leads there",
    options: OPTIONS,
    open,
};

const OPTIONS: &[OptionSpec] = &and::<2, 24>([
    text(
        "haul_path",
        "What runs haul there, such as `~/haul` or `sudo haul`. Blank means haul in the PATH, ~/.local/bin or ~/bin.",
        true,
    ),
    text(
        "command",
        "Command for sh that runs haul far on the other machine and leads there with its standard input and output, such as \
         \"kubectl exec -i pod -- haul far\", in place of all options above.",
        false,
    ),
]);

/// A file up to this size goes as one message.
pub const SMALL: u64 = 1 << 20;

/// Bytes of content on their way to the far end: what a link of 1 GB/s holds in 60 ms.
const ON_THE_WAY: usize = 64 << 20;

/// Requests at once, where the user doesn't say.
const AT_ONCE: usize = 64;

/// Small files whose answers may be on their way.
const GATHERS: usize = 512;

fn open(request: OpenRequest) -> Result<Arc<dyn Store>> {
    let command = value(&request, "command");
    if !command.trim().is_empty() {
        return open_on(&request, Arc::new(ShellCommand(command.to_owned())), &format!("far {command}"));
    }
    if [value(&request, "host"), value(&request, "ssh")].iter().all(|way| way.is_empty()) {
        let why = "set host to a machine that ssh leads to, or command to what runs haul far on it";
        return Err(Error::new(ErrorKind::Invalid, "open", why));
    }
    let ssh = haul_ssh::options::way(&request)?;
    let path = Some(value(&request, "haul_path")).filter(|path| !path.is_empty());
    let dial = OverSsh { command: dial::command(path), ssh: Ssh::clone(&ssh) };
    let domain = format!("far {:?} {}", ssh.target(), dial.command);
    open_on(&request, Arc::new(dial), &domain)
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
    // The far end starts in the user's home.
    let path = request.path.strip_prefix(b"~/").or((request.path == b"~").then_some(&b""[..])).unwrap_or(&request.path);
    let path = if path.is_empty() { b".".to_vec() } else { path.to_vec() };
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
