//! `GET /v1/models` and `GET /v1/models/{id}`: the catalog.

use cofferdam_engine::Refusal;
use cofferdam_engine::catalog::Catalog;
use http::{Response, StatusCode};

use crate::call::Call;
use crate::fault::Fault;
use crate::reply::answer::ResponseBody;
use crate::reply::json_response;

pub(crate) fn list(call: &Call<'_>) -> Result<Response<ResponseBody>, Fault> {
    let body = call.app.live().engine.catalog().list_json();
    Ok(json_response(StatusCode::OK, body.to_string().into()))
}

pub(crate) fn read(call: &Call<'_>, id: &str) -> Result<Response<ResponseBody>, Fault> {
    let live = call.app.live();
    let catalog = live.engine.catalog();
    let model = catalog.get(id).ok_or_else(|| unknown(catalog, id))?;
    Ok(json_response(StatusCode::OK, catalog.model_json(model).to_string().into()))
}

fn unknown(catalog: &Catalog, id: &str) -> Fault {
    let refusal = Refusal::not_found(catalog.unknown(id));
    Fault::Refused { refusal: Box::new(refusal), field: None }
}
