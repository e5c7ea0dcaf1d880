//! Requests of the stores on services with tokens: counted, in lanes, with the user's headers, and once more with a new token when one
//! was refused.

use crate::Tokens;
use bytes::Bytes;
use haul_core::{Error, ErrorKind, Key, Result, Retry, concurrency::RequestResult};
use haul_net::{Fault, FaultResult, Http, Net, Reply, reach};
use haul_store::{Direction, Lanes, Meters, OpenRequest, Payload, body::Pieces};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use serde::{Serialize, de::DeserializeOwned};
use std::sync::Arc;

/// A failed request, with the service's own word for why.
#[derive(Debug)]
pub struct ServiceError {
    /// Its meaning.
    pub fault: Box<Fault>,
    /// The service's code for it (`userRateLimitExceeded`, `path/not_found/`); empty where it gave none.
    pub code: String,
}

/// Derives a refusal's meaning and the service's code from its status, headers and body.
pub type Judge = fn(StatusCode, &HeaderMap, &[u8]) -> ServiceError;

/// A result of a request whose refusals have codes.
pub type ServiceResult<T> = Result<T, ServiceError>;

impl From<Box<Fault>> for ServiceError {
    fn from(fault: Box<Fault>) -> Self {
        ServiceError { fault, code: String::new() }
    }
}

impl ServiceError {
    /// As the error of `op` on `key`.
    pub fn at(self, op: &'static str, key: &Key) -> Error {
        self.fault.at(op, key)
    }
}

/// The result without the service's word.
pub fn plain<T>(result: ServiceResult<T>) -> FaultResult<T> {
    result.map_err(|refused| refused.fault)
}

/// One request to come.
#[derive(Clone, Debug)]
pub struct Call {
    kind: &'static str,
    direction: Direction,
    method: Method,
    url: String,
    headers: HeaderMap,
    body: Payload,
    anonymous: bool,
    also: &'static [StatusCode],
}

impl Call {
    /// A request; `kind` is the service's name of it, for counts.
    pub fn new(kind: &'static str, method: Method, url: impl Into<String>) -> Call {
        let (headers, body) = (HeaderMap::new(), Payload::default());
        let (direction, url) = (Direction::Meta, url.into());
        Call { kind, direction, method, url, headers, body, anonymous: false, also: &[] }
    }

    /// With a header whose value is known to be legal (left out otherwise).
    pub fn header(mut self, name: HeaderName, value: impl AsRef<str>) -> Call {
        if let Ok(value) = HeaderValue::from_str(value.as_ref()) {
            self.headers.insert(name, value);
        }
        self
    }

    /// With a body of this type.
    pub fn body(mut self, direction: Direction, content_type: &'static str, body: Payload) -> Call {
        self.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        (self.direction, self.body) = (direction, body);
        self
    }

    /// With a question in JSON.
    pub fn json(self, question: &impl Serialize) -> Call {
        let text = serde_json::to_vec(question).unwrap_or_default();
        let direction = self.direction;
        self.body(direction, "application/json", Payload::from(Bytes::from(text)))
    }

    /// Of this direction.
    pub fn going(mut self, direction: Direction) -> Call {
        self.direction = direction;
        self
    }

    /// Without a token: an address that is good by itself.
    pub fn anonymous(mut self) -> Call {
        self.anonymous = true;
        self
    }

    /// Scheme and host of its address.
    pub fn origin(&self) -> &str {
        let host = self.url.find("://").map_or(0, |at| at + 3);
        self.url[host..].find('/').map_or(&self.url, |end| &self.url[..host + end])
    }

    /// These answers are no refusals either.
    pub fn accepts(mut self, also: &'static [StatusCode]) -> Call {
        self.also = also;
        self
    }
}

/// A client of one service.
#[derive(Debug)]
pub struct Api {
    http: Http<Pieces>,
    tokens: Option<Arc<dyn Tokens>>,
    judge: Judge,
    net: Net,
    meters: Arc<Meters>,
    /// Places for requests.
    pub lanes: Arc<Lanes>,
}

impl Api {
    /// A client of the account `account` (any word that tells it from others) of a service at `host`. Sends nothing.
    ///
    /// Errors: `Invalid` when a CA file can't be used.
    pub fn open(
        request: &OpenRequest,
        host: &str,
        account: &str,
        tokens: Option<Arc<dyn Tokens>>,
        judge: Judge,
    ) -> Result<Api> {
        let http = Http::new(&request.net, true)?;
        let lanes = request.net.roads.to(account, host);
        Ok(Api { http, tokens, judge, net: request.net.clone(), meters: request.meters.clone(), lanes })
    }

    /// Sends a request and gives back its answer, whose body is still to come; any answer but success is a refusal. Nothing is tried
    /// again, but once with a new token.
    pub async fn send(&self, call: &Call) -> ServiceResult<Reply> {
        let mut renewed = false;
        loop {
            let bearer = match &self.tokens {
                Some(tokens) if !call.anonymous => Some(tokens.header(&self.http).await?),
                _ => None,
            };
            match self.once(call, bearer.clone()).await {
                Err(refused) if refused.fault.status == 401 && !renewed => {
                    let (Some(tokens), Some(bearer)) = (&self.tokens, bearer) else { return Err(refused) };
                    tokens.refused(&bearer).await;
                    renewed = true;
                }
                other => return other,
            }
        }
    }

    async fn once(&self, call: &Call, bearer: Option<HeaderValue>) -> ServiceResult<Reply> {
        self.net.gate.pass().await;
        let pass = self.lanes.lane(call.direction).enter().await;
        self.meters.request(call.kind);
        let request = self.request(call, bearer)?;
        let moves = request.body().progress();
        let begun = tokio::time::Instant::now();
        let result = self.http.send(request).await;
        let status = result.as_ref().map_or(0, |reply| reply.status.as_u16());
        // The query may hold a secret.
        let place = call.url.split('?').next().unwrap_or_default();
        tracing::debug!(request = call.kind, url = place, status, ms = begun.elapsed().as_millis() as u64);
        let mut reply = match result {
            Ok(reply) => reply,
            Err(fault) => {
                pass.end(fault.outcome());
                return Err(fault.into());
            }
        };
        if self.net.dump_headers {
            tracing::info!(status, headers = ?reply.headers, "answer to {}", call.kind);
        }
        if reply.status.is_success() || call.also.contains(&reply.status) {
            pass.moved(call.body.len());
            reply.keep(pass);
            return Ok(reply);
        }
        let (status, headers) = (reply.status, reply.headers.clone());
        let body = reply.refusal().await.unwrap_or_default();
        // It was refused, and may be sent again: on this connection no more of it.
        moves.give_up();
        let host = || call.url.split('/').nth(2).unwrap_or_default().to_owned();
        if call.url.starts_with("http://") && reach::wants_tls(status, &body) {
            pass.end(RequestResult::Done);
            return Err(reach::needs_tls(&host()).into());
        }
        let refused = (self.judge)(status, &headers, &body);
        pass.end(refused.fault.outcome());
        if refused.fault.kind == ErrorKind::Busy {
            self.meters.throttled();
        }
        Err(refused)
    }

    /// Sends a request and reads its (small) answer.
    pub async fn ask(&self, call: &Call) -> ServiceResult<Bytes> {
        Ok(self.send(call).await?.bytes().await?)
    }

    /// Sends a request and reads its answer as JSON. An answer that lacks what `T` must have is an error.
    pub async fn json<T: DeserializeOwned>(&self, call: &Call) -> ServiceResult<T> {
        let body = self.ask(call).await?;
        serde_json::from_slice(&body)
            .map_err(|e| Fault::broken(format!("the answer to {} can't be understood: {e}", call.kind)).into())
    }

    fn request(&self, call: &Call, bearer: Option<HeaderValue>) -> FaultResult<Request<Pieces>> {
        let bad = |e: http::Error| Fault::new(ErrorKind::Invalid, Retry::Never, format!("no such request: {e}"));
        let mut headers = call.headers.clone();
        // Addresses at other hosts are given no keys, whoever they are for.
        if !call.anonymous {
            self.net.headers.add(call.direction, &mut headers);
        }
        if let Ok(agent) = HeaderValue::from_str(&self.net.user_agent) {
            headers.insert(header::USER_AGENT, agent);
        }
        // An empty one must say so.
        if matches!(call.method, Method::PUT | Method::POST | Method::PATCH) {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(call.body.len()));
        }
        bearer.into_iter().for_each(|bearer| drop(headers.insert(header::AUTHORIZATION, bearer)));
        if self.net.dump_headers {
            let shown: Vec<_> = headers.iter().filter(|(name, _)| *name != header::AUTHORIZATION).collect();
            tracing::info!(method = %call.method, url = call.url, headers = ?shown, "request {}", call.kind);
        }
        let request =
            Request::builder().method(call.method.clone()).uri(&call.url).body(Pieces::new(call.body.clone()));
        let mut request = request.map_err(bad)?;
        *request.headers_mut() = headers;
        Ok(request)
    }
}
