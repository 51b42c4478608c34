//! Faults that users of other gateways report. Each test reproduces the situation in which those
//! gateways fail.

mod attempts;
mod credit;
mod estimates;
mod leaving;
mod limits;
mod money;
mod routing;
