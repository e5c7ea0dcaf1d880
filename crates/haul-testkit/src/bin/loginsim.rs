//! Clouds that people log in to, for benchmarks and tries by hand: `loginsim drive|dropbox|onedrive|box|azure [NAME=NUMBER…]`. `latency` is
//! in milliseconds; `rate` a second is of creations at Drive, of changes at Dropbox, of requests at OneDrive and Box; `folders` of ten files each
//! are at Drive, `names` at Azure. It tells one line of JSON: options of a config section and, for clients whose hosts are fixed, by which
//! proxy and with which certificate. The line `files` makes it tell all files with their bytes and versions, any other what was asked for
//! since. It ends with its standard input.

use haul_testkit::{
    azuresim::{self, AzureSim},
    boxsim::{self, BoxSim},
    drivesim::{self, DriveSim},
    dropboxsim::{self, Dropbox},
    interceptor::Interceptor,
    lab::Lab,
    onedrivesim::{self, OneDrive},
};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, env, io, net::SocketAddr, time::Duration};

/// Files of a folder that is made beforehand.
const OF_FOLDER: usize = 10;
/// Folders of a folder.
const FOLDERS: usize = 100;

/// What is served.
struct Service {
    options: Value,
    /// Hosts that clients can't be told another address for, and where that is.
    hosts: Vec<(&'static str, SocketAddr)>,
    /// What was asked for since the last call.
    counts: Box<dyn Fn() -> Value>,
    files: Box<dyn Fn() -> Value>,
}

struct Words(BTreeMap<String, f64>);

impl Words {
    fn rate(&self) -> Option<f64> {
        self.0.get("rate").copied()
    }

    fn latency(&self) -> Duration {
        Duration::from_secs_f64(self.0.get("latency").copied().unwrap_or_default() / 1e3)
    }

    fn count(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default() as u64
    }
}

fn main() -> io::Result<()> {
    let kind = env::args().nth(1).unwrap_or_default();
    let number = |word: String| -> Option<_> {
        let (name, value) = word.split_once('=')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    let words = Words(env::args().skip(2).filter_map(number).collect());
    let service = match &*kind {
        "drive" => drive(&words),
        "dropbox" => dropbox(&words)?,
        "onedrive" => onedrive(&words)?,
        "box" => of_box(&words)?,
        "azure" => azure(&words),
        _ => return Err(io::Error::other("type loginsim drive|dropbox|onedrive|box|azure [NAME=NUMBER...]")),
    };
    let lab = Lab::new("");
    let interceptor = match &*service.hosts {
        [] => None,
        hosts => Interceptor::start(&lab, hosts),
    };
    let mut settings = json!({"options": service.options});
    if let Some(interceptor) = &interceptor {
        (settings["proxy"], settings["ca"]) = (interceptor.url().into(), interceptor.ca().display().to_string().into());
    }
    println!("loginsim {settings}");
    for line in io::stdin().lines() {
        let settings = if line? == "files" { (service.files)() } else { (service.counts)() };
        println!("{settings}");
    }
    Ok(())
}

fn counted(requests: impl IntoIterator<Item = (impl Into<String>, u64)>, throttled: u64, bytes: u64) -> Value {
    let requests: Map<String, Value> = requests.into_iter().map(|(kind, count)| (kind.into(), count.into())).collect();
    json!({"requests": requests, "throttled": throttled, "bytes": bytes})
}

fn drive(words: &Words) -> Service {
    let creations = words.rate().map(|rate| (rate, rate));
    let settings = drivesim::Settings { latency: words.latency(), creations, ..Default::default() };
    let sim = std::sync::Arc::new(DriveSim::start(settings));
    let mut outer = String::new();
    for number in 0..words.count("folders") as usize {
        if number % FOLDERS == 0 {
            outer = sim.add_folder("root", &format!("{:04}", number / FOLDERS));
        }
        let inner = sim.add_folder(&outer, &format!("{number:06}"));
        (0..OF_FOLDER).for_each(|file| drop(sim.add_file(&inner, &format!("{file}"), b"x")));
    }
    let options = json!({
        "type": "drive", "client_id": "app", "client_secret": "secret", "scope": "drive", "token": sim.token(),
        "token_url": format!("{}/token", sim.endpoint()),
    });
    let (hosts, of_counts) = (vec![("www.googleapis.com", sim.address())], sim.clone());
    let counts = move || {
        let counted_now = counted(of_counts.counts(), of_counts.throttled(), of_counts.uploaded());
        of_counts.reset_counts();
        counted_now
    };
    let files = move || sim.sizes("root").into_iter().map(|(path, size)| (path, json!([size, 1]))).collect();
    Service { options, hosts, counts: Box::new(counts), files: Box::new(files) }
}

fn dropbox(words: &Words) -> io::Result<Service> {
    let settings = dropboxsim::Settings { latency: words.latency(), writes: words.rate(), ..Default::default() };
    let sim = std::sync::Arc::new(Dropbox::start(settings)?);
    let options = json!({
        "type": "dropbox", "client_id": "app", "client_secret": "secret", "token": sim.token(),
    });
    let hosts = ["api.dropboxapi.com", "content.dropboxapi.com"].map(|host| (host, sim.address())).to_vec();
    let of_counts = sim.clone();
    let counts = move || {
        let counted_now = counted(of_counts.counts(), of_counts.throttled(), of_counts.sent());
        of_counts.reset_counts();
        counted_now
    };
    let files = move || {
        let all = sim.all().into_iter();
        all.filter_map(|(path, file)| Some((path[1..].to_owned(), json!([file?.len(), 1])))).collect()
    };
    Ok(Service { options, hosts, counts: Box::new(counts), files: Box::new(files) })
}

fn onedrive(words: &Words) -> io::Result<Service> {
    let settings = onedrivesim::Settings { latency: words.latency(), rate: words.rate(), ..Default::default() };
    let sim = std::sync::Arc::new(OneDrive::start(settings)?);
    let mut options: Map<String, Value> =
        sim.options(&sim.endpoint()).into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    options.insert("type".into(), "onedrive".into());
    let of_counts = sim.clone();
    let counts = move || {
        let requests = of_counts.counts().into_iter().map(|(kind, count)| (kind, count as u64));
        counted(requests, of_counts.throttled() as u64, of_counts.received())
    };
    let files = move || {
        let all = sim.shown().into_iter();
        all.filter_map(|(path, shown)| Some((path, json!([shown.size?, shown.versions])))).collect()
    };
    Ok(Service { options: options.into(), hosts: Vec::new(), counts: Box::new(counts), files: Box::new(files) })
}

fn of_box(words: &Words) -> io::Result<Service> {
    let settings = boxsim::Settings { latency: words.latency(), rate: words.rate(), ..Default::default() };
    let sim = std::sync::Arc::new(BoxSim::start(settings)?);
    let options = json!({
        "type": "box", "client_id": "app", "client_secret": "secret", "token": sim.token(),
        "token_url": format!("{}/oauth2/token", sim.endpoint()),
    });
    let hosts = ["api.box.com", "upload.box.com"].map(|host| (host, sim.address())).to_vec();
    let of_counts = sim.clone();
    let counts = move || {
        let requests = of_counts.counts().into_iter().map(|(kind, count)| (kind, count as u64));
        counted(requests, of_counts.throttled() as u64, of_counts.sent())
    };
    let files = move || {
        let all = sim.shown().into_iter();
        all.filter_map(|(path, shown)| Some((path, json!([shown.size?, shown.versions])))).collect()
    };
    Ok(Service { options, hosts, counts: Box::new(counts), files: Box::new(files) })
}

fn azure(words: &Words) -> Service {
    let sim = AzureSim::start(words.latency(), words.count("names"));
    let options = json!({
        "type": "azureblob", "account": azuresim::ACCOUNT, "key": azuresim::KEY, "endpoint": sim.account(),
    });
    let counts = move || counted([("ListBlobs", sim.pages())], 0, 0);
    Service { options, hosts: Vec::new(), counts: Box::new(counts), files: Box::new(|| json!({})) }
}
