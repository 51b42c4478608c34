//! Measures what a call into a guest costs. Prints best and median of many calls: `cargo run
//! --release -p cofferdam-runtime --example guest_calls`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_runtime::wire::{
    Candidate, Frame, Percentiles, Price, Purpose, RequestSummary, ResponseHead, Statistics, Target,
};
use cofferdam_runtime::{CallContext, Owner, PluginSource, Plugins, Runtime, RuntimeConfig, tune};

const ROUNDS: usize = 3_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let scheduler = tune(&mut builder).enable_all().build()?;
    scheduler.block_on(measure())
}

async fn measure() -> Result<(), Box<dyn std::error::Error>> {
    let cache_dir = std::env::temp_dir().join(format!("cofferdam-measure-{}", std::process::id()));
    let config = RuntimeConfig {
        streams: 1_000,
        cache_dir: cache_dir.clone(),
        recordings_dir: cache_dir.join("recordings"),
        tick: Duration::from_millis(2),
    };
    let started = Instant::now();
    let runtime = Runtime::start(config.clone())?;
    report("start of the sandbox", &mut [started.elapsed()]);
    loading(&runtime, "load and compile two plugins").await?;
    let plugins = loading(&Runtime::start(config)?, "the same from the cache").await?;
    for owner in [None, Some(Owner::new("key"))] {
        heading(if owner.is_some() { "instances of the same owner" } else { "fresh instances" });
        routing(&plugins, &context(owner.clone())).await?;
        providing(&plugins, &context(owner)).await?;
    }
    heading("shipped components, instances of the same owner");
    let shipped = runtime.load(
        vec![shipped("router")?, shipped("provider-openai-responses")?, shipped("provider-openai-chat")?],
        &BTreeMap::new(),
    )?;
    for plugin in shipped.iter() {
        plugin.compile().await?;
    }
    let context = context(Some(Owner::new("key")));
    routing(&shipped, &context).await?;
    for (provider, answer) in [("provider-openai-responses", RESPONSE), ("provider-openai-chat", COMPLETION)]
    {
        translating(&shipped, provider, answer, &context).await?;
    }
    std::fs::remove_dir_all(cache_dir)?;
    Ok(())
}

async fn loading(runtime: &Runtime, what: &str) -> Result<Plugins, Box<dyn std::error::Error>> {
    let started = Instant::now();
    let plugins = runtime.load(vec![source("router")?, source("provider")?], &BTreeMap::new())?;
    for plugin in plugins.iter() {
        plugin.compile().await?;
    }
    report(what, &mut [started.elapsed()]);
    Ok(plugins)
}

/// A component of `plugins/` with its manifest.
fn shipped(name: &str) -> std::io::Result<PluginSource> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins");
    Ok(PluginSource {
        name: name.to_owned(),
        manifest: std::fs::read_to_string(folder.join(format!("{name}.toml")))?,
        component: std::fs::read(folder.join(format!("{name}.wasm")))?.into(),
        digest: None,
        origin: "measure".to_owned(),
        is_built_in: false,
    })
}

fn source(kind: &str) -> std::io::Result<PluginSource> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    Ok(PluginSource {
        name: kind.to_owned(),
        manifest: format!("name = \"{kind}\"\nkind = \"{kind}\"\nversion = \"1\"\n"),
        component: std::fs::read(folder.join(format!("{kind}.wasm")))?.into(),
        digest: None,
        origin: "measure".to_owned(),
        is_built_in: false,
    })
}

/// The context of a call. With an owner, one instance serves all rounds.
fn context(owner: Option<Owner>) -> CallContext {
    CallContext {
        request_id: "resp_measure".into(),
        workspace: "workspace".into(),
        owner,
        now_ms: 0,
        inputs: None,
    }
}

async fn routing(plugins: &Plugins, context: &CallContext) -> Result<(), Box<dyn std::error::Error>> {
    let router = plugins.get("router").ok_or("no router")?;
    let summary = RequestSummary {
        purpose: Purpose::Responses,
        requested: "a/b".to_owned(),
        models: vec!["a/b".to_owned()],
        suffix: None,
        preferences: b"{}".to_vec(),
        route: None,
        service_tier: "auto".to_owned(),
        parameters: Vec::new(),
        needs: Vec::new(),
        input_tokens: 1,
        max_output_tokens: None,
        streamed: true,
        sticky: None,
    };
    let candidates = [candidate()];
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let started = Instant::now();
        router.route(context, &summary, &candidates, 1).await?.map_err(|failure| failure.message)?;
        times.push(started.elapsed());
    }
    report("route(), instance included", &mut times);
    Ok(())
}

async fn providing(plugins: &Plugins, context: &CallContext) -> Result<(), Box<dyn std::error::Error>> {
    let provider = plugins.get("provider").ok_or("no provider")?;
    let target = target();
    let head = ResponseHead { status: 200, headers: Vec::new(), streamed: true };
    let frame = Frame { name: String::new(), data: vec![b'x'; 160] };
    let (mut open, mut prepare, mut decoder, mut one, mut eight, mut close) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let eight_frames = vec![frame.clone(); 8];
    for _ in 0..ROUNDS {
        let mut clock = Lap(Instant::now());
        let mut attempt = provider.open_provider(context).await?;
        open.push(clock.lap());
        drop(attempt.prepare(&[b' '; 1_024], &target).await?);
        prepare.push(clock.lap());
        attempt.open_decoder(&head).await?;
        decoder.push(clock.lap());
        drop(attempt.feed(std::slice::from_ref(&frame)).await?);
        clock.lap();
        drop(attempt.feed(std::slice::from_ref(&frame)).await?);
        one.push(clock.lap());
        drop(attempt.feed(&eight_frames).await?);
        eight.push(clock.lap());
        attempt.close().await;
        close.push(clock.lap());
    }
    report("open_provider", &mut open);
    report("prepare of 1 KiB", &mut prepare);
    report("open_decoder", &mut decoder);
    report("feed of one event of 160 bytes", &mut one);
    report("feed of eight such events", &mut eight);
    report("end of the attempt", &mut close);
    Ok(())
}

fn target() -> Target {
    Target {
        model: "m".to_owned(),
        max_output: 0,
        supports: Vec::new(),
        tier: "default".to_owned(),
        options: b"{}".to_vec(),
    }
}

/// One whole answer by a shipped provider: the request with a prompt of 1,000 characters, and an
/// answer with 600 characters.
async fn translating(
    plugins: &Plugins,
    name: &str,
    answer: &str,
    context: &CallContext,
) -> Result<(), Box<dyn std::error::Error>> {
    let provider = plugins.get(name).ok_or("no provider")?;
    let target = target();
    let prompt = "The service failed. ".repeat(50);
    let request = format!(
        r#"{{"model":"a/b","input":[{{"type":"message","role":"user","content":[{{"type":"input_text","text":"{prompt}"}}]}}],"stream":false}}"#
    );
    let answer = answer.replace("TEXT", &"lorem ".repeat(100));
    let head = ResponseHead { status: 200, headers: Vec::new(), streamed: false };
    let (mut prepare, mut decode) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut attempt = provider.open_provider(context).await?;
        let mut clock = Lap(Instant::now());
        attempt.prepare(request.as_bytes(), &target).await?.map_err(|failure| failure.message)?;
        prepare.push(clock.lap());
        let body = Frame { name: String::new(), data: answer.clone().into_bytes() };
        clock.lap();
        attempt.decode(&head, body).await?.map_err(|failure| failure.message)?;
        decode.push(clock.lap());
        attempt.close().await;
    }
    report(&format!("{name}: prepare"), &mut prepare);
    report(&format!("{name}: decode"), &mut decode);
    Ok(())
}

const RESPONSE: &str = r#"{"id":"resp_1","object":"response","created_at":1750000000,"status":"completed","error":null,"incomplete_details":null,"instructions":null,"max_output_tokens":null,"model":"m","output":[{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"TEXT","annotations":[],"logprobs":[]}]}],"parallel_tool_calls":true,"reasoning":{"effort":null,"summary":null},"service_tier":"default","store":false,"temperature":1.0,"text":{"format":{"type":"text"},"verbosity":"medium"},"tool_choice":"auto","tools":[],"top_p":1.0,"truncation":"disabled","usage":{"input_tokens":250,"input_tokens_details":{"cached_tokens":0},"output_tokens":100,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":350},"user":null,"metadata":{}}"#;

const COMPLETION: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1750000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"TEXT","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":250,"completion_tokens":100,"total_tokens":350,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}},"service_tier":"default","system_fingerprint":"fp"}"#;

fn candidate() -> Candidate {
    let none = Percentiles { p50: 0.0, p75: 0.0, p90: 0.0, p99: 0.0 };
    Candidate {
        model: "a/b".to_owned(),
        model_rank: 0,
        provider: "p".to_owned(),
        tier: "default".to_owned(),
        price: Price {
            input: 1.0,
            output: 1.0,
            cached_input: 1.0,
            cache_write: 1.0,
            reasoning: 1.0,
            image: 0.0,
        },
        context_length: 0,
        max_output: 0,
        supports: Vec::new(),
        quantization: "unknown".to_owned(),
        zdr: false,
        data_collection: false,
        byok: false,
        statistics: Statistics {
            latency_ms: none,
            throughput: none,
            requests: 0,
            failures: 0,
            outage: false,
            ejected: false,
        },
    }
}

struct Lap(Instant);

impl Lap {
    fn lap(&mut self) -> Duration {
        let now = Instant::now();
        let lap = now - self.0;
        self.0 = Instant::now();
        lap
    }
}

#[expect(clippy::print_stdout, reason = "printing is what this program is for")]
fn heading(what: &str) {
    println!("-- {what}");
}

#[expect(clippy::print_stdout, reason = "printing is what this program is for")]
fn report(what: &str, times: &mut [Duration]) {
    times.sort();
    let micros = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e6);
    let (best, median) = (micros(times.first()), micros(times.get(times.len() / 2)));
    println!("{what:40} best {best:10.2} us   median {median:10.2} us");
}
