//! Three hosts on a replicated database, all on this machine: `just cluster`.
//!
//! Three PostgreSQL servers, of which one takes writes and two have each commit; three hosts that share a store
//! in them; and a balancer, which sends each connection to a host that is ready. All data are in temporary
//! folders. Everything ends with this program.

mod balancer;
mod host;

use anyhow::{Context, Result, bail};
use balancer::Balancer;
use cofferdam_test_postgres::{Options, Server};
use host::{Host, Site};
use std::path::PathBuf;
use std::time::Duration;

const HOSTS: [&str; 3] = ["one", "two", "three"];
const STANDBYS: [&str; 2] = ["b", "c"];

/// What the program is started with.
struct Arguments {
    program: PathBuf,
    /// After so long it ends by itself.
    lasts: Option<Duration>,
}

impl Arguments {
    fn read() -> Result<Self> {
        const USAGE: &str = "usage: cluster PROGRAM [SECONDS]";
        let mut given = std::env::args().skip(1);
        let program = given.next().context(USAGE)?.into();
        let seconds = given.next().map(|text| text.parse()).transpose().context(USAGE)?;
        if given.next().is_some() {
            bail!(USAGE);
        }
        Ok(Self { program, lasts: seconds.map(Duration::from_secs) })
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { program, lasts } = Arguments::read()?;
    let (primary, standbys) = tokio::task::block_in_place(databases)?;
    let ports: Vec<u16> = std::iter::once(&primary).chain(&standbys).map(Server::port).collect();
    let database = primary.database("cofferdam")?;
    let site = Site::new(program, &database, &ports)?;
    let key = site.create_store()?;
    let hosts = HOSTS.iter().map(|name| site.start(name)).collect::<Result<Vec<Host>>>()?;
    let balancer = Balancer::start(hosts.iter().map(|host| (host.listen, host.admin)).collect()).await?;
    explain(&primary, &standbys, &hosts, balancer.port(), &key)?;
    match lasts {
        Some(lasts) => drop(tokio::time::timeout(lasts, tokio::signal::ctrl_c()).await),
        None => tokio::signal::ctrl_c().await?,
    }
    // The hosts end before their database.
    drop(hosts);
    Ok(())
}

/// The primary, and its standbys: a commit waits until one of these has it on its disk.
fn databases() -> Result<(Server, Vec<Server>)> {
    let primary = Options::new().start()?;
    let standbys = STANDBYS.iter().map(|name| Options::new().start_standby_of(&primary, name));
    let standbys = standbys.collect::<Result<Vec<Server>>>()?;
    primary.set("synchronous_standby_names", &format!("ANY 1 ({})", STANDBYS.join(", ")))?;
    Ok((primary, standbys))
}

#[expect(clippy::print_stdout, reason = "the program talks to a person")]
fn explain(primary: &Server, standbys: &[Server], hosts: &[Host], port: u16, key: &str) -> Result<()> {
    println!("\nThree hosts share a store.\n");
    println!("  balancer   http://127.0.0.1:{port}/v1");
    for (name, Host { listen, admin, process, .. }) in HOSTS.iter().zip(hosts) {
        println!("  host {name:6}http://{listen}/v1  admin http://{admin}  process {}", process.id());
    }
    println!("  primary    port {}  process {}", primary.port(), primary.pid()?);
    for (name, standby) in STANDBYS.iter().zip(standbys) {
        println!("  standby {name}  port {}  process {}", standby.port(), standby.pid()?);
    }
    println!("\nTry it:\n");
    println!("  BASE=http://127.0.0.1:{port}/v1 KEY={key} JSON='Content-Type: application/json'");
    println!(
        "  curl -s $BASE/responses -H \"Authorization: Bearer $KEY\" -H \"$JSON\" \\\n       \
         -d '{{\"model\":\"local/demo\",\"input\":\"Hello\"}}'"
    );
    println!(
        "  curl -s -X PUT $BASE/vault/secrets/api_token -H \"Authorization: Bearer $KEY\" -H \"$JSON\" \\\n       \
         -d '{{\"hosts\":[\"api.example.com\"],\"value\":\"a value\"}}'"
    );
    println!("  curl -s $BASE/vault/secrets -H \"Authorization: Bearer $KEY\"\n");
    println!("Break it, and send the requests again:\n");
    if let (Some(host), Some(standby)) = (hosts.first(), standbys.first()) {
        println!("  kill -9 {}                    # host one; the balancer leaves it out", host.process.id());
        println!(
            "  kill -STOP {}                 # the primary stops answering; -CONT lets it go on",
            primary.pid()?
        );
        println!(
            "  kill -9 {}                    # the primary ends; then make standby b take its place:",
            primary.pid()?
        );
        println!(
            "  psql -h {} -p {} -U postgres -c 'SELECT pg_promote()'",
            standby.socket_folder().display(),
            standby.port()
        );
    }
    println!("\nCtrl-C ends all of it.");
    Ok(())
}
