//! One place that builds, signs, sends and counts requests.

use super::{
    address::{self, Endpoint, ObjectAddress, encode_query},
    body,
    credentials::Source,
    error::{self, Fault, FaultResult},
    options::Config,
    provider::Checksum,
    sign::{self, Credentials, Signed, Signer},
};
use bytes::Bytes;
use haul_core::{Error, ErrorKind, Key, Result, Retry};
use haul_net::{Http, Reply, reach};
use haul_store::{Caps, Direction, Lanes, Meters, Net, Payload, body::Pieces, bucket::Root};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, RwLock, atomic::AtomicBool},
};
use tokio::sync::Semaphore;

/// Everything that requests need, shared by the store and its uploads and listings.
#[derive(Debug)]
pub struct Service {
    pub config: Config,
    pub root: Root,
    pub endpoint: Endpoint,
    pub caps: Caps,
    pub locator: String,
    pub http: Http<Pieces>,
    pub source: Source,
    pub net: Net,
    pub meters: Arc<Meters>,
    pub lanes: Arc<Lanes>,
    pub signer: Signer,
    pub region: RwLock<Arc<str>>,
    /// Buckets that were asked whether they take our keys and region, after a refusal that left it open; they do.
    pub keys_known: tokio::sync::Mutex<BTreeSet<String>>,
    /// Buckets that were missing and have been made, by the first write into each.
    pub buckets_made: tokio::sync::Mutex<BTreeSet<String>>,
    /// Buckets that an answer said are missing.
    pub buckets_missed: Mutex<BTreeSet<String>>,
    /// The server lists directory by directory: its provider does, or an answer said what server it is.
    pub lists_by_directory: AtomicBool,
    /// The server can't be asked for checksums with a read: it said so once.
    pub asks_no_checksums: AtomicBool,
    /// The server can't take parts whose checksum comes after them, or doesn't confirm them: the first of them showed so.
    pub takes_no_relays: AtomicBool,
    /// Set once a part was sent so.
    pub relays_tried: tokio::sync::OnceCell<()>,
    /// It has taken such a part.
    pub takes_relays: AtomicBool,
    /// Room for parts that are brought into memory instead, in MiB.
    pub gathering: Semaphore,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The rest may hold secrets.
        write!(f, "Config({}, {})", self.provider.name, self.endpoint)
    }
}

/// Parts of a request that the signature covers besides its headers.
struct Unsigned<'a> {
    path: &'a str,
    query: &'a str,
    payload_hash: &'a str,
}

/// One request to come.
pub struct Call<'a> {
    kind: &'static str,
    method: Method,
    bucket: Option<&'a str>,
    object: &'a [u8],
    /// Names and values, encoded.
    query: Vec<(&'static str, String)>,
    headers: HeaderMap,
    body: Payload,
    guarded: bool,
    /// A checksum follows the body.
    trailer: bool,
}

impl<'a> Call<'a> {
    /// A request to the service itself; `kind` is S3's name of it.
    pub fn service(kind: &'static str, method: Method) -> Call<'a> {
        Call {
            kind,
            method,
            bucket: None,
            object: b"",
            query: Vec::new(),
            headers: HeaderMap::new(),
            body: Payload::default(),
            guarded: false,
            trailer: false,
        }
    }

    /// A request to a bucket.
    pub fn bucket(kind: &'static str, method: Method, bucket: &'a str) -> Call<'a> {
        Call { bucket: Some(bucket), ..Call::service(kind, method) }
    }

    /// A request to a key.
    pub fn object(kind: &'static str, method: Method, place: &'a ObjectAddress) -> Call<'a> {
        let call = Call { object: &place.object, ..Call::bucket(kind, method, &place.bucket) };
        match &place.version {
            Some(id) => call.query("versionId", id),
            None => call,
        }
    }

    /// A request for the first `max` keys of a bucket with `prefix`.
    pub fn page(config: &Config, bucket: &'a str, prefix: &[u8], max: usize) -> Call<'a> {
        let kind = if config.list_v1 { "ListObjects" } else { "ListObjectsV2" };
        let mut call = Call::bucket(kind, Method::GET, bucket).query("max-keys", max.to_string());
        if !config.list_v1 {
            call = call.query("list-type", "2");
        }
        if config.list_url_encode {
            call = call.query("encoding-type", "url");
        }
        call.raw_query("prefix", prefix)
    }

    /// With a query parameter.
    pub fn query(self, name: &'static str, value: impl AsRef<str>) -> Self {
        self.raw_query(name, value.as_ref().as_bytes())
    }

    /// With a query parameter of any bytes.
    pub fn raw_query(mut self, name: &'static str, value: &[u8]) -> Self {
        self.query.push((name, encode_query(value)));
        self
    }

    /// With a header whose value is known to be legal (dropped otherwise).
    pub fn header(mut self, name: &'static str, value: impl AsRef<str>) -> Self {
        if let Ok(value) = HeaderValue::from_str(value.as_ref()) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    /// With more headers.
    pub fn headers(mut self, headers: HeaderMap) -> Self {
        self.headers.extend(headers);
        self
    }

    /// With a document as its body.
    pub fn document(self, xml: String) -> Self {
        let bytes = Bytes::from(xml);
        let md5 = body::base64_of(haul_core::Algo::Md5, &bytes);
        let mut this = self.header("content-md5", md5).header("content-type", "application/xml");
        this.body = bytes.into();
        this
    }

    /// With content as its body; `guarded` when a header carries its checksum.
    pub fn content(mut self, payload: Payload, guarded: bool) -> Self {
        (self.body, self.guarded) = (payload, guarded);
        self
    }

    /// With content of another store as its body, sent on as it comes; what checks it comes after it: `checksum` is known to the
    /// server then, or to be found in its answer.
    pub fn relayed(self, payload: Payload, checksum: Checksum) -> Self {
        let trailer = checksum == Checksum::Crc64Nvme;
        let length = payload.len().to_string();
        let mut this = self.content(payload, true);
        if trailer {
            this.trailer = true;
            this = this
                .header("content-encoding", "aws-chunked")
                .header("x-amz-decoded-content-length", length)
                .header("x-amz-trailer", body::TRAILER);
        }
        this
    }
}

impl Service {
    /// Where `key` is.
    ///
    /// Errors: as [`address::place`].
    pub fn place(&self, key: &Key) -> Result<ObjectAddress> {
        address::place(&self.root, key)
    }

    /// Sends a request; any answer but success is a fault. A wrong region is learnt from the answer and the request
    /// sent once more.
    pub async fn call(&self, call: Call<'_>) -> FaultResult<Reply> {
        let region = self.region();
        let fault = match self.call_in(&call, &region).await {
            Ok(reply) => return Ok(reply),
            Err(fault) => fault,
        };
        match &fault.region {
            Some(right) if **right != *region && matches!(fault.status, 301 | 302 | 307 | 400 | 403) => {
                tracing::debug!(region = %right, "the bucket is in another region");
                let right: Arc<str> = right.as_str().into();
                *self.region.write().unwrap_or_else(|e| e.into_inner()) = right.clone();
                self.call_in(&call, &right).await
            }
            _ => Err(fault),
        }
    }

    /// Sends a request once; a refusal says why.
    async fn call_in(&self, call: &Call<'_>, region: &str) -> FaultResult<Reply> {
        let fault = match self.call_once(call, region).await {
            Ok(reply) => return Ok(reply),
            Err(fault) => fault,
        };
        let silent = call.method == Method::HEAD && fault.region.is_none();
        let mut fault = match silent && matches!(fault.status, 301 | 307 | 400 | 401 | 403) {
            true => self.reason(call, region).await.unwrap_or(fault),
            false => fault,
        };
        // Where all keys are in one bucket, every further request would meet that too.
        if fault.code == "InvalidBucketName" && self.root.bucket.is_some() {
            fault.kind = ErrorKind::Unreachable;
        }
        Err(fault)
    }

    /// Why a request without a body was refused. The answer to a HEAD has no body, so that a wrong region and wrong keys look like
    /// a missing permission; one small listing of the bucket tells them apart. `None` when it is neither: that is
    /// asked once per bucket.
    async fn reason(&self, call: &Call<'_>, region: &str) -> Option<Box<Fault>> {
        let bucket = call.bucket?;
        let mut known = self.keys_known.lock().await;
        if known.contains(bucket) {
            return None;
        }
        match self.call_once(&Call::page(&self.config, bucket, b"", 1), region).await {
            Err(fault)
                if fault.region.is_some()
                    || fault.code == "InvalidBucketName"
                    || matches!(fault.kind, ErrorKind::Unauthenticated | ErrorKind::Unreachable) =>
            {
                Some(fault)
            }
            // Nobody answered.
            Err(fault) if fault.status == 0 => None,
            _ => {
                known.insert(bucket.to_owned());
                None
            }
        }
    }

    /// Sends a request and reads its (small) answer.
    pub async fn ask(&self, call: Call<'_>) -> FaultResult<(HeaderMap, Bytes)> {
        let reply = self.call(call).await?;
        let headers = reply.headers.clone();
        Ok((headers, reply.bytes().await?))
    }

    /// Sends a request that is answered with nothing, or with a few words of XML.
    pub async fn ask_for_nothing(&self, call: Call<'_>) -> FaultResult<()> {
        error::nothing(&self.ask(call).await?.1)
    }

    async fn call_once(&self, call: &Call<'_>, region: &str) -> FaultResult<Reply> {
        let credentials = self.source.get().await.map_err(|e| Fault::new(e.kind(), e.retry(), e.message()))?;
        self.net.gate.pass().await;
        let pass = self.lanes.lane(direction(call.kind)).enter().await;
        self.meters.request(call.kind);
        let payload_hash = self.payload_hash(call).await?;
        let request = self.request(call, region, credentials.as_deref(), &payload_hash)?;
        let begun = tokio::time::Instant::now();
        let moves = request.body().progress();
        let result = self.http.send(request).await.map_err(Box::<Fault>::from);
        let status = result.as_ref().map_or(0, |r| r.status.as_u16());
        tracing::debug!(
            request = call.kind,
            bucket = call.bucket.unwrap_or_default(),
            key = %call.object.escape_ascii(),
            status,
            ms = begun.elapsed().as_millis() as u64,
        );
        let mut reply = match result {
            Ok(reply) => reply,
            Err(fault) => {
                pass.end(fault.outcome());
                return Err(fault);
            }
        };
        if self.net.dump_headers {
            tracing::info!(status, headers = ?reply.headers, "answer to {}", call.kind);
        }
        if reply.status.is_success() {
            pass.moved(call.body.len());
            reply.keep(pass);
            return Ok(reply);
        }
        let (status, headers) = (reply.status, reply.headers.clone());
        let body = reply.bytes().await.unwrap_or_default();
        // It was refused, and may be sent again: on this connection no more of it.
        moves.give_up();
        if !self.endpoint.tls() && reach::wants_tls(status, &body) {
            return Err(reach::needs_tls(&self.endpoint.authority(region)).into());
        }
        let fault = Fault::answer(status, &headers, &body, call.bucket);
        if let Some(bucket) = call.bucket.filter(|_| fault.code == "NoSuchBucket") {
            // The writes to come need not find out one by one.
            self.buckets_missed.lock().unwrap_or_else(|e| e.into_inner()).insert(bucket.to_owned());
        }
        pass.end(fault.outcome());
        if fault.code == "SignatureDoesNotMatch" && std::str::from_utf8(call.object).is_err() {
            // A server that can't keep such a name signs another than we do; our keys are not to blame.
            let message = "the server can't keep a name that isn't UTF-8";
            return Err(Fault::new(ErrorKind::Invalid, Retry::Never, message));
        }
        if fault.kind == ErrorKind::Busy && !fault.is_conflict() {
            self.meters.throttled();
        }
        Err(fault)
    }

    fn request(
        &self,
        call: &Call<'_>,
        region: &str,
        credentials: Option<&Credentials>,
        payload_hash: &str,
    ) -> FaultResult<Request<Pieces>> {
        let url = self.endpoint.url(region, call.bucket, call.object);
        let query = encoded(&call.query);
        let mut headers = call.headers.clone();
        if self.config.requester_pays {
            headers.insert("x-amz-request-payer", HeaderValue::from_static("requester"));
        }
        self.net.headers.add(direction(call.kind), &mut headers);
        if let Ok(agent) = HeaderValue::from_str(&self.net.user_agent) {
            headers.insert(http::header::USER_AGENT, agent);
        }
        let bad = |e: http::Error| Fault::new(ErrorKind::Invalid, Retry::Never, format!("no such request: {e}"));
        headers.insert(http::header::HOST, HeaderValue::from_str(&url.authority).map_err(|e| bad(e.into()))?);
        if let Some(credentials) = credentials {
            let signed = Unsigned { path: &url.path, query: &query, payload_hash };
            self.sign(call, region, credentials, &signed, &mut headers).map_err(bad)?;
        }
        if self.net.dump_headers {
            let shown: Vec<_> = headers.iter().filter(|(n, _)| !is_secret(n)).collect();
            tracing::info!(method = %call.method, path = url.path, query, headers = ?shown, "request {}", call.kind);
        }
        let question = if query.is_empty() { "" } else { "?" };
        let uri = format!("{}://{}{}{question}{query}", url.scheme, url.authority, url.path);
        let body = body::pieces(call.body.clone(), call.trailer);
        let length = http_body::Body::size_hint(&body).exact().unwrap_or_default();
        let mut request = Request::builder().method(call.method.clone()).uri(uri).body(body).map_err(bad)?;
        *request.headers_mut() = headers;
        // An empty PUT or POST must say so; hyper leaves the header out for empty bodies of unknown meaning.
        if matches!(call.method, Method::PUT | Method::POST) {
            request.headers_mut().insert(http::header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        Ok(request)
    }

    fn sign(
        &self,
        call: &Call<'_>,
        region: &str,
        credentials: &Credentials,
        unsigned: &Unsigned<'_>,
        headers: &mut HeaderMap,
    ) -> std::result::Result<(), http::Error> {
        let at = jiff::Timestamp::now();
        let Unsigned { path, query, payload_hash } = *unsigned;
        headers.insert("x-amz-date", HeaderValue::from_str(&sign::amz_date(at))?);
        headers.insert("x-amz-content-sha256", HeaderValue::from_str(payload_hash)?);
        if let Some(token) = &credentials.token {
            headers.insert("x-amz-security-token", HeaderValue::from_str(token)?);
        }
        let mut signed: Vec<(&str, &str)> = headers
            .iter()
            .filter(|(name, _)| is_signed(name.as_str()))
            .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
            .collect();
        signed.sort_unstable();
        let what = Signed { method: call.method.as_str(), path, query, headers: &signed, payload_hash, region, at };
        let value = self.signer.authorization(credentials, &what);
        headers.insert(http::header::AUTHORIZATION, HeaderValue::from_str(&value)?);
        Ok(())
    }

    async fn payload_hash(&self, call: &Call<'_>) -> FaultResult<String> {
        if call.body.is_empty() {
            return Ok(sign::EMPTY_SHA256.into());
        }
        if call.trailer {
            return Ok(sign::UNSIGNED_WITH_TRAILER.into());
        }
        let document = call.headers.get(http::header::CONTENT_TYPE).is_some_and(|t| t == "application/xml");
        let guarded = call.guarded || self.endpoint.tls();
        if !document && self.config.unsigned_payload.unwrap_or(guarded) {
            return Ok(sign::UNSIGNED.into());
        }
        let hashes = call.body.hash(&[haul_core::Algo::Sha256]).await;
        let hashes = hashes.map_err(|e| Fault::new(e.kind(), e.retry(), e.message()))?;
        Ok(haul_core::hash::to_hex(hashes.get(haul_core::Algo::Sha256).unwrap_or_default()))
    }

    /// A link to `place` that anybody can read for `seconds`.
    pub async fn presign(&self, place: &ObjectAddress, seconds: u64) -> Result<String> {
        let credentials = self.source.get().await?;
        let region = self.region();
        let url = self.endpoint.url(&region, Some(&place.bucket), &place.object);
        let Some(credentials) = credentials else {
            return Ok(format!("{}://{}{}", url.scheme, url.authority, url.path));
        };
        let what = Signed {
            method: "GET",
            path: &url.path,
            query: "",
            headers: &[("host", &url.authority)],
            payload_hash: sign::UNSIGNED,
            region: &region,
            at: jiff::Timestamp::now(),
        };
        let query = self.signer.presigned_query(&credentials, &what, seconds);
        Ok(format!("{}://{}{}?{query}", url.scheme, url.authority, url.path))
    }

    /// The region that requests are signed for.
    pub fn region(&self) -> Arc<str> {
        self.region.read().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Creates a bucket; already being there, and ours, is success.
    pub async fn create_bucket(&self, bucket: &str) -> FaultResult<()> {
        let mut call = Call::bucket("CreateBucket", Method::PUT, bucket);
        let acl = if self.config.bucket_acl.is_empty() { &self.config.acl } else { &self.config.bucket_acl };
        if !acl.is_empty() {
            call = call.header("x-amz-acl", acl);
        }
        if self.config.locking_buckets {
            call = call.header("x-amz-bucket-object-lock-enabled", "true");
        }
        if let Some(place) = self.constraint() {
            let place = super::xml::escape(&place);
            call = call.document(format!(
                "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
                 <LocationConstraint>{place}</LocationConstraint></CreateBucketConfiguration>"
            ));
        }
        match self.ask_for_nothing(call).await {
            Err(fault) if fault.code == "BucketAlreadyOwnedByYou" => Ok(()),
            // Some servers don't tell our buckets from others'.
            Err(fault) if fault.kind == ErrorKind::Exists && self.bucket_answers(bucket).await => Ok(()),
            other => other,
        }
    }

    async fn bucket_answers(&self, bucket: &str) -> bool {
        self.ask(Call::bucket("HeadBucket", Method::HEAD, bucket)).await.is_ok()
    }

    fn constraint(&self) -> Option<String> {
        let set = &self.config.location_constraint;
        if !set.is_empty() {
            return Some(set.clone());
        }
        let region = self.region();
        // AWS refuses its default region here.
        (self.config.provider.location_constraint && *region != *"us-east-1" && !region.is_empty())
            .then(|| region.to_string())
    }

    /// Sends a write into `bucket`, which is made first if it is known to be missing, or turns out to be.
    pub async fn ask_in_bucket<'a>(
        &self,
        bucket: &str,
        call: impl Fn() -> Call<'a>,
    ) -> FaultResult<(HeaderMap, Bytes)> {
        let missed = self.buckets_missed.lock().unwrap_or_else(|e| e.into_inner()).contains(bucket);
        if missed && !self.config.no_check_bucket {
            self.make_bucket_once(bucket).await?;
        }
        match self.ask(call()).await {
            Err(fault) if fault.code == "NoSuchBucket" && !self.config.no_check_bucket => {
                self.make_bucket_once(bucket).await?;
                self.ask(call()).await
            }
            // So SeaweedFS answers to a copy into a bucket that isn't there.
            Err(fault)
                if fault.status == 500
                    && call().kind == "CopyObject"
                    && !self.config.no_check_bucket
                    && self.is_missing_bucket(bucket).await =>
            {
                self.make_bucket_once(bucket).await?;
                self.ask(call()).await
            }
            other => other,
        }
    }

    async fn is_missing_bucket(&self, bucket: &str) -> bool {
        let answer = self.ask(Call::bucket("HeadBucket", Method::HEAD, bucket)).await;
        answer.is_err_and(|fault| fault.status == 404)
    }

    async fn make_bucket_once(&self, bucket: &str) -> FaultResult<()> {
        // Writes that meet the missing bucket together wait for the one that makes it.
        let mut made = self.buckets_made.lock().await;
        if !made.contains(bucket) {
            self.create_bucket(bucket).await?;
            made.insert(bucket.to_owned());
        }
        Ok(())
    }
}

/// Turns a fault into the error of `op` on `key`.
pub fn at<'a>(op: &'static str, key: &'a Key) -> impl Fn(Box<Fault>) -> Error + 'a {
    move |fault| fault.at(op, key)
}

/// The lane of a request of this kind.
fn direction(kind: &str) -> Direction {
    match kind {
        "GetObject" => Direction::Down,
        "PutObject" | "UploadPart" => Direction::Up,
        "CopyObject" | "UploadPartCopy" => Direction::Copy,
        _ => Direction::Meta,
    }
}

fn is_signed(name: &str) -> bool {
    matches!(name, "host" | "content-type" | "content-md5") || name.starts_with("x-amz-")
}

fn is_secret(name: &HeaderName) -> bool {
    let name = name.as_str();
    name == "authorization" || name == "x-amz-security-token" || name.contains("customer-key")
}

fn encoded(query: &[(&'static str, String)]) -> String {
    let mut pairs: Vec<&(&str, String)> = query.iter().collect();
    pairs.sort_unstable();
    pairs.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join("&")
}
