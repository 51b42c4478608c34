//! The server: clients and operators come in here. Modules stand in the order a
//! request meets them; what is above may use what is below, never the reverse.

// The program and what operators type.
pub mod cli;
mod reload;
mod serve;

// Operators' requests.
mod admin;
pub mod command;
mod facts;

// Clients' requests.
mod connection;
mod handle;
mod auth;
mod access;
mod route;
mod api;
mod body;

// Answers, and what is left of them.
mod answer;
mod reply;
mod record;
mod metrics;

// What a host is made of.
mod app;
mod wiring;
mod plugins;
mod cache;
pub mod config;

pub mod hygiene;
pub mod telemetry;
mod timestamp;
