//! Answers to requests that change something.

use crate::{Service, multistatus};
use haul_net::{Fault, FaultResult};
use haul_store::web::Call;
use http::{HeaderMap, StatusCode};

/// Sends a request that changes something. One that is answered for several resources is done when each of them says so.
pub async fn done(service: &Service, call: Call) -> FaultResult<()> {
    done_with_headers(service, call).await.map(|_| ())
}

/// As [`done`], with the answer's headers.
pub async fn done_with_headers(service: &Service, call: Call) -> FaultResult<HeaderMap> {
    let reply = service.web.ask(call).await?;
    let (status, headers) = (reply.status.as_u16(), reply.headers.clone());
    let body = reply.bytes().await?;
    if status != 207 {
        return Ok(headers);
    }
    let responses = multistatus::read(&body).ok_or_else(|| Fault::broken("the server's answer can't be read"))?;
    let statuses = responses.iter().flat_map(|response| response.status.iter().chain(&response.groups));
    let bad = statuses.copied().find(|status| !(200..300).contains(status));
    match bad.map(|status| StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)) {
        None if responses.is_empty() => Err(Fault::broken("the server's answer says nothing of what was done")),
        None => Ok(headers),
        Some(status) => Err(Fault::answer(status, &HeaderMap::new(), None)),
    }
}
