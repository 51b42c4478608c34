//! Complaints of users of other gateways. Each test reproduces the situation in which those
//! gateways fail.

mod credit;
mod estimates;
mod leaving;
mod limits;
mod money;
mod routing;
