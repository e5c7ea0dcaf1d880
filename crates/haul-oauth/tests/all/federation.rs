//! Credentials of Google's that point to others, beside Google's own client for Python: it gets the same answers for the same requests.

use crate::renewal::{http, started};
use haul_core::ErrorKind;
use haul_oauth::{ServiceAccount, Tokens as _};
use haul_testkit::{
    lab::Lab,
    peers,
    serve::{Server, answer},
};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

/// A provider's token at `/idp`, Google's exchange at `/sts`, tokens of people at `/token`, and service accounts; and what they were asked.
struct World {
    server: Server,
    asked: Arc<Mutex<Vec<String>>>,
    /// So many of the next requests for the account's token come with one that was revoked.
    revoked: Arc<AtomicUsize>,
}

impl World {
    fn start() -> World {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let revoked = Arc::<AtomicUsize>::default();
        let (seen, to_refuse) = (asked.clone(), revoked.clone());
        let server = started(move |request| {
            let (seen, to_refuse) = (seen.clone(), to_refuse.clone());
            async move {
                let header = |name: &str| {
                    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
                };
                let (method, path, client) =
                    (request.method().clone(), request.uri().path().to_owned(), header("authorization"));
                let flavor = header("metadata");
                let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
                let body = String::from_utf8_lossy(&body).into_owned();
                let mut words: Vec<&str> = body.split('&').collect();
                words.sort_unstable();
                seen.lock().unwrap().push(format!("{path} [{client}{flavor}] {}", words.join("&")));
                let refused = |why: &str| {
                    answer(
                        StatusCode::BAD_REQUEST,
                        json!({"error": "invalid_grant", "error_description": why}).to_string(),
                    )
                };
                match (method, &*path) {
                    (Method::GET, "/idp") if flavor == "true" => {
                        answer(StatusCode::OK, "{\"id_token\":\"the provider's\"}".into())
                    }
                    (Method::POST, "/sts") if !body.contains("subject_token=the") => {
                        refused("The token is of somebody else.")
                    }
                    (Method::POST, "/sts") => {
                        let kind = "urn:ietf:params:oauth:token-type:access_token";
                        let told = json!({"access_token": "exchanged", "issued_token_type": kind, "token_type": "Bearer", "expires_in": 3600});
                        answer(StatusCode::OK, told.to_string())
                    }
                    (Method::POST, "/token") => {
                        answer(StatusCode::OK, "{\"access_token\":\"a person's\",\"expires_in\":3600}".into())
                    }
                    (Method::POST, "/v1/projects/-/serviceAccounts/sa@x.iam:generateAccessToken") => {
                        let one_less = |left: usize| left.checked_sub(1);
                        if to_refuse.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
                            return answer(StatusCode::UNAUTHORIZED, "{}".into());
                        }
                        let told = json!({"accessToken": "the account's", "expireTime": "2099-01-01T00:00:00Z"});
                        answer(StatusCode::OK, told.to_string())
                    }
                    _ => answer(StatusCode::NOT_FOUND, "{}".into()),
                }
            }
        });
        World { server, asked, revoked }
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.server.endpoint())
    }

    fn account(&self) -> String {
        self.at("/v1/projects/-/serviceAccounts/sa@x.iam:generateAccessToken")
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    fn external(&self, source: Value, more: Value) -> Value {
        let mut file = json!({
            "type": "external_account", "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": self.at("/sts"), "credential_source": source,
        });
        file.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        file
    }
}

const SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_write";

/// What Google's client does with the file of a workload. Of an impersonated account it would ask at Google itself, whatever the file says.
const SDK: &str = "
import json, sys
from google.auth import identity_pool
from google.auth.transport import requests
found = identity_pool.Credentials.from_info(json.load(open(sys.argv[1])), scopes=[sys.argv[2]])
found.refresh(requests.Request())
print(found.token)
";

#[tokio::test]
async fn a_workload_gets_googles_token_as_googles_own_client_does() {
    let (lab, world, http) = (Lab::new(""), World::start(), http());
    let token = lab.path("token");
    fs::write(&token, "the workload's").expect("written");
    let from_file = json!({ "file": token });
    let from_url = json!({
        "url": world.at("/idp"), "headers": {"Metadata": "true"}, "format": {"type": "json", "subject_token_field_name": "id_token"},
    });
    let account = json!({ "service_account_impersonation_url": world.account() });
    let person = json!({
        "type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r", "token_uri": world.at("/token"),
    });
    let python = peers::need("cloud_sdks");
    for (file, expected, requests) in [
        (world.external(from_file.clone(), json!({})), "exchanged", &["/sts []"][..]),
        (
            world.external(from_file.clone(), json!({"client_id": "c", "client_secret": "s"})),
            "exchanged",
            &["/sts [Basic Yzpz]"],
        ),
        (world.external(from_url.clone(), json!({})), "exchanged", &["/idp [true]", "/sts []"]),
        (
            world.external(from_url, account),
            "the account's",
            &[
                "/idp [true]",
                "/sts []",
                "/v1/projects/-/serviceAccounts/sa@x.iam:generateAccessToken [Bearer exchanged]",
            ],
        ),
        (
            json!({
                "type": "impersonated_service_account", "source_credentials": person, "delegates": ["other@x.iam"],
                "service_account_impersonation_url": world.account(),
            }),
            "the account's",
            &["/token []", "/v1/projects/-/serviceAccounts/sa@x.iam:generateAccessToken [Bearer a person's]"],
        ),
    ] {
        let ours = ServiceAccount::from_file(&file.to_string(), SCOPE, None).expect("read");
        let header = ours.header(&http).await.unwrap_or_else(|fault| panic!("{file}: {}", fault.message));
        assert_eq!(header, format!("Bearer {expected}"), "{file}");
        assert_eq!(ours.header(&http).await.unwrap(), header, "and is kept");
        let asked = world.asked();
        let begin: Vec<&str> = asked.iter().map(|line| line.split_inclusive(']').next().unwrap_or_default()).collect();
        assert_eq!(begin, requests, "{file}");
        if let Some(python) = python.as_ref().filter(|_| file["type"] == "external_account") {
            let path = lab.path("credentials.json");
            fs::write(&path, file.to_string()).expect("written");
            let ran = lab.run(python, &["-c", SDK, path.to_str().expect("text"), SCOPE]).ok();
            assert_eq!(ran.out.trim(), expected, "{file}");
            let theirs = world.asked();
            assert_eq!(theirs.len(), asked.len(), "{theirs:?}");
            for (theirs, ours) in theirs.iter().zip(&asked) {
                same(theirs, ours);
            }
        }
    }
    // A token that is refused, and one that isn't there: once each, and what to do.
    fs::write(&token, "somebody else's").expect("written");
    let external = world.external(from_file, json!({}));
    for expected in ["invalid_grant: The token is of somebody else.", "can't read the token"] {
        let refused = ServiceAccount::from_file(&external.to_string(), SCOPE, None).expect("read");
        let fault = refused.header(&http).await.unwrap_err();
        assert_eq!(fault.kind, ErrorKind::Unauthenticated);
        assert!(
            fault.message.starts_with("Google gave no token: check the other provider's token"),
            "{}",
            fault.message
        );
        assert!(fault.message.contains(expected), "{}", fault.message);
        fs::remove_file(&token).ok();
    }
    assert_eq!(world.asked().len(), 1);
}

#[tokio::test]
async fn an_impersonated_account_asks_once_more_with_a_new_token() {
    let (world, http) = (World::start(), http());
    let person = json!({
        "type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r", "token_uri": world.at("/token"),
    });
    let file = json!({
        "type": "impersonated_service_account", "source_credentials": person,
        "service_account_impersonation_url": world.account(),
    });
    let paths = || {
        let asked = world.asked();
        asked.iter().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let account = world.account().replace(&world.at(""), "");
    let each = ["/token", &*account, "/token", &*account];
    for revoked in [1, 2] {
        world.revoked.store(revoked, Ordering::Relaxed);
        let ours = ServiceAccount::from_file(&file.to_string(), SCOPE, None).expect("read");
        match ours.header(&http).await {
            Ok(header) => assert_eq!((revoked, header), (1, "Bearer the account's".parse().unwrap())),
            Err(fault) => {
                let message = "Google gave no token: check who may create tokens of the account";
                assert!(revoked == 2 && fault.message.starts_with(message), "{revoked}: {}", fault.message);
            }
        }
        assert_eq!(paths(), each, "{revoked}");
    }
}

/// A request of Google's client says the same, whatever the order and spacing of its words.
fn same(theirs: &str, ours: &str) {
    let split =
        |line: &str| line.split_once("] ").map(|(head, body)| (head.to_owned(), body.to_owned())).expect("a line");
    let ((head, body), (our_head, our_body)) = (split(theirs), split(ours));
    assert_eq!(head, our_head);
    match serde_json::from_str::<Value>(&body) {
        // It names no scope where the scope is as granted, and says so when there are no delegates.
        Ok(mut body) => {
            let ours: Value = serde_json::from_str(&our_body).expect("JSON");
            if body["delegates"].as_array().is_none_or(Vec::is_empty) {
                body.as_object_mut().unwrap().remove("delegates");
            }
            assert_eq!(body, ours);
        }
        Err(_) => {
            let words = |body: &str| -> Vec<String> {
                let known =
                    body.split('&').filter(|word| word.split_once('=').is_some_and(|(_, value)| !value.is_empty()));
                known.map(|word| word.replace('+', "%20")).collect()
            };
            assert_eq!(words(&body), words(&our_body));
        }
    }
}

#[test]
fn what_cannot_be_used_is_refused_in_a_line() {
    let world = World::start();
    let refused = |file: &Value, subject: Option<&str>| {
        let error = ServiceAccount::from_file(&file.to_string(), SCOPE, subject.map(str::to_owned)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.message().to_owned()
    };
    let elsewhere = |name: &str| {
        format!("credentials whose token comes by {name:?} can't be used: use those with a \"file\" or a \"url\"")
    };
    let none = json!({});
    for (source, message) in [
        (json!({"environment_id": "aws1", "url": "http://169.254.169.254/x"}), elsewhere("environment_id")),
        (json!({"executable": {"command": "/bin/x"}}), elsewhere("executable")),
        (json!({"certificate": {"use_default_certificate_config": true}}), elsewhere("certificate")),
        (json!({}), "the credentials' \"credential_source\" must have either a \"file\" or a \"url\"".into()),
        (
            json!({"file": "/x", "format": {"type": "json"}}),
            "the credentials' \"format\" has no \"subject_token_field_name\"".into(),
        ),
        (
            json!({"file": "/x", "format": {"type": "xml"}}),
            "the credentials' \"format\" \"xml\" is neither \"text\" nor \"json\"".into(),
        ),
    ] {
        assert_eq!(refused(&world.external(source, none.clone()), None), message);
    }
    let file = json!({"file": "/x"});
    assert_eq!(
        refused(&world.external(file.clone(), json!({"token_url": "http://sts.example/v1"})), None),
        "the credentials name \"http://sts.example/v1\" for tokens, which is no address with https"
    );
    assert_eq!(
        refused(&world.external(file, none), Some("anna@x")),
        "credentials of the type \"external_account\" can't act for anna@x: use a service account's key"
    );
    let chain =
        json!({"type": "impersonated_service_account", "source_credentials": {"type": "impersonated_service_account"}});
    assert_eq!(
        refused(&chain, None),
        "the credentials impersonate an account by way of another: name that as a delegate"
    );
}
