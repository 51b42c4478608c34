//! What hurts users of other gateways: the complaints of `gateways.md` section 5, each as a test that fails where
//! theirs did.

mod credit;
mod estimates;
mod leaving;
mod limits;
mod money;
mod routing;
