//! `POST /v1/responses`.

use std::sync::Arc;

use http::Response;
use hyper::body::Incoming;

use super::inference;
use crate::call::Call;
use crate::fault::Fault;
use crate::reply::answer::ResponseBody;

pub(crate) async fn create(
    call: &mut Call<'_>,
    body: &mut Incoming,
) -> Result<Response<ResponseBody>, Fault> {
    let app = Arc::clone(call.app);
    let caller = inference::admit(call)?;
    let mut share = app.bodies.share(call.principal.key_id());
    let body = inference::read_body(call, body, &mut share).await?;
    let options = inference::options(&call.head.headers);
    let field = options.metadata_field;
    let engine = Arc::clone(&app.live().engine);
    let answer = engine.respond(caller, body, options).await;
    Ok(inference::respond(call, answer.map_err(|refusal| inference::refused(refusal, field))?))
}
