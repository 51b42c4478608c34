//! Names that the interface leaves open, from the client's request to what providers and others receive.

mod broadcast;
mod debug;
mod object;
mod prompts;
mod truncation;
