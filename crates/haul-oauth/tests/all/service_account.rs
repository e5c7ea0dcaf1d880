//! A service account's claim, checked by openssl; and the other ways without a person.

use crate::renewal::{http, started};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use haul_core::ErrorKind;
use haul_oauth::{ServiceAccount, Tokens as _};
use haul_testkit::{peers, serve::answer};
use http::StatusCode;
use http_body_util::BodyExt as _;
use std::{
    fs,
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
};

fn openssl(folder: &Path, args: &[&str]) -> String {
    let ran = Command::new("openssl").current_dir(folder).args(args).output().expect("openssl");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

#[tokio::test]
async fn a_claim_is_signed_and_a_token_renewed() {
    if peers::need("openssl").is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    openssl(folder, &["genpkey", "-quiet", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", "key.pem"]);
    openssl(folder, &["pkey", "-in", "key.pem", "-pubout", "-out", "public.pem"]);
    let requests = Arc::<Mutex<Vec<String>>>::default();
    let forms = requests.clone();
    let server = started(move |request| {
        let forms = forms.clone();
        async move {
            let form = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
            let mut forms = forms.lock().unwrap();
            forms.push(String::from_utf8_lossy(&form).into_owned());
            answer(StatusCode::OK, format!("{{\"access_token\":\"t{}\",\"expires_in\":3600}}", forms.len()))
        }
    });
    let url = format!("{}/token", server.endpoint());
    let key = fs::read_to_string(folder.join("key.pem")).expect("a key");
    let file = serde_json::json!({
        "type": "service_account", "client_email": "haul@x.iam", "private_key_id": "k1", "private_key": key, "token_uri": url,
    });
    let account = ServiceAccount::from_file(&file.to_string(), "s1", Some("anna@x".into())).expect("read");
    assert_eq!(account.email(), Some("haul@x.iam"));
    let http = http();
    let first = account.header(&http).await.unwrap();
    assert_eq!((&first, &account.header(&http).await.unwrap()), (&"Bearer t1".parse().unwrap(), &first));
    account.refused(&first).await;
    assert_eq!(account.header(&http).await.unwrap(), "Bearer t2");
    let form = requests.lock().unwrap()[0].clone();
    let assertion = form
        .strip_prefix("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=")
        .expect("a claim");
    let (signed, signature) = assertion.rsplit_once('.').expect("a signature");
    let claims = URL_SAFE_NO_PAD.decode(signed.split_once('.').expect("claims").1).expect("base64");
    let claims: serde_json::Value = serde_json::from_slice(&claims).expect("JSON");
    assert_eq!(
        (&claims["iss"], &claims["sub"], &claims["scope"], &claims["aud"]),
        (&"haul@x.iam".into(), &"anna@x".into(), &"s1".into(), &url.into())
    );
    assert_eq!(claims["exp"].as_i64().expect("a time") - claims["iat"].as_i64().expect("a time"), 3600);
    fs::write(folder.join("text"), signed).expect("written");
    fs::write(folder.join("signature"), URL_SAFE_NO_PAD.decode(signature).expect("base64")).expect("written");
    let output = openssl(folder, &["dgst", "-sha256", "-verify", "public.pem", "-signature", "signature", "text"]);
    assert!(output.contains("Verified OK"), "{output}");
}

#[tokio::test]
async fn people_and_machines_without_a_browser() {
    let requests = Arc::<Mutex<Vec<String>>>::default();
    let seen = requests.clone();
    let server = started(move |request| {
        let seen = seen.clone();
        async move {
            let flavor = request.headers().contains_key("metadata-flavor");
            let place = format!("{} {} {flavor}", request.method(), request.uri());
            let form = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
            seen.lock().unwrap().push(format!("{place} {}", String::from_utf8_lossy(&form)));
            answer(StatusCode::OK, "{\"access_token\":\"t\",\"expires_in\":3600}".into())
        }
    });
    let http = http();
    let url = format!("{}/token", server.endpoint());
    let gcloud = serde_json::json!({
        "type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r", "token_uri": url,
    });
    let person = ServiceAccount::from_file(&gcloud.to_string(), "x", None).expect("read");
    assert_eq!(person.header(&http).await.unwrap(), "Bearer t");
    let machine = ServiceAccount::of_machine(server.endpoint().strip_prefix("http://").map(str::to_owned), "x");
    assert_eq!(machine.header(&http).await.unwrap(), "Bearer t");
    let metadata = "GET /computeMetadata/v1/instance/service-accounts/default/token?scopes=x true ";
    let form = "POST /token false grant_type=refresh_token&refresh_token=r&client_id=c&client_secret=s";
    assert_eq!(requests.lock().unwrap()[..], [form, metadata]);
    let given = ServiceAccount::with_token("g");
    let header = given.header(&http).await.unwrap();
    assert_eq!(header, "Bearer g");
    given.refused(&header).await;
    assert_eq!(given.header(&http).await.unwrap_err().kind, ErrorKind::Unauthenticated);
    for bad in ["", "{}", "{\"type\":\"external_account\"}", "{\"client_email\":\"a\",\"private_key\":\"x\"}"] {
        assert_eq!(ServiceAccount::from_file(bad, "x", None).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
    }
}
