//! `GET /v1/models` and `GET /v1/models/{id}`: the catalog.

use http::{Response, StatusCode};

use crate::answer::Body;
use crate::handle::Call;
use crate::reply::{Fault, json_response};

pub(crate) fn list(call: &Call<'_>) -> Result<Response<Body>, Fault> {
    let body = call.app.live().engine.models_json();
    Ok(json_response(StatusCode::OK, body.to_string().into()))
}

pub(crate) fn read(call: &Call<'_>, id: &str) -> Result<Response<Body>, Fault> {
    let model = call.app.live().engine.model_json(id);
    let body = model.map_err(|refusal| Fault::Refused { refusal: Box::new(refusal), field: None })?;
    Ok(json_response(StatusCode::OK, body.to_string().into()))
}
