//! Black-box tests: each starts the built program and uses only its public interfaces. The modules
//! are in reading order.

#![expect(unreachable_pub, reason = "nothing outside uses a test; `pub` tells what the kit offers its tests")]

#[cfg(test)]
mod kit;

#[cfg(test)]
mod start;

#[cfg(test)]
mod responses;
#[cfg(test)]
mod streaming;

#[cfg(test)]
mod description;
#[cfg(test)]
mod fields;

#[cfg(test)]
mod fallback;
#[cfg(test)]
mod hosted_tools;
#[cfg(test)]
mod model_router;
#[cfg(test)]
mod provider_options;
#[cfg(test)]
mod routing;

#[cfg(test)]
mod plugins;

#[cfg(test)]
mod tools;

#[cfg(test)]
mod client_tools;

#[cfg(test)]
mod embeddings;

#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod sizes;

#[cfg(test)]
mod installing;
#[cfg(test)]
mod plugin_kit;
#[cfg(test)]
mod plugin_lock;
#[cfg(test)]
mod recordings;
#[cfg(test)]
mod sandbox;

#[cfg(test)]
mod admin_api;
#[cfg(test)]
mod command_line;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod doctor;
#[cfg(test)]
mod grants;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod operations;
#[cfg(test)]
mod other_user;

#[cfg(test)]
mod health;
#[cfg(test)]
mod notify;
#[cfg(test)]
mod tls;

#[cfg(test)]
mod disk_space;

#[cfg(test)]
mod key_routes;
#[cfg(test)]
mod limits;

#[cfg(test)]
mod credentials;
#[cfg(test)]
mod egress;
#[cfg(test)]
mod several_hosts;
#[cfg(test)]
mod vault;
#[cfg(test)]
mod vault_commands;

#[cfg(test)]
mod gateway_faults;
#[cfg(test)]
mod hostile;

#[cfg(test)]
mod deploy;
#[cfg(test)]
mod docs;
#[cfg(test)]
mod story;
#[cfg(test)]
mod tour;

#[cfg(test)]
mod faults;

#[cfg(test)]
mod module_order;
