//! The kind of store, its options, and what it can do.

use crate::{
    Far, FarStore, Line,
    compression::{ALL_LEVELS, Compression, Packing},
    dial::{Dial, OverSsh, ShellCommand},
    listen_address::Ports,
    message::Folder,
    serve::SIGN_OF_LIFE,
};
use haul_core::{Error, ErrorKind, Result};
use haul_ssh::{
    Ssh,
    options::{HOST, flag, number, text, value},
};
use haul_store::{
    Caps, ChangedMeaning, Domain, OpenRequest, OptionKind, OptionSpec, PartLimits, Store, StoreKind, joined,
};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::sync::{Mutex, Semaphore};

/// The kind.
pub const KIND: StoreKind = StoreKind {
    name: "far",
    description: "A directory on another machine that has haul, through any command that connects to it",
    options: OPTIONS,
    open,
};

/// The option that says where haul is at a host, of every kind of store that looks for it.
pub const HAUL_PATH: OptionSpec = text(
    "haul_path",
    "Command that runs haul on the host, such as `~/haul` or `sudo haul`. Blank means haul in the PATH, ~/.local/bin or ~/bin.",
    true,
);

/// The option that puts this program there, likewise.
pub const INSTALL: OptionSpec = flag(
    "install_far_end",
    "Install this haul in ~/.cache/haul/far on the host, unless it is there already, and run it.",
    "false",
);

/// The option that moves content over TCP, likewise.
pub const TCP: OptionSpec = OptionSpec {
    name: "tcp",
    help: "Port that haul on the host may open during the job: content then goes by TCP and TLS, and ssh only sets up \
           the connection. Blank means none.",
    default: "",
    kind: OptionKind::Text,
    advanced: true,
    secret: false,
    examples: &[("auto", "any free port"), ("50000-50100", "one of these"), ("50000", "this one")],
};

const OPTIONS: &[OptionSpec] = &joined::<28>(
    &HOST,
    &[
        HAUL_PATH,
        INSTALL,
        TCP,
        text(
            "command",
            "Shell command that runs haul far on the other machine and connects its standard input and output, such as \
         \"kubectl exec -i pod -- haul far\", instead of all options above.",
            false,
        ),
        text(
            "compress",
            "When to compress data in both directions: auto (if the link is slow, the default), on, off.",
            true,
        ),
        number("compress_level", "Level of zstd, -7 to 22. Blank means one that suits the link.", ""),
    ],
);

/// A file up to this size goes as one message.
pub const SMALL: u64 = 1 << 20;

/// Bytes of content on their way to the far end: what a link of 1 GB/s holds in 60 ms.
const ON_THE_WAY: usize = 64 << 20;

/// Requests at once, where the user doesn't say: 20,000 small files a second over 50 ms. Bytes are limited by themselves.
const AT_ONCE: usize = 1024;

/// Small files whose answers may be on their way: 40,000 a second over 50 ms.
const GATHERS: usize = 2048;

fn open(request: OpenRequest) -> Result<Arc<dyn Store>> {
    let (dial, domain) = way(&request)?;
    open_on(&request, dial, &domain)
}

/// Connects, for callers that need the far end's abilities before a store is opened there.
///
/// Errors: no haul can be reached.
pub async fn connect(request: &OpenRequest) -> Result<()> {
    let (dial, domain) = way(request)?;
    line(request, dial, &domain)?.channel().await.map(drop)
}

/// True where the connected far end serves one folder only.
///
/// Errors: the options name no far end.
pub fn is_confined(request: &OpenRequest) -> Result<bool> {
    let (dial, domain) = way(request)?;
    Ok(line(request, dial, &domain)?.about.get().is_some_and(|about| about.confined))
}

/// How the far end is reached, and what tells it from others.
fn way(request: &OpenRequest) -> Result<(Arc<dyn Dial>, String)> {
    let command = value(request, "command");
    if !command.trim().is_empty() {
        return Ok((Arc::new(ShellCommand(command.to_owned())), format!("far {command}")));
    }
    if [value(request, "host"), value(request, "ssh")].iter().all(|way| way.is_empty()) {
        let why = "set host to a machine that ssh leads to, or command to what runs haul far on it";
        return Err(Error::new(ErrorKind::Invalid, "open", why));
    }
    let ssh = haul_ssh::options::way(request)?;
    let path = Some(value(request, "haul_path").to_owned()).filter(|path| !path.is_empty());
    let dial = OverSsh { ssh: Ssh::clone(&ssh), path, install: value(request, INSTALL.name) == "true" };
    let domain = format!("far {:?} {:?} {}", ssh.target(), dial.path, dial.install);
    Ok((Arc::new(dial), domain))
}

/// The connection shared by all stores that go there.
fn line(request: &OpenRequest, dial: Arc<dyn Dial>, domain: &str) -> Result<Arc<Line>> {
    let (packing, ports) = (packing(request)?, ports(request)?);
    // Connections with and without ports are separate.
    let name = ports.map_or_else(|| domain.to_owned(), |ports| format!("{domain} by TCP {ports}"));
    request.shared.get(&name, || {
        let (channel, on_the_way) = (Mutex::default(), Arc::new(Semaphore::new(ON_THE_WAY)));
        let idle = request.net.idle_timeout.max(2 * SIGN_OF_LIFE);
        let (patience, about) = (request.net.connect_timeout, OnceLock::new());
        let (refused, barred) = (Arc::default(), Arc::default());
        Ok(Line { dial, packing, ports, patience, idle, channel, about, on_the_way, refused, barred })
    })
}

/// Ports that the far end may listen on; `None` where it is asked for none.
///
/// Errors: the option can't be meant.
fn ports(request: &OpenRequest) -> Result<Option<Ports>> {
    let text = value(request, TCP.name).trim();
    if text.is_empty() {
        return Ok(None);
    }
    let why = || {
        format!("{}: tcp = {text:?}: use auto, a port, or the first and the last such as 50000-50100", request.remote)
    };
    Ports::parse(text).map(Some).ok_or_else(|| Error::new(ErrorKind::Invalid, "open", why()))
}

/// Compression options.
///
/// Errors: an option is invalid.
fn packing(request: &OpenRequest) -> Result<Packing> {
    let invalid = |why: String| Error::new(ErrorKind::Invalid, "open", format!("{}: {why}", request.remote));
    let option = |name: &str| request.options.get(name).map(|value| value.trim()).filter(|value| !value.is_empty());
    let when = match option("compress").unwrap_or("auto") {
        "auto" => Compression::Slow,
        "on" => Compression::Always,
        "off" => Compression::Never,
        other => return Err(invalid(format!("compress = {other:?}: use auto, on or off"))),
    };
    let level = option("compress_level").map(|text| {
        let level = text.parse().ok().filter(|level| ALL_LEVELS.contains(level) && *level != 0);
        level.ok_or_else(|| invalid(format!("compress_level = {text:?}: zstd has -7 to -1 and 1 to 22")))
    });
    Ok(Packing { when, level: level.transpose()?, history: true })
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
    let line = line(request, dial, domain)?;
    let rights = line.about.get().and_then(|about| about.rights.clone());
    let folder = Folder { path, links: request.links, own_links: request.own_links };
    let far = Far { line, folder, opened: Mutex::default(), meters: request.meters.clone() };
    // It hashes where the bytes lie.
    let cheap_reads = rights.is_some();
    let caps = Caps { attributes: rights, cheap_reads, ..caps(place, request.links.tells()) };
    Ok(Arc::new(FarStore { far: Arc::new(far), caps, locator }))
}

fn caps(domain: Domain, symlinks: bool) -> Caps {
    Caps {
        mtime: Some(Duration::from_nanos(1)),
        set_mtime: true,
        set_dir_mtime: true,
        mtime_listed: true,
        // Inodes of another machine: what is remembered of this one's must not be taken for theirs.
        changed: ChangedMeaning::Unknown,
        dirs: true,
        symlinks,
        keeps_empty_dirs: true,
        hashes_listed: Vec::new(),
        hashes_stored: Vec::new(),
        cheap_reads: false,
        written_in_place: true,
        listing_may_omit: false,
        files: false,
        relays: false,
        parts: Some(PartLimits { single: SMALL, ..PartLimits::FILE }),
        domain: Some(domain),
        place: None,
        renames: true,
        renames_dirs: false,
        delete_batch: 1000,
        copy_batch: 64,
        conditional: true,
        deletes_version: true,
        page: None,
        case_insensitive: false,
        meta: true,
        attributes: None,
        modes: false,
        concurrency: AT_ONCE,
        gathers: GATHERS,
        rests_on: Vec::new(),
    }
}

/// So many bytes of content count as on their way.
pub fn weight(bytes: u64) -> u32 {
    bytes.clamp(1, ON_THE_WAY as u64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dial::{Call, Pipe},
        frame::crossing,
        handshake,
        message::Request,
    };
    use futures::future::BoxFuture;
    use handshake::About;
    use tokio::{
        io::{DuplexStream, duplex, split},
        sync::mpsc,
    };

    /// A far end that says this of itself, and hands on the pipe once it has greeted.
    #[derive(Debug)]
    struct Says(About, mpsc::UnboundedSender<DuplexStream>);

    impl Dial for Says {
        fn dial(&self) -> BoxFuture<'_, Result<Call>> {
            Box::pin(async {
                let (near, mut far) = duplex(1 << 20);
                let (about, greeted) = (self.0.clone(), self.1.clone());
                tokio::spawn(async move {
                    let heard = handshake::hear(&mut far).await.unwrap().unwrap();
                    assert!(heard.packing().keeps(), "what it wishes");
                    handshake::answer(heard, &mut far, about).await.unwrap();
                    greeted.send(far).unwrap();
                });
                let (input, output) = split(near);
                Ok(Call::Pipes(Pipe { input: Box::new(input), output: Box::new(output), end: None }))
            })
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_folder_costs_no_round_trip_where_the_far_end_opens_it_along() {
        for (opens_along, first) in [(true, "Stat"), (false, "Open")] {
            let (greeted, mut far) = mpsc::unbounded_channel();
            let dial = Arc::new(Says(About { opens_along, ..About::default() }, greeted));
            let request = OpenRequest { path: b"folder".to_vec(), ..OpenRequest::default() };
            let store = open_on(&request, dial, "along").unwrap();
            let pending = tokio::spawn(async move { store.stat(&haul_core::Key::new("f")).await });
            let (_, body) = crossing(&mut far.recv().await.unwrap()).await;
            let says = |word: &str| body.windows(word.len()).any(|part| part == word.as_bytes());
            assert!(says(first) && says("folder"), "{opens_along}");
            pending.abort();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_far_end_is_sent_frames_as_it_knows_them() {
        let text: Vec<u8> =
            (0..).flat_map(|n: u32| format!("line {n} of a log\n").into_bytes()).take(1 << 20).collect();
        let old = About { packs: true, ..About::default() };
        for (about, code) in [(About { history: true, ..old.clone() }, 0xc3), (old, 0x83), (About::default(), 3)] {
            let (greeted, mut far) = mpsc::unbounded_channel();
            let options = [("compress".to_owned(), "on".to_owned())].into();
            let request = OpenRequest { options, ..OpenRequest::default() };
            let line = line(&request, Arc::new(Says(about, greeted)), "old").unwrap();
            let channel = line.channel().await.unwrap();
            let mut far = far.recv().await.unwrap();
            let room = channel.room(1).await;
            let exchange =
                room.ask(&1.into(), &Request::Part { upload: 1, index: 0, offset: 0, size: 1 << 20 }).unwrap();
            exchange.send(text.clone().into()).await.unwrap();
            let mut codes = Vec::new();
            while codes.len() < 4 {
                codes.extend(Some(crossing(&mut far).await.0[4]).filter(|code| code & 0x3f == 3));
            }
            assert_eq!(codes, [code; 4]);
        }
    }
}
