//! One authenticated request, as every endpoint gets it.

use std::sync::Arc;

use cofferdam_store::Principal;
use http::request::Parts;

use crate::app::App;
use crate::body::BodyLimits;
use crate::fault::Fault;
use crate::reply::record::RequestRecord;

/// One authenticated request.
pub(crate) struct Call<'r> {
    pub(crate) app: &'r Arc<App>,
    pub(crate) principal: Principal,
    pub(crate) head: &'r Parts,
    pub(crate) record: &'r mut RequestRecord,
}

impl Call<'_> {
    /// The principal as of now. Since the head arrived, its key may have been revoked or its role or
    /// workspace changed.
    pub(crate) async fn renewed(&self) -> Result<Principal, Fault> {
        let renewed = self.app.store.renewed(&self.principal).await.map_err(Fault::unread)?;
        renewed.ok_or(Fault::InvalidKey)
    }

    /// The limits for reading a body of at most `bytes_max` bytes.
    pub(crate) fn body_limits(&self, bytes_max: usize) -> BodyLimits {
        let timeouts = self.app.live().config.timeouts;
        BodyLimits { bytes_max, idle: timeouts.body_idle, total: timeouts.body_total }
    }
}
