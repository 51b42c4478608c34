//! Optional fields of the API, from the client's request to what providers and other receivers get.

mod broadcast;
mod debug;
mod dialects;
mod object;
mod prompts;
mod truncation;
