//! Fields of requests beyond the OpenAI format: how a client's field reaches providers and other receivers.

mod broadcast;
mod debug;
mod dialects;
mod object;
mod prompts;
mod spans;
mod truncation;
