//! A tool. The name of the called function selects what it does.

mod bindings {
    wit_bindgen::generate!({ path: "../../../../../wit", world: "tool" });
    use super::Guest;
    export!(Guest);
}

use bindings::cofferdam::plugin::types::CallContext;
use bindings::cofferdam::plugin::{catalog, clock, http, log, model, random, request, scratch};
use bindings::exports::cofferdam::plugin::tools::{self, Function, Output, ToolError};

struct Guest;

fn write(line: &str) {
    log::write(log::Level::Info, line);
}

fn told(for_model: String) -> Output {
    Output { for_model, item: b"{}".to_vec(), annotations: vec![], cost_pico: 7 }
}

/// What the guest reads of the machine, through the contract and through WASI.
fn inputs() -> String {
    use std::hash::BuildHasher;
    use std::time::{Instant, SystemTime, UNIX_EPOCH};
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let started = Instant::now();
    let seeded = std::hash::RandomState::new().hash_one("x");
    let elapsed = started.elapsed().as_nanos();
    format!("{} {wall} {elapsed} {:?} {seeded}", clock::now_ms(), random::bytes(8))
}

impl tools::Guest for Guest {
    fn functions(settings: Vec<u8>, _context: CallContext) -> Result<Vec<Function>, ToolError> {
        let settings = String::from_utf8(settings).unwrap();
        deeds::commit(&settings, write);
        let name = match settings.as_str() {
            "wrong" => return Err(ToolError::InvalidSettings("parameters.zone: as told".into())),
            "bad name" => "not a name",
            _ => "now",
        };
        let parameters = b"{\"type\":\"object\"}".to_vec();
        Ok(vec![Function { name: name.into(), description: "Tells the time.".into(), parameters }])
    }

    fn invoke(
        function: String,
        arguments: Vec<u8>,
        settings: Vec<u8>,
        context: CallContext,
    ) -> Result<Output, ToolError> {
        deeds::commit(&function, write);
        match function.as_str() {
            "now" => Ok(told(format!("{} {}", clock::now_ms(), context.now_ms))),
            "clock flood" => loop {
                clock::now_ms();
            },
            "random" => Ok(told(format!("{}", random::bytes(32).len()))),
            "inputs" => Ok(told(inputs())),
            "bad inputs" => Ok(Output { item: b"[]".to_vec(), ..told(inputs()) }),
            "random flood" => Ok(told(format!("{}", random::bytes(1 << 30).len()))),
            "keep" => match scratch::set("k", &arguments) {
                Ok(()) => Ok(told("kept".into())),
                Err(error) => Err(ToolError::Failed(format!("{error:?}"))),
            },
            "kept" => Ok(told(format!("{:?}", scratch::get("k")))),
            "models" => Ok(told(String::from_utf8(catalog::models()).unwrap())),
            "transcript" => {
                request::load_tools(&["late".into()]);
                Ok(told(
                    String::from_utf8([request::transcript(), request::deferred_tools()].concat()).unwrap(),
                ))
            }
            "ask" => match model::ask(&arguments) {
                Ok(answer) => Ok(told(answer.text)),
                Err(failure) => Err(ToolError::Failed(failure.message)),
            },
            "fetch" => {
                let sent = http::send(&http::Request {
                    method: "GET".into(),
                    url: String::from_utf8(arguments).unwrap(),
                    headers: vec![],
                    body: vec![],
                    injections: vec![],
                    redirects: 0,
                    body_bytes_max: 1024,
                    timeout_ms: 1000,
                });
                match sent {
                    Ok(response) => Ok(told(format!("{}", response.status))),
                    Err(error) => Err(ToolError::Failed(format!("{error:?}"))),
                }
            }
            "bad item" => Ok(Output { item: b"[]".to_vec(), ..told("x".into()) }),
            "invalid" => Err(ToolError::InvalidArguments("as told".into())),
            _ => Ok(told(format!("{} bytes of settings", settings.len()))),
        }
    }
}
