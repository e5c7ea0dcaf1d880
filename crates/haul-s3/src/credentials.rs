//! Where credentials come from: the options, or what AWS's own tools would use (`env_auth`), kept until they expire.

// AWS's own files are read where AWS's tools look for them, and only when the user asks for it (`env_auth`).
#![allow(clippy::disallowed_methods)]

use super::{options::Config, sign::Credentials};
use haul_core::{Error, ErrorKind, Result, Retry};
use haul_net::Http;
use haul_store::{Payload, body::Pieces};
use reqsign_aws_v4::{
    AssumeRoleCredentialProvider, Credential, DefaultCredentialProvider, ProfileCredentialProvider, RequestSigner,
    StaticCredentialProvider,
};
use reqsign_core::{
    CommandExecute, CommandOutput, Context, FileRead, HttpSend, OsEnv, ProvideCredentialChain, ProvideCredentialDyn,
    Signer, SigningCredential,
};
use std::sync::{Arc, RwLock};

/// A source of credentials.
#[derive(Debug)]
pub enum Source {
    /// Requests aren't signed.
    Anonymous,
    /// Always these.
    Fixed(Arc<Credentials>),
    /// Asked for, and asked again before they expire.
    Asked(Box<ExpiringCredentials>),
}

/// Credentials that expire.
#[derive(Debug)]
pub struct ExpiringCredentials {
    context: Context,
    provider: Box<dyn ProvideCredentialDyn<Credential = Credential>>,
    /// The role that is assumed; empty: none.
    role: String,
    kept: RwLock<Option<(Credential, Arc<Credentials>)>>,
    /// One question at a time; the others wait for its answer.
    asking: tokio::sync::Mutex<()>,
}

impl Source {
    /// The source that the options name.
    pub fn new(config: &Config, http: &Http<Pieces>) -> Source {
        let token = Some(config.session_token.clone()).filter(|t| !t.is_empty());
        let fixed = !config.access_key_id.is_empty();
        if fixed && config.role_arn.is_empty() {
            return Source::Fixed(Arc::new(Credentials {
                access_key: config.access_key_id.clone(),
                secret_key: config.secret_access_key.clone(),
                token,
            }));
        }
        if !fixed && !config.env_auth {
            return Source::Anonymous;
        }
        let context = Context::new()
            .with_env(OsEnv)
            .with_file_read(Files)
            .with_command_execute(Commands)
            .with_http_send(Sender(http.clone()));
        let own = || match &token {
            Some(token) => StaticCredentialProvider::new(&config.access_key_id, &config.secret_access_key)
                .with_session_token(token),
            None => StaticCredentialProvider::new(&config.access_key_id, &config.secret_access_key),
        };
        let base = if fixed {
            ProvideCredentialChain::new().push(own())
        } else {
            ProvideCredentialChain::new().push(default_chain(config))
        };
        // A chain hides the errors of its members, so a role stands alone.
        let provider: Box<dyn ProvideCredentialDyn<Credential = Credential>> = match config.role_arn.as_str() {
            "" => Box::new(base),
            role => {
                let region = if config.region.is_empty() { "us-east-1" } else { &config.region };
                let signer = Signer::new(context.clone(), base, RequestSigner::new("sts", region));
                let session = if config.role_session_name.is_empty() { "haul" } else { &config.role_session_name };
                let provider = AssumeRoleCredentialProvider::new(role.to_owned(), signer)
                    .with_region(region.to_owned())
                    .with_regional_sts_endpoint()
                    .with_role_session_name(session.to_owned());
                let provider = match &*config.role_external_id {
                    "" => provider,
                    id => provider.with_external_id(id.to_owned()),
                };
                Box::new(provider)
            }
        };
        let asking = tokio::sync::Mutex::new(());
        let role = config.role_arn.clone();
        Source::Asked(Box::new(ExpiringCredentials { context, provider, role, kept: RwLock::new(None), asking }))
    }

    /// Credentials that are good now; `None` for anonymous requests.
    ///
    /// Errors: `Unauthenticated` when nothing gives any.
    pub async fn get(&self) -> Result<Option<Arc<Credentials>>> {
        match self {
            Source::Anonymous => Ok(None),
            Source::Fixed(credentials) => Ok(Some(credentials.clone())),
            Source::Asked(asked) => asked.get().await.map(Some),
        }
    }

    /// Names the account, as far as it is known without asking.
    pub fn account(&self) -> &str {
        match self {
            Source::Anonymous => "",
            Source::Fixed(credentials) => &credentials.access_key,
            Source::Asked(_) => "environment",
        }
    }
}

impl ExpiringCredentials {
    fn fresh(&self) -> Option<Arc<Credentials>> {
        let kept = self.kept.read().unwrap_or_else(|e| e.into_inner());
        kept.as_ref().filter(|(c, _)| c.is_valid()).map(|(_, c)| c.clone())
    }

    async fn get(&self) -> Result<Arc<Credentials>> {
        if let Some(fresh) = self.fresh() {
            return Ok(fresh);
        }
        let _asking = self.asking.lock().await;
        if let Some(fresh) = self.fresh() {
            return Ok(fresh);
        }
        let found = self.provider.provide_credential_dyn(&self.context).await.map_err(|e| {
            let retry = if e.is_retryable() { Retry::Backoff } else { Retry::Never };
            let message = match &*self.role {
                "" => format!("no credentials: {e}"),
                role => format!("{role} can't be assumed: {e}"),
            };
            Error::new(ErrorKind::Unauthenticated, "open", message).with_retry(retry)
        })?;
        let found = found.ok_or_else(|| {
            let message = "no credentials: neither environment, profile, web identity nor instance gives any; \
                           set access_key_id and secret_access_key";
            Error::new(ErrorKind::Unauthenticated, "open", message)
        })?;
        let credentials = Arc::new(Credentials {
            access_key: found.access_key_id.clone(),
            secret_key: found.secret_access_key.clone(),
            token: found.session_token.clone(),
        });
        *self.kept.write().unwrap_or_else(|e| e.into_inner()) = Some((found, credentials.clone()));
        Ok(credentials)
    }
}

fn default_chain(config: &Config) -> DefaultCredentialProvider {
    let mut profile = ProfileCredentialProvider::new();
    if !config.shared_credentials_file.is_empty() {
        profile = profile.with_credentials_file(&config.shared_credentials_file);
    }
    let builder = DefaultCredentialProvider::builder().profile(profile);
    match config.profile.as_str() {
        "" => builder.build(),
        name => builder.with_profile(name).build(),
    }
}

fn unexpected(error: impl std::fmt::Display) -> reqsign_core::Error {
    reqsign_core::Error::unexpected(error.to_string())
}

#[derive(Debug)]
struct Files;

impl FileRead for Files {
    #[expect(clippy::disallowed_methods, reason = "the user's AWS profile, which only this needs")]
    async fn file_read(&self, path: &str) -> reqsign_core::Result<Vec<u8>> {
        let path = path.to_owned();
        tokio::task::spawn_blocking(move || std::fs::read(path)).await.map_err(unexpected)?.map_err(unexpected)
    }
}

/// Runs a profile's `credential_process`.
#[derive(Debug)]
struct Commands;

impl CommandExecute for Commands {
    async fn command_execute(&self, program: &str, args: &[&str]) -> reqsign_core::Result<CommandOutput> {
        let mut command = std::process::Command::new(program);
        command.args(args);
        let output = tokio::task::spawn_blocking(move || command.output()).await.map_err(unexpected)?;
        let output = output.map_err(unexpected)?;
        Ok(CommandOutput { status: output.status.code().unwrap_or(-1), stdout: output.stdout, stderr: output.stderr })
    }
}

#[derive(Debug)]
struct Sender(Http<Pieces>);

/// Metadata services answer at once or aren't there.
const ASK_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);

impl HttpSend for Sender {
    async fn http_send(
        &self,
        request: http::Request<bytes::Bytes>,
    ) -> reqsign_core::Result<http::Response<bytes::Bytes>> {
        let request = request.map(|body| Pieces::new(Payload::from(body)));
        let exchange = async {
            let reply = self.0.send(request).await.map_err(|f| unexpected(f.message))?;
            let mut response = http::Response::new(());
            (*response.status_mut(), *response.headers_mut()) = (reply.status, reply.headers.clone());
            let body = reply.bytes().await.map_err(|f| unexpected(f.message))?;
            Ok(response.map(|()| body))
        };
        tokio::time::timeout(ASK_WITHIN, exchange).await.map_err(|_| unexpected("no answer"))?
    }
}
