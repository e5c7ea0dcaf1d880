//! Hosts that the user's own ssh leads to: haul at the other end where it answers, else SFTP. Both go in one login.

use haul_core::{Error, ErrorKind, Result};
use haul_ssh::options::value;
use haul_store::{Links, OpenRequest, OptionKind, OptionSpec, Store, StoreKind, joined};
use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};
use tokio::runtime::{Handle, RuntimeFlavor};

/// SFTP, or better.
pub const SFTP: StoreKind = StoreKind {
    description: "Any host that your ssh reaches: haul at the other end where it is, else SFTP",
    options: OPTIONS,
    open,
    ..haul_sftp::KIND
};

/// haul at the other end, whose rights are known when it is opened.
pub const FAR: StoreKind = StoreKind { open: open_far, ..haul_far::KIND };

const OWN: [OptionSpec; 4] = [
    OptionSpec {
        name: "protocol",
        help: "How to talk to the host: far (haul there), sftp, or auto: haul where it answers, else SFTP.",
        default: "auto",
        kind: OptionKind::Text,
        advanced: true,
        secret: false,
        examples: &[
            ("auto", "haul there, else SFTP"),
            ("far", "haul there, or an error"),
            ("sftp", "SFTP without asking for haul"),
        ],
    },
    haul_far::HAUL_PATH,
    haul_far::INSTALL,
    haul_far::TCP,
];

const COUNT: usize = haul_sftp::KIND.options.len() + OWN.len();

const OPTIONS: &[OptionSpec] = &joined::<COUNT>(haul_sftp::KIND.options, &OWN);

/// Options that only SFTP has: who sets one means SFTP. Each beside the value that says nothing.
const SFTPS: [(&str, &str); 6] = [
    ("subsystem", "sftp"),
    ("server_command", ""),
    ("chunk_size", ""),
    ("connections", "0"),
    ("set_modtime", "true"),
    ("copy_is_hardlink", "false"),
];

/// Errors of a log-in, not of what speaks there.
const LOGIN_FAILS: [ErrorKind; 5] =
    [ErrorKind::Unauthenticated, ErrorKind::Unreachable, ErrorKind::Timeout, ErrorKind::Busy, ErrorKind::Denied];

/// How a host is talked to, as it turned out; nothing where nobody asked yet.
type Way = OnceLock<bool>;

/// The type of store and the options for a host that people reach without configuring it: `user@host`, or one that the user's ssh
/// config knows. ssh is asked.
pub fn unconfigured(name: &str) -> Option<(String, BTreeMap<String, String>)> {
    let option = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let options = match name.rsplit_once('@') {
        Some((user, host)) if !user.is_empty() && !host.is_empty() => {
            [option("user", user), option("host", host)].into()
        }
        Some(_) => return None,
        None if haul_ssh::is_known(name) => [option("host", name)].into(),
        None => return None,
    };
    Some((SFTP.name.to_owned(), options))
}

fn open(request: OpenRequest) -> Result<Arc<dyn Store>> {
    let far = match value(&request, "protocol") {
        "sftp" => false,
        "far" => true,
        "" | "auto" if SFTPS.iter().any(|(name, plain)| !["", plain].contains(&value(&request, name))) => false,
        "" | "auto" => answers(&request)?,
        other => {
            let why = format!("{}: protocol can be auto, far or sftp, not {other:?}", request.remote);
            return Err(Error::new(ErrorKind::Invalid, "open", why));
        }
    };
    if !far {
        return (haul_sftp::KIND.open)(request);
    }
    connect(&request)?;
    // Links are what they lead to, as by SFTP, where the other end may follow them.
    let skips = value(&request, "skip_links") == "true" || haul_far::is_confined(&request)?;
    let links = if request.links == Links::Skip && !skips { Links::Follow } else { request.links };
    (haul_far::KIND.open)(OpenRequest { links, ..request })
}

/// Whether haul answers there; asked once for each host of a run, and told.
fn answers(request: &OpenRequest) -> Result<bool> {
    let ssh = haul_ssh::options::way(request)?;
    let name = format!(
        "protocol of {:?} {}",
        ssh.target(),
        [value(request, "haul_path"), value(request, "install_far_end")].join(" ")
    );
    let way = request.shared.get(&name, || Ok(Way::new()))?;
    Ok(*way.get_or_init(|| match waited(ask(request)) {
        Some(Ok(())) => {
            tracing::info!("{}: haul answers there", ssh.shown());
            true
        }
        Some(Err(Some(error))) => {
            tracing::warn!("{}: going by SFTP, which is slower: {}", ssh.shown(), error.message());
            false
        }
        Some(Err(None)) | None => false,
    }))
}

/// Logs in and asks for haul.
///
/// Errors: why it can't be had; nothing where SFTP will say that.
async fn ask(request: &OpenRequest) -> Result<(), Option<Error>> {
    // SFTP's session logs in: a host without haul then needs no second login.
    match haul_sftp::log_in(request).await {
        Ok(()) => haul_far::connect(request).await.map_err(Some),
        // Nobody can log in.
        Err(error) if LOGIN_FAILS.contains(&error.kind()) => Err(None),
        // A host that may have nothing but haul for us.
        Err(_) => haul_far::connect(request).await.map_err(|_| None),
    }
}

fn open_far(request: OpenRequest) -> Result<Arc<dyn Store>> {
    connect(&request)?;
    (haul_far::KIND.open)(request)
}

/// Connects before the store is opened, as what it can do depends on the other end.
fn connect(request: &OpenRequest) -> Result<()> {
    waited(haul_far::connect(request)).unwrap_or(Ok(()))
}

/// Waits for what needs other threads to go on; `None` where there are none. Opening is done before anything else is under way.
fn waited<T>(work: impl Future<Output = T>) -> Option<T> {
    let runtime = Handle::try_current().ok()?;
    let threads = runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
    threads.then(|| tokio::task::block_in_place(|| runtime.block_on(work)))
}
