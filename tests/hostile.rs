//! Hostile guests, components, clients and servers. Beside each of them a paced stream of a well-behaved provider
//! goes on, and the host gives back everything that it held.

mod clients;
mod components;
pub mod guests;
mod servers;
mod sites;
mod slow;
