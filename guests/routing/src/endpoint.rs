//! The input of the rules: the records of `wit/router.wit`, as far as the rules read them.

/// The part of a request that the rules depend on. It holds no content.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// How many models the client named.
    pub models: usize,
    /// The slug suffix of the first model, without the colon.
    pub suffix: Option<String>,
    /// Whether the client named a router that chose the models. The suffix then applies to all of
    /// them.
    pub chosen: bool,
    /// The `provider` object as JSON.
    pub preferences: Vec<u8>,
    /// The deprecated `route` field.
    pub route: Option<String>,
    /// The requested service tier, `auto` when absent.
    pub service_tier: String,
    /// The names of the body fields that the client set.
    pub parameters: Vec<String>,
    /// Abilities that the request needs.
    pub needs: Vec<String>,
    /// A rough estimate of the number of input tokens.
    pub input_tokens: u32,
    /// The largest output that the client asked for, in tokens.
    pub max_output_tokens: Option<u32>,
    /// The index of the candidate that served this session last, if the host remembers one.
    pub sticky: Option<u32>,
}

impl Request {
    /// Tokens of the input and of the largest output together, which must fit into the context.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        self.input_tokens.saturating_add(self.max_output_tokens.unwrap_or(0))
    }

    /// Whether the suffix `:free` applies to the model with this rank. Fallbacks that the client named
    /// have names and suffixes of their own.
    pub(crate) fn must_be_free(&self, model_rank: u32) -> bool {
        self.suffix.as_deref() == Some("free") && (model_rank == 0 || self.chosen)
    }
}

/// Prices in dollars per million tokens; `image` is in dollars per image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    pub input: f64,
    pub output: f64,
    pub image: f64,
}

/// Percentiles over the last minutes; zero when nothing was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percentiles {
    pub p50: f64,
    pub p75: f64,
    pub p90: f64,
    pub p99: f64,
}

/// What the host has measured at an endpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistics {
    /// Milliseconds until the first content.
    pub latency_ms: Percentiles,
    /// Output tokens per second.
    pub throughput: Percentiles,
    /// The number of requests in the last five minutes.
    pub requests: u32,
    /// How many of these requests failed because of the endpoint.
    pub failures: u32,
    /// Whether the endpoint failed within the last 30 seconds.
    pub outage: bool,
    /// Whether the endpoint is only a last resort: its circuit breaker admits no request, its
    /// provider limits requests at the moment, or it is an outlier among the endpoints of its model.
    pub ejected: bool,
}

/// One endpoint that could serve the request.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The index of its model among the models that the client named.
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
    /// Abilities and parameters of the endpoint; empty when not stated.
    pub supports: Vec<String>,
    /// `unknown` when not stated.
    pub quantization: String,
    /// Whether the provider keeps no data at all (zero data retention).
    pub zdr: bool,
    /// Whether the provider may use data for training.
    pub data_collection: bool,
    /// Whether the workspace's own credential would be used.
    pub byok: bool,
    pub statistics: Statistics,
}

impl Price {
    /// Whether neither input nor output costs anything.
    pub(crate) fn is_free(&self) -> bool {
        self.input <= 0.0 && self.output <= 0.0
    }
}
