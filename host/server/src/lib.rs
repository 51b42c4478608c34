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
mod access;
mod api;
mod auth;
mod body;
mod connection;
mod handle;
mod route;

// Answers, and what is left of them.
mod answer;
mod metrics;
mod record;
mod reply;

// What a host is made of.
mod app;
mod cache;
pub mod config;
mod plugins;
mod wiring;

pub mod hygiene;
pub mod telemetry;
mod timestamp;
