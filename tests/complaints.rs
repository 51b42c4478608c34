//! What users of other gateways complain of, and does not happen here.

mod limits;
