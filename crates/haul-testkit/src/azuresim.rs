//! Azure Blob on loopback as far as a listing goes, after Microsoft's documentation: one container whose names are computed, so that it has
//! as many as one likes. Microsoft's own client and rclone list it. All else is tested on Azurite (`newer_azure.rs`).

use crate::serve::{Body, Server, answer, pairs};
use hyper::{Request, Response, StatusCode, body::Incoming, header::HeaderValue};
use percent_encoding::percent_decode_str;
use std::{
    fmt::Write as _,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

/// The account's name …
pub const ACCOUNT: &str = "devstoreaccount1";
/// … and its key, which is Azurite's and no secret.
pub const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
/// From this version of the service on a listing can begin at a name.
const BEGINS: &str = "2026-02-06";
/// When all blobs changed last.
const DATE: &str = "Wed, 01 Jan 2020 00:00:00 GMT";
/// Most names of a page.
const PAGE: u64 = 5000;

/// A running one.
#[derive(Debug)]
pub struct AzureSim {
    server: Server,
    pages: Arc<AtomicU64>,
}

impl AzureSim {
    /// Starts one whose container holds so many empty files: `0000/000000000` and on, a thousand a folder. Each answer takes so long.
    ///
    /// Panics if there is no port to be had.
    pub fn start(latency: Duration, names: u64) -> AzureSim {
        let pages = Arc::<AtomicU64>::default();
        let own = pages.clone();
        let serve = move |request, _| list(own.clone(), latency, names, request);
        // It has a runtime of its own, which no test's may start.
        let server = thread::spawn(move || Server::start(serve)).join().expect("no panic").expect("started");
        AzureSim { server, pages }
    }

    /// The address of the account.
    pub fn account(&self) -> String {
        format!("{}/{ACCOUNT}", self.server.endpoint())
    }

    /// Pages since the last call.
    pub fn pages(&self) -> u64 {
        self.pages.swap(0, SeqCst)
    }
}

fn name(number: u64) -> String {
    format!("{:04}/{number:09}", number / 1000)
}

/// The first of so many names that isn't before `text`.
fn first(names: u64, text: &str) -> u64 {
    let (mut low, mut high) = (0, names);
    while low < high {
        let middle = low + (high - low) / 2;
        if *name(middle) < *text { low = middle + 1 } else { high = middle }
    }
    low
}

async fn list(
    pages: Arc<AtomicU64>,
    latency: Duration,
    names: u64,
    request: Request<Incoming>,
) -> io::Result<Response<Body>> {
    tokio::time::sleep(latency).await;
    let query = pairs(request.uri().query().unwrap_or_default());
    let of = |name: &str| query.get(name).map_or("", String::as_str);
    if of("comp") == "list" {
        let version =
            request.headers().get("x-ms-version").and_then(|version| version.to_str().ok()).unwrap_or_default();
        if query.contains_key("startFrom") && version < BEGINS {
            return refuse(StatusCode::BAD_REQUEST, "InvalidQueryParameterValue");
        }
        pages.fetch_add(1, SeqCst);
        return told(StatusCode::OK, page(names, &of));
    }
    // Behind the account and the container comes a blob's name.
    let path = percent_decode_str(request.uri().path()).decode_utf8_lossy().into_owned();
    let mut response = answer(StatusCode::OK, String::new())?;
    if let Some(blob) = path.splitn(4, '/').nth(3).filter(|blob| !blob.is_empty() && !query.contains_key("restype")) {
        let at = first(names, blob);
        if at == names || name(at) != blob {
            return refuse(StatusCode::NOT_FOUND, "BlobNotFound");
        }
        for (name, value) in [("etag", tag(at)), ("last-modified", DATE.into()), ("x-ms-blob-type", "BlockBlob".into())]
        {
            response.headers_mut().insert(name, value.parse().map_err(io::Error::other)?);
        }
    }
    response.headers_mut().insert("x-ms-is-hns-enabled", HeaderValue::from_static("false"));
    Ok(response)
}

/// An answer in XML.
fn told(status: StatusCode, text: String) -> io::Result<Response<Body>> {
    let mut response = answer(status, text)?;
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/xml"));
    Ok(response)
}

fn refuse(status: StatusCode, code: &'static str) -> io::Result<Response<Body>> {
    let mut response =
        told(status, format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{code}</Message></Error>"))?;
    response.headers_mut().insert("x-ms-error-code", HeaderValue::from_static(code));
    Ok(response)
}

fn tag(number: u64) -> String {
    format!("0x{number:016X}")
}

/// A page of names, as the query asks for it.
fn page<'a>(names: u64, of: &impl Fn(&str) -> &'a str) -> String {
    let (prefix, most) = (of("prefix"), of("maxresults").parse().map_or(PAGE, |most: u64| most.min(PAGE)));
    let begin = of("marker").parse().unwrap_or_else(|_| first(names, prefix).max(first(names, of("startFrom"))));
    let (mut at, mut left, mut items) = (begin, most, String::new());
    while at < names && left > 0 && name(at).starts_with(prefix) {
        let name = name(at);
        at = match name[prefix.len()..].split_once('/').filter(|_| of("delimiter") == "/") {
            None => {
                let _ = write!(
                    items,
                    "<Blob><Name>{name}</Name><Properties><Last-Modified>{DATE}</Last-Modified>\
                     <Etag>{}</Etag><Content-Length>0</Content-Length><BlobType>BlockBlob</BlobType></Properties></Blob>",
                    tag(at)
                );
                at + 1
            }
            Some((folder, _)) => {
                let _ = write!(items, "<BlobPrefix><Name>{prefix}{folder}/</Name></BlobPrefix>");
                // A 0 comes after the slash.
                first(names, &format!("{prefix}{folder}0"))
            }
        };
        left -= 1;
    }
    let more = at < names && name(at).starts_with(prefix);
    let next = if more { at.to_string() } else { String::new() };
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults><Prefix>{prefix}</Prefix><Blobs>{items}</Blobs>\
         <NextMarker>{next}</NextMarker></EnumerationResults>"
    )
}
