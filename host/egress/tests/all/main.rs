//! Tests of `Egress` over real connections: every server here listens on a loopback port of its
//! own.

#[cfg(test)]
mod kit;

#[cfg(test)]
mod exchange;
#[cfg(test)]
mod guest_answers;
#[cfg(test)]
mod guest_places;
#[cfg(test)]
mod guest_way;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod names;
#[cfg(test)]
mod reflection;
#[cfg(test)]
mod refused;
#[cfg(test)]
mod reuse;
#[cfg(test)]
mod secrecy;
#[cfg(test)]
mod trust;
