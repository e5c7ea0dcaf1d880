//! Hosts that the user's own ssh leads to: haul at the other end where it answers, else SFTP. Both go in one login.

use haul_core::{Error, ErrorKind, Result, units::size_text};
use haul_ssh::options::value;
use haul_store::{Consent, Links, OpenRequest, OptionKind, OptionSpec, Store, StoreKind, joined};
use std::{collections::BTreeMap, sync::Arc};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Mutex,
};

/// SFTP, or better.
pub const SFTP: StoreKind = StoreKind {
    description: "Any host that your ssh reaches: by haul on that host if installed, else by SFTP",
    options: OPTIONS,
    open,
    ..haul_sftp::KIND
};

/// haul at the other end, whose rights are known when it is opened.
pub const FAR: StoreKind = StoreKind { open: open_far, ..haul_far::KIND };

const OWN: [OptionSpec; 4] = [
    OptionSpec {
        name: "protocol",
        help: "How to talk to the host: far (haul on the host), sftp, or auto: haul if it answers, else SFTP.",
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
    OptionSpec {
        help: "Install this haul in ~/.cache/haul/far on the host, unless it is there already, and run it. If unset, \
               haul asks on a terminal; with false it never asks.",
        ..haul_far::INSTALL
    },
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
type KnownProgram = Mutex<Option<FarProgram>>;

/// Program that answers at a host.
#[derive(Clone, Copy, Debug)]
enum FarProgram {
    Sftp,
    Far,
    /// haul, which this run has put there.
    Installed,
}

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
    let speaks = match value(&request, "protocol") {
        "sftp" => FarProgram::Sftp,
        "far" => FarProgram::Far,
        "" | "auto" if SFTPS.iter().any(|(name, plain)| !["", plain].contains(&value(&request, name))) => {
            FarProgram::Sftp
        }
        "" | "auto" => answers(&request)?,
        other => {
            let why = format!("{}: protocol can be auto, far or sftp, not {other:?}", request.remote);
            return Err(Error::new(ErrorKind::Invalid, "open", why));
        }
    };
    let request = match speaks {
        FarProgram::Sftp => return (haul_sftp::KIND.open)(request),
        FarProgram::Far => request,
        FarProgram::Installed => installing(&request),
    };
    connect(&request)?;
    // Links are what they lead to, as by SFTP, where the other end may follow them.
    let skips = value(&request, "skip_links") == "true" || haul_far::is_confined(&request)?;
    let links = if request.links == Links::Skip && !skips { Links::Follow } else { request.links };
    (haul_far::KIND.open)(OpenRequest { links, ..request })
}

/// The program that answers there; found out once for each host of a run, and reported.
///
/// Errors: the options lead nowhere; a person who was asked stopped the run.
fn answers(request: &OpenRequest) -> Result<FarProgram> {
    let ssh = haul_ssh::options::way(request)?;
    let name = format!(
        "protocol of {:?} {}",
        ssh.target(),
        [value(request, "haul_path"), value(request, "install_far_end")].join(" ")
    );
    let way = request.shared.get(&name, || Ok(KnownProgram::default()))?;
    let found = waited(async {
        // Others that open this host wait for the result.
        let mut known = way.lock().await;
        match *known {
            Some(speaks) => Ok(speaks),
            None => Ok(*known.insert(find(request, &ssh.shown()).await?)),
        }
    });
    found.unwrap_or(Ok(FarProgram::Sftp))
}

/// Finds out what speaks at a host, shown as `host`. If haul isn't there and may be put there, it is.
///
/// Errors: a person who was asked stopped the run.
async fn find(request: &OpenRequest, host: &str) -> Result<FarProgram> {
    let (mut answer, mut speaks) = (ask(request).await, FarProgram::Far);
    if let Err(Some(error)) = &answer
        && may_install(&request.options, request.consent.as_ref(), host, error).await?
    {
        (answer, speaks) = (haul_far::connect(&installing(request)).await.map_err(Some), FarProgram::Installed);
    }
    match answer {
        Ok(()) => {
            tracing::info!("{host}: haul answers there");
            return Ok(speaks);
        }
        Err(Some(error)) => tracing::warn!("{host}: going by SFTP, which is slower: {}", error.message()),
        Err(None) => {}
    }
    Ok(FarProgram::Sftp)
}

/// Asks whether haul may be put at a host where it isn't found, if the options say neither that nor where it is.
///
/// Errors: the person stopped the run.
pub async fn may_install(
    options: &BTreeMap<String, String>,
    consent: Option<&Consent>,
    host: &str,
    error: &Error,
) -> Result<bool> {
    let is_set = |option: &OptionSpec| options.get(option.name).is_some_and(|value| !value.is_empty());
    let configured = [haul_far::INSTALL, haul_far::HAUL_PATH].iter().any(is_set);
    let (Some(consent), Some(size), false) = (consent, haul_far::fits(error), configured) else { return Ok(false) };
    let size = size_text(size);
    let question =
        format!("haul isn't at {host}. Put this program ({size}) into ~/.cache/haul/far there, for full speed?");
    consent.ask(question).await
}

/// This request, with haul installed there.
fn installing(request: &OpenRequest) -> OpenRequest {
    let mut request = request.clone();
    request.options.insert(haul_far::INSTALL.name.to_owned(), "true".to_owned());
    request
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
