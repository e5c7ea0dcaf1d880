use futures::{FutureExt, future::BoxFuture, future::join_all};
use haul_core::{Error, ErrorKind, Result};
use haul_net::{Fault, Http, Net};
use haul_oauth::{Api, Call, Login, Provider, Revoke, ServiceError, Token, Tokens as _};
use haul_store::{Locked, OpenRequest, Section, body::Pieces};
use haul_testkit::serve::{Body, Server, answer};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

pub static PROVIDER: Provider = Provider {
    kind: "box",
    title: "Box",
    auth_url: "",
    token_url: "",
    scopes: &["all"],
    adapt: None,
    extra: &[],
    redirect: "",
    shows_code: false,
    device_url: "",
    pkce: false,
    rotates: true,
    revoke: Revoke::Nowhere,
    further: None,
    own_id: "at box.com",
};

/// A server; it has a runtime of its own, which can't begin within another.
pub fn started<F, A>(answer: F) -> Server
where
    F: Fn(Request<Incoming>) -> A + Send + Sync + 'static,
    A: Future<Output = std::io::Result<Response<Body>>> + Send + 'static,
{
    let start = || Server::start(move |request, _| answer(request));
    std::thread::scope(|scope| scope.spawn(start).join()).expect("started").expect("a port")
}

/// A service whose refresh tokens are good once: `r1` gives `a2` and `r2`, and so on.
struct Service {
    server: Server,
    current: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
    /// Its answers take this many milliseconds, once they are decided.
    slow: Arc<AtomicUsize>,
}

impl Service {
    fn start() -> Service {
        let (current, requests) = (Arc::new(AtomicUsize::new(1)), Arc::<Mutex<Vec<String>>>::default());
        let slow = Arc::<AtomicUsize>::default();
        let (now, questions, wait) = (current.clone(), requests.clone(), slow.clone());
        let server = started(move |request| {
            let (now, questions, wait) = (now.clone(), questions.clone(), wait.clone());
            async move {
                let bearer = request.headers().get("authorization").map(|value| value.as_bytes().to_vec());
                if request.uri().path() == "/file" {
                    let good = format!("Bearer a{}", now.load(Ordering::SeqCst)).into_bytes();
                    return match bearer == Some(good) {
                        true => answer(StatusCode::OK, "{\"size\":3}".into()),
                        false => answer(StatusCode::UNAUTHORIZED, String::new()),
                    };
                }
                let form = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
                let form = String::from_utf8_lossy(&form).into_owned();
                questions.lock().unwrap().push(form.clone());
                let number = now.load(Ordering::SeqCst);
                if form.contains("client_credentials") {
                    return answer(StatusCode::OK, format!("{{\"access_token\":\"a{number}\",\"expires_in\":3600}}"));
                }
                if !form.contains(&format!("refresh_token=r{number}&")) || !form.contains("client_id=me") {
                    let text =
                        "{\"error\":\"invalid_grant\",\"error_description\":\"Refresh token has expired\\nmore\"}";
                    return answer(StatusCode::BAD_REQUEST, text.into());
                }
                let next = number + 1;
                now.store(next, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(wait.load(Ordering::SeqCst) as u64)).await;
                let text =
                    format!("{{\"access_token\":\"a{next}\",\"refresh_token\":\"r{next}\",\"expires_in\":3600}}");
                answer(StatusCode::OK, text)
            }
        });
        Service { server, current, requests, slow }
    }

    fn requests(&self) -> MutexGuard<'_, Vec<String>> {
        self.requests.lock().unwrap()
    }
}

/// A section in memory.
#[derive(Clone, Debug, Default)]
struct Kept {
    token: Arc<Mutex<String>>,
    turn: Arc<tokio::sync::Mutex<()>>,
    /// rclone's token file.
    rclones: Option<String>,
    read_only: bool,
}

struct Held {
    kept: Kept,
    _turn: tokio::sync::OwnedMutexGuard<()>,
}

impl Section for Kept {
    fn lock(&self) -> BoxFuture<'_, Result<Box<dyn Locked>>> {
        async move { Ok(Box::new(Held { kept: self.clone(), _turn: self.turn.clone().lock_owned().await }) as _) }
            .boxed()
    }
}

impl Locked for Held {
    fn get(&self, option: &str) -> Option<String> {
        (option == "token").then(|| self.kept.token.lock().unwrap().clone())
    }

    fn set(&mut self, _: &str, value: &str) -> Result<()> {
        if self.kept.read_only {
            return Err(Error::new(ErrorKind::Io, "config", "read-only"));
        }
        *self.kept.token.lock().unwrap() = value.to_owned();
        Ok(())
    }

    fn by_rclone(&mut self) -> BoxFuture<'_, Result<()>> {
        let done = match &self.kept.rclones {
            Some(token) => self.set("token", &token.clone()),
            None => Err(Error::new(ErrorKind::Io, "config", "can't run rclone")),
        };
        async move { done }.boxed()
    }
}

const OLD: &str = "{\"access_token\":\"a1\",\"refresh_token\":\"r1\",\"expiry\":\"2020-01-01T00:00:00Z\"}";

fn request(service: &Service, section: Option<&Kept>, options: &[(&str, &str)]) -> OpenRequest {
    let url = format!("{}/token", service.server.endpoint());
    let mut all = vec![("token", OLD), ("client_id", "me"), ("token_url", &url)];
    all.extend(options);
    OpenRequest {
        remote: "b".into(),
        options: all.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
        section: section.map(|kept| Arc::new(kept.clone()) as _),
        ..OpenRequest::default()
    }
}

pub fn http() -> Http<Pieces> {
    Http::new(&Net::default(), false).expect("a client")
}

fn kept(token: &str) -> Kept {
    Kept { token: Arc::new(Mutex::new(token.into())), ..Kept::default() }
}

#[tokio::test]
async fn concurrent_requests_renew_a_token_once_and_keep_it() {
    let (service, section) = (Service::start(), kept(OLD));
    let request = request(&service, Some(&section), &[]);
    // Two stores of one session have one log-in; another session has its own, as another process would.
    let (one, same) = (Login::open(&PROVIDER, &request).unwrap(), Login::open(&PROVIDER, &request).unwrap());
    let other = Login::open(&PROVIDER, &OpenRequest { shared: Default::default(), ..request }).unwrap();
    assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
    let http = http();
    let all = join_all([&one, &same, &other].iter().cycle().take(12).map(|login| login.header(&http))).await;
    assert!(all.iter().all(|header| header.as_ref().unwrap() == "Bearer a2"));
    assert_eq!(service.requests().len(), 1);
    let text = section.token.lock().unwrap().clone();
    assert_eq!(Token::parse(&text).unwrap().refresh_token, "r2");
    // A token that the service refused is renewed, by one of them.
    let header = one.header(&http).await.unwrap();
    one.refused(&header).await;
    other.refused(&header).await;
    assert_eq!(one.header(&http).await.unwrap(), "Bearer a3");
    assert_eq!(other.header(&http).await.unwrap(), "Bearer a3");
    assert_eq!(service.requests().len(), 2);
}

#[tokio::test]
async fn a_request_that_is_refused_for_its_token_goes_again_once() {
    let (service, section) = (Service::start(), kept(OLD));
    let good = "{\"access_token\":\"a0\",\"refresh_token\":\"r1\"}";
    *section.token.lock().unwrap() = good.into();
    let request = request(&service, Some(&section), &[("token", good)]);
    let judge =
        |status: StatusCode, headers: &HeaderMap, _: &[u8]| ServiceError::from(Fault::answer(status, headers, None));
    let login = Login::open(&PROVIDER, &request).unwrap();
    let api = Api::open(&request, "host", "box:me", Some(login), judge).unwrap();
    let call = Call::new("File", Method::GET, format!("{}/file", service.server.endpoint()));
    let answer: serde_json::Value = api.json(&call).await.unwrap();
    assert_eq!(answer["size"], 3);
    // It expires at the service alone, and can't be renewed: that is an error, not a loop.
    service.current.store(7, Ordering::SeqCst);
    let refused = api.ask(&call).await.unwrap_err();
    assert_eq!(refused.fault.kind, ErrorKind::Unauthenticated);
    let message = &refused.fault.message;
    assert!(message.contains("Refresh token has expired") && message.contains("haul config reconnect b:"), "{message}");
    assert!(!message.contains("more"), "{message}");
}

#[tokio::test]
async fn a_token_of_rclones_application_is_renewed_by_rclone() {
    let service = Service::start();
    let fresh = "{\"access_token\":\"by rclone\"}";
    let section = Kept { rclones: Some(fresh.into()), ..kept(OLD) };
    let own = [("client_id", "")];
    let login = Login::open(&PROVIDER, &request(&service, Some(&section), &own)).unwrap();
    assert_eq!(login.header(&http()).await.unwrap(), "Bearer by rclone");
    let login = Login::open(&PROVIDER, &request(&service, Some(&kept(OLD)), &own)).unwrap();
    let message = login.header(&http()).await.unwrap_err().message;
    assert!(message.contains("rclone") && message.contains("at box.com") && message.contains("client_id"), "{message}");
    assert!(service.requests().is_empty(), "nobody asks with an id that isn't ours");
}

fn lasting(seconds: i64) -> String {
    let expiry = jiff::Timestamp::try_from(SystemTime::now()).unwrap() + jiff::SignedDuration::from_secs(seconds);
    format!("{{\"access_token\":\"a1\",\"refresh_token\":\"r1\",\"expiry\":\"{expiry}\"}}")
}

#[tokio::test]
async fn a_token_of_rclones_application_is_used_as_long_as_it_lasts() {
    let service = Service::start();
    // rclone renews none that has so long to go, and whoever asks it finds the same.
    for (seconds, section) in [(40, Kept::default()), (5, Kept::default())] {
        let token = lasting(seconds);
        let section = Kept { rclones: Some(token.clone()), token: Arc::new(Mutex::new(token.clone())), ..section };
        let options = [("client_id", ""), ("token", &*token)];
        let login = Login::open(&PROVIDER, &request(&service, Some(&section), &options)).unwrap();
        assert_eq!(login.header(&http()).await.unwrap(), "Bearer a1", "{seconds} seconds");
    }
    let token = lasting(5);
    let section = Kept { rclones: Some("{\"access_token\":\"by rclone\"}".into()), ..kept(&token) };
    let options = [("client_id", ""), ("token", &*token)];
    let login = Login::open(&PROVIDER, &request(&service, Some(&section), &options)).unwrap();
    assert_eq!(login.header(&http()).await.unwrap(), "Bearer by rclone");
}

/// Waits until something is so; a minute at most.
async fn until(mut so: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it isn't so after a minute");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_stopped_while_a_token_is_renewed_loses_none() {
    let (service, section) = (Service::start(), kept(OLD));
    let login = Login::open(&PROVIDER, &request(&service, Some(&section), &[])).unwrap();
    let http = http();
    service.slow.store(1500, Ordering::SeqCst);
    tokio::select! {
        header = login.header(&http) => panic!("who is slow has answered: {header:?}"),
        () = until(|| service.current.load(Ordering::SeqCst) == 2) => {} // The service has taken the old one back.
    }
    until(|| section.token.lock().unwrap().contains("r2")).await;
    assert_eq!(login.header(&http).await.unwrap(), "Bearer a2");
    assert_eq!(service.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_program_got_just_before_is_used() {
    let (service, section) = (Service::start(), kept(OLD));
    let login = Login::open(&PROVIDER, &request(&service, Some(&section), &[])).unwrap();
    // It has taken no lock, and writes what it got after ours was refused.
    service.current.store(7, Ordering::SeqCst);
    let writes = async {
        until(|| !service.requests().is_empty()).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        *section.token.lock().unwrap() = "{\"access_token\":\"a7\",\"refresh_token\":\"r7\"}".into();
    };
    let http = http();
    let (header, ()) = tokio::join!(login.header(&http), writes);
    assert_eq!(header.unwrap(), "Bearer a7");
    assert_eq!(service.requests().len(), 1);
}

#[tokio::test]
async fn an_application_logs_in_by_itself() {
    let service = Service::start();
    let options = [("token", ""), ("client_credentials", "true"), ("client_secret", "s&t")];
    let login = Login::open(&PROVIDER, &request(&service, None, &options)).unwrap();
    assert_eq!(login.header(&http()).await.unwrap(), "Bearer a1");
    let form = "grant_type=client_credentials&scope=all&client_id=me&client_secret=s%26t";
    assert_eq!(service.requests()[..], [form]);
    let nobody = Login::open(&PROVIDER, &request(&service, None, &[("token", "")])).unwrap_err();
    assert_eq!(nobody.kind(), ErrorKind::Unauthenticated);
    assert!(nobody.message().contains("haul config reconnect b:"), "{nobody}");
}

#[tokio::test]
async fn what_cannot_be_kept_is_used_all_the_same() {
    let service = Service::start();
    let section = Kept { read_only: true, ..kept(OLD) };
    let login = Login::open(&PROVIDER, &request(&service, Some(&section), &[])).unwrap();
    assert_eq!(login.header(&http()).await.unwrap(), "Bearer a2");
    assert_eq!(*section.token.lock().unwrap(), OLD);
    // A job may be longer than two of them last; what is kept was good once.
    for next in ["Bearer a3", "Bearer a4"] {
        login.refused(&login.header(&http()).await.unwrap()).await;
        assert_eq!(login.header(&http()).await.unwrap(), next);
    }
}
