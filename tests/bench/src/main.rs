//! Loads builds of the program and measures what they need: processor time, memory, latency. docs/performance.md
//! explains the figures.
#![expect(clippy::print_stdout, reason = "results go to standard output")]

mod callgrind;
mod compare;
mod density;
mod growth;
mod many_hosts;
mod recorder;
mod records;
mod shared_store;
mod soak;
mod train;

mod consoles;
mod created;
mod primary;
mod scene;
mod site;

mod client;
mod load;
mod process;
mod table;
mod trend;

mod script;
mod upstream;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cofferdam-bench", about = "Measures builds of the program against a scripted provider")]
struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Count instructions and cache misses of a whole answer with valgrind, in a model of the caches
    Callgrind(callgrind::CallgrindOptions),
    /// Load builds of the program and nginx in turn, and print a table
    Compare(compare::CompareOptions),
    /// Hold many paced streams open, and measure failures, memory and delays
    Density(density::DensityOptions),
    /// Measure how the cost of a request grows with prompts, candidates, tools, hooks, streams, secrets and keys
    Growth(growth::GrowthOptions),
    /// Measure what one PostgreSQL database does for many hosts, which are stores in this process
    ManyHosts(many_hosts::ManyHostsOptions),
    /// Measure what recording requests costs: one program with and without it, in turn
    Recorder(recorder::RecorderOptions),
    /// Measure what a store with many interns and keys costs: one more, a request, a start, memory
    Records(records::RecordsOptions),
    /// Measure what a store in PostgreSQL costs beside the embedded one, with one to three hosts
    SharedStore(shared_store::SharedStoreOptions),
    /// Send mixed load for a long time, and fail if memory grows or something is not given back
    Soak(soak::SoakOptions),
    /// Drive an instrumented build through all its parts, then end it, so that it writes its profile
    Train(train::TrainOptions),
    /// Serve as the scripted provider until standard input ends
    #[command(hide = true)]
    Upstream(upstream::UpstreamOptions),
}

fn main() -> ExitCode {
    let Command { action } = Command::parse();
    match run(action) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// One thread drives the load, so that the servers have the rest of the machine.
fn run(action: Action) -> anyhow::Result<()> {
    rustls::crypto::ring::default_provider().install_default().ok();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        match action {
            Action::Callgrind(options) => callgrind::run(&options).await,
            Action::Compare(options) => compare::run(&options).await,
            Action::Density(options) => density::run(&options).await,
            Action::Growth(options) => growth::run(&options).await,
            Action::ManyHosts(options) => many_hosts::run(&options).await,
            Action::Recorder(options) => recorder::run(&options).await,
            Action::Records(options) => records::run(&options).await,
            Action::SharedStore(options) => shared_store::run(&options).await,
            Action::Soak(options) => soak::run(&options).await,
            Action::Train(options) => train::run(&options).await,
            Action::Upstream(options) => upstream::run(&options).await,
        }
    })
}
