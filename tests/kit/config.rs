//! Configurations of providers and models.

use std::fmt::Write as _;

/// The model that most tests use.
pub const MODEL: &str = "test/model";

/// Makes routing independent of earlier requests: failures are forgotten and nothing is retried.
pub const STEADY: &str = "[routing]\neject = false\nretry = false\n";

pub fn provider(name: &str, adapter: &str, base: &str) -> String {
    format!("[[providers]]\nname = \"{name}\"\nadapter = \"{adapter}\"\nbase_url = \"{base}\"\n")
}

/// A model served by these providers. The first one is free and each further one costs more, so
/// that sorting by price tries them in this order.
pub fn model(id: &str, kind: &str, providers: &[&str]) -> String {
    let mut endpoints = String::new();
    for (place, provider) in providers.iter().enumerate() {
        let price = place * 10;
        write!(
            endpoints,
            "{{ provider = \"{provider}\", model = \"upstream-{provider}\", input = {price} }}, "
        )
        .unwrap();
    }
    format!("[[models]]\nid = \"{id}\"\nkind = \"{kind}\"\nendpoints = [{endpoints}]\n")
}

/// Adds keys to the endpoints of this provider.
pub fn with_keys(models: &str, provider: &str, keys: &str) -> String {
    let endpoint = format!("provider = \"{provider}\", ");
    models.replace(&endpoint, &format!("{endpoint}{keys}, "))
}

/// Every hosted tool of the Responses dialect, and a vector store.
pub const HOSTED_TOOLS: &str = "hosted_tool_ids = [\"v\"], hosted_tools = [\"web_search\", \
    \"web_search_2025_08_26\", \"web_search_preview\", \"web_search_preview_2025_03_11\", \"file_search\", \
    \"code_interpreter\", \"mcp\", \"image_generation\", \"programmatic_tool_calling\", \"shell\"]";

/// [`MODEL`] at one provider of this dialect.
pub fn single(adapter: &str, base: &str) -> String {
    provider("one", adapter, base) + &model(MODEL, "responses", &["one"])
}

/// Like [`single`]; clients may use the provider's hosted tools.
pub fn single_with_tools(adapter: &str, base: &str) -> String {
    let config = single(adapter, base);
    if adapter == "openai-responses" { with_keys(&config, "one", HOSTED_TOOLS) } else { config }
}

/// [`MODEL`] at providers `a`, `b`, ... of the chat dialect.
pub fn several(bases: &[&str]) -> String {
    several_of("responses", bases)
}

/// [`MODEL`] at providers `a`, `b`, ... of the chat dialect, each with this price of input.
pub fn priced(endpoints: &[(&str, f64)]) -> String {
    let names = ["a", "b", "c", "d"].into_iter().zip(endpoints);
    let (mut config, mut list) = (String::new(), String::new());
    for (name, (base, price)) in names {
        config += &provider(name, "openai-chat", base);
        write!(list, "{{ provider = \"{name}\", model = \"up\", input = {price} }}, ").unwrap();
    }
    write!(config, "[[models]]\nid = \"{MODEL}\"\nendpoints = [{list}]\n").unwrap();
    config
}

/// Like [`several`], for a model of this kind.
pub fn several_of(kind: &str, bases: &[&str]) -> String {
    let names: Vec<&str> = ["a", "b", "c", "d"].into_iter().take(bases.len()).collect();
    let providers = names.iter().zip(bases).map(|(name, base)| provider(name, "openai-chat", base));
    providers.collect::<String>() + &model(MODEL, kind, &names)
}
