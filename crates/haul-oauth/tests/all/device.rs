//! A code that is typed in elsewhere (RFC 8628).

use crate::renewal::{PROVIDER, http, started};
use haul_oauth::{
    Token,
    setup::{self, LoginDisplay, NextStep, RemoteOptions},
};
use haul_testkit::serve::answer;
use http::StatusCode;
use http_body_util::BodyExt as _;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl LoginDisplay for Told {
    fn page(&self, _: &str) {
        panic!("there is no browser here");
    }

    fn code(&self, page: &str, code: &str) {
        self.0.lock().unwrap().push(format!("{page} {code}"));
    }
}

#[tokio::test]
async fn a_code_is_shown_and_the_token_waited_for() {
    let polls = Arc::new(AtomicUsize::new(0));
    let count = polls.clone();
    let server = started(move |request| {
        let count = count.clone();
        async move {
            let device = request.uri().path() == "/device";
            let form = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
            let form = String::from_utf8_lossy(&form).into_owned();
            if device {
                assert_eq!(form, "client_id=me&scope=all");
                let text = "{\"device_code\":\"d\",\"user_code\":\"ABC-1\",\"verification_uri\":\"https://x/dev\",\"interval\":0}";
                return answer(StatusCode::OK, text.into());
            }
            assert_eq!(
                form,
                "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code&device_code=d&client_id=me"
            );
            match count.fetch_add(1, Ordering::SeqCst) {
                0 | 1 => answer(StatusCode::BAD_REQUEST, "{\"error\":\"authorization_pending\"}".into()),
                _ => answer(StatusCode::OK, "{\"access_token\":\"a\",\"refresh_token\":\"r\"}".into()),
            }
        }
    });
    let at = server.endpoint();
    let named =
        [("client_id", "me".to_owned()), ("device_url", format!("{at}/device")), ("token_url", format!("{at}/token"))];
    let options: RemoteOptions = named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let (display, http) = (Told::default(), http());
    let mut next = (setup::BEGIN.to_owned(), "");
    for (name, answer) in [("config_is_local", "false"), ("config_device_code", "true")] {
        let step = setup::step(&PROVIDER, &options, &http, &display, (&next.0, next.1)).await.unwrap();
        let NextStep::Ask(question) = step else { panic!("{step:?}") };
        assert_eq!(question.name, name);
        next = (question.state, answer);
    }
    let step = setup::step(&PROVIDER, &options, &http, &display, (&next.0, next.1)).await.unwrap();
    let NextStep::Done(changed) = step else { panic!("{step:?}") };
    assert_eq!(Token::parse(&changed["token"]).unwrap().refresh_token, "r");
    assert_eq!(display.0.lock().unwrap()[..], ["https://x/dev ABC-1"]);
    assert_eq!(polls.load(Ordering::SeqCst), 3);
    // On another machine instead.
    let step = setup::step(&PROVIDER, &options, &http, &display, (&next.0, "false")).await.unwrap();
    assert!(matches!(&step, NextStep::Ask(question) if question.name == "config_token"), "{step:?}");
}
