//! What is ordered and for whom: the records of `wit/router.wit`, as far as the
//! rules read them.

/// The part of a request that the rules depend on. No content.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// How many models the client named.
    pub models: usize,
    /// The slug suffix of the first of them, without the colon.
    pub suffix: Option<String>,
    /// The client named a router, which chose the models: the suffix speaks of
    /// all of them.
    pub chosen: bool,
    /// The `provider` object as JSON.
    pub preferences: Vec<u8>,
    /// The deprecated `route` field.
    pub route: Option<String>,
    /// The requested service tier, `auto` when absent.
    pub service_tier: String,
    /// Names of the body fields the client set.
    pub parameters: Vec<String>,
    /// Abilities the request needs.
    pub needs: Vec<String>,
    /// A rough count of input tokens.
    pub input_tokens: u32,
    /// The largest output the client asked for.
    pub max_output_tokens: Option<u32>,
    /// The index of the candidate that served this session last, if remembered.
    pub sticky: Option<u32>,
}

impl Request {
    /// Tokens of input and the largest output together, as they must fit a context.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        self.input_tokens.saturating_add(self.max_output_tokens.unwrap_or(0))
    }

    /// Whether the suffix `:free` speaks of the model of this rank. Fallbacks
    /// that the client named have a name, and a suffix, of their own.
    pub(crate) fn must_be_free(&self, model_rank: u32) -> bool {
        self.suffix.as_deref() == Some("free") && (model_rank == 0 || self.chosen)
    }
}

/// Dollars per million tokens; `image` is dollars per image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    pub input: f64,
    pub output: f64,
    pub image: f64,
}

/// Percentiles of the last minutes; zero when nothing was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percentiles {
    pub p50: f64,
    pub p75: f64,
    pub p90: f64,
    pub p99: f64,
}

/// What the host has measured of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistics {
    /// Milliseconds to first content.
    pub latency_ms: Percentiles,
    /// Output tokens per second.
    pub throughput: Percentiles,
    /// Requests of the last five minutes.
    pub requests: u32,
    /// How many of them failed for the endpoint's own reasons.
    pub failures: u32,
    /// It failed within the last 30 seconds.
    pub outage: bool,
    /// The breaker is open: the endpoint is only a last resort.
    pub ejected: bool,
}

/// One endpoint that could serve the request.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The place of its model among those the client named.
    pub model_rank: u32,
    /// The provider's name in the configuration.
    pub provider: String,
    /// `default`, `flex`, `priority`, `scale` or `ultrafast`.
    pub tier: String,
    pub price: Price,
    /// Tokens of input and output together; zero when unknown.
    pub context_length: u32,
    /// The largest output in tokens; zero when unknown.
    pub max_output: u32,
    /// Abilities and parameters it has; empty when not stated.
    pub supports: Vec<String>,
    /// `unknown` when not stated.
    pub quantization: String,
    /// Keeps no data at all.
    pub zdr: bool,
    /// May use data for training.
    pub data_collection: bool,
    /// The workspace's own credential would be used.
    pub byok: bool,
    pub statistics: Statistics,
}

impl Price {
    /// Whether neither input nor output costs anything.
    pub(crate) fn is_free(&self) -> bool {
        self.input <= 0.0 && self.output <= 0.0
    }
}
