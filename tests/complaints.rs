//! Known complaints about other gateways, each as a test of behaviour in which they fail.

mod credit;
mod estimates;
mod leaving;
mod limits;
mod money;
mod routing;
