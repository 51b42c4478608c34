//! What a response is: request types, attempts, assembly, cost.

pub mod request;
