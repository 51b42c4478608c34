//! Resolves host names and checks every address of the answer.
//!
//! A name is resolved once, every address is checked, and exactly these addresses are dialled:
//! there is no second look-up between check and connect (egress rule R11). One closed address
//! refuses the whole answer, because a server that mixes open and closed addresses is misconfigured
//! or hostile.

use std::{
    collections::BTreeMap,
    error::Error as StdError,
    future::Future,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hickory_resolver::{
    ResolverBuilder, TokioResolver,
    config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig},
    net::runtime::TokioRuntimeProvider,
};
use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;

use crate::{
    EgressConfig, EgressConfigError,
    error::{AddressRefused, Unreached},
    origin::is_localhost,
    rule::PoolRule,
};

/// Longest time that an answer is cached, whatever its TTL: providers move to other addresses,
/// often before the TTL ends.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(300);
/// Number of names in the cache.
const ANSWERS_MAX: u64 = 1024;
/// Number of addresses that are dialled from one answer. The connect timeout ends before more could
/// be tried.
const ADDRESSES_MAX: usize = 32;

/// Resolves from the fixed answers, the loopback names and DNS, without applying a rule.
pub(crate) struct HostResolver {
    fixed: BTreeMap<String, Vec<IpAddr>>,
    dns: TokioResolver,
}

impl HostResolver {
    /// # Errors
    ///
    /// [`EgressConfigError::Client`] if the resolver refuses its settings.
    pub(crate) fn new(config: &EgressConfig) -> Result<Self, EgressConfigError> {
        let fixed =
            config.resolve.iter().map(|(name, answer)| (name.to_ascii_lowercase(), answer.clone())).collect();
        let mut builder = if config.nameservers.is_empty() {
            // A machine without a resolver configuration can still reach literal addresses and
            // fixed names.
            TokioResolver::builder_tokio().unwrap_or_else(|_| {
                tracing::warn!(
                    "no system resolver configuration: only fixed names and addresses are reachable"
                );
                ask(ResolverConfig::default())
            })
        } else {
            let servers = config.nameservers.iter().copied().map(server).collect();
            let mut builder = ask(ResolverConfig::from_parts(None, Vec::new(), servers));
            builder.options_mut().use_hosts_file = ResolveHosts::Never;
            builder
        };
        let options = builder.options_mut();
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.cache_size = ANSWERS_MAX;
        options.positive_max_ttl = Some(ANSWER_AGE_MAX);
        options.negative_max_ttl = Some(Duration::from_secs(10));
        options.timeout = options.timeout.min(config.connect_timeout);
        let dns = builder.build().map_err(|_| EgressConfigError::Client)?;
        Ok(Self { fixed, dns })
    }

    async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, Unreached> {
        if let Some(fixed) = self.fixed.get(name) {
            return Ok(fixed.clone());
        }
        if is_localhost(name) {
            // These names never go to a name server (RFC 6761, 6.3).
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        let answer = self.dns.lookup_ip(name).await.map_err(|error| {
            match error.is_nx_domain() || error.is_no_records_found() {
                true => Unreached::UnknownName,
                false => Unreached::NoNameServer,
            }
        })?;
        Ok(answer.iter().collect())
    }
}

fn ask(servers: ResolverConfig) -> ResolverBuilder<TokioRuntimeProvider> {
    TokioResolver::builder_with_config(servers, TokioRuntimeProvider::default())
}

fn server(address: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

/// Resolves names under the rule of one connection pool.
#[derive(Clone)]
pub(crate) struct CheckedNames {
    names: Arc<HostResolver>,
    rule: PoolRule,
}

impl CheckedNames {
    pub(crate) fn new(names: Arc<HostResolver>, rule: PoolRule) -> Self {
        Self { names, rule }
    }

    pub(crate) fn rule(&self) -> &PoolRule {
        &self.rule
    }
}

type BoxError = Box<dyn StdError + Send + Sync>;

impl Service<Name> for CheckedNames {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let names = Arc::clone(&self.names);
        let rule = self.rule.clone();
        Box::pin(async move {
            let addresses = names.look_up(name.as_str()).await?;
            if addresses.is_empty() {
                return Err(Unreached::UnknownName.into());
            }
            // All addresses are checked, also those beyond `ADDRESSES_MAX`.
            for address in &addresses {
                rule.check(*address).map_err(AddressRefused)?;
            }
            // With port 0 the connector uses the port of the URL.
            let dialled =
                addresses.into_iter().take(ADDRESSES_MAX).map(|address| SocketAddr::new(address, 0));
            Ok(dialled.collect::<Vec<_>>().into_iter())
        })
    }
}
