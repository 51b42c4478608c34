//! Parses one request, renders its history for a model, and writes it for a provider guest. `just
//! linear` counts the instructions that this takes.
//!
//! `linear` without arguments prints the shapes of requests; `linear SHAPE COUNT` runs one shape
//! with a list of COUNT elements.
#![expect(clippy::print_stdout, reason = "printing is how an example answers")]

use cofferdam_engine::render_calls_as_text;
use cofferdam_engine::request::{EmbeddingsRequest, GuestTurn, Prompts, RequestBounds, ResponsesRequest};
use std::error::Error;
use std::hint::black_box;

/// A shape of requests: its name, the JSON before and after a list, and an element of the list, in
/// which `#` is replaced by the element's index.
struct Shape {
    name: &'static str,
    before: &'static str,
    element: &'static str,
    after: &'static str,
    /// The most elements that a request may have.
    most: usize,
}

const ITEMS: &str = r#"{"model":"m","input":["#;
const PARTS: &str = r#"{"model":"m","input":[{"role":"user","content":["#;
const TOOLS: &str = r#"{"model":"m","input":"x","tools":["#;
const EMBEDDINGS: &str = "embeddings";

const SHAPES: [Shape; 11] = [
    items("messages", r#"{"role":"user","content":"x"}"#),
    items(
        "calls-with-results",
        r#"{"type":"function_call","call_id":"c#","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c#","output":"x"}"#,
    ),
    items(
        "calls-with-one-id",
        r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"x"}"#,
    ),
    items("calls-of-server-tools", r#"{"type":"service:x"}"#),
    items(
        "answered-calls-of-server-tools",
        r#"{"type":"service:x","call_id":"c#"},{"type":"function_call_output","call_id":"c#","output":"x"}"#,
    ),
    items(
        "reasoning",
        r#"{"type":"reasoning","id":"rs_#","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":"e"}"#,
    ),
    Shape {
        name: "parts",
        before: PARTS,
        element: r#"{"type":"input_text","text":"x"}"#,
        after: "]}]}",
        most: 10_000,
    },
    Shape { name: "tools", before: TOOLS, element: TOOL, after: "]}", most: 1_024 },
    Shape {
        name: "namespace",
        before: r#"{"model":"m","input":"x","tools":[{"type":"namespace","name":"n","description":"d","tools":["#,
        element: TOOL,
        after: "]}]}",
        most: 1_024,
    },
    // The choice names the tools, so `request` writes the list a second time.
    Shape {
        name: "allowed-tools",
        before: TOOLS,
        element: TOOL,
        after: r#"],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":["#,
        most: 1_024,
    },
    Shape {
        name: EMBEDDINGS,
        before: r#"{"model":"m","input":["#,
        element: r#""some words""#,
        after: "]}",
        most: 2_048,
    },
];

const TOOL: &str = r#"{"type":"function","name":"f#","parameters":{"type":"object"}}"#;

const fn items(name: &'static str, element: &'static str) -> Shape {
    Shape { name, before: ITEMS, element, after: "]}", most: 5_000 }
}

impl Shape {
    fn request(&self, count: usize) -> String {
        let list = |element: &str| {
            let elements: Vec<_> = (0..count).map(|n| element.replace('#', &n.to_string())).collect();
            elements.join(",")
        };
        let mut request = [self.before, &list(self.element), self.after].concat();
        if self.name == "allowed-tools" {
            request += &list(r##"{"type":"function","name":"f#"}"##);
            request += "]}}";
        }
        request
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, count] = arguments.as_slice() else {
        for shape in SHAPES {
            println!("{} {}", shape.name, shape.most);
        }
        return Ok(());
    };
    let shape = SHAPES.into_iter().find(|shape| shape.name == name).ok_or("no such shape")?;
    let request = shape.request(count.parse()?);
    if shape.name == EMBEDDINGS {
        black_box(EmbeddingsRequest::parse(request.as_bytes())?);
        return Ok(());
    }
    tokio::runtime::Builder::new_current_thread().build()?.block_on(written(request.as_bytes()))
}

async fn written(body: &[u8]) -> Result<(), Box<dyn Error>> {
    let mut request = ResponsesRequest::parse_with(body, &[], &Prompts::default(), RequestBounds::default())?;
    render_calls_as_text(&mut request).await.map_err(|refusal| refusal.message)?;
    black_box(request.guest_json_for(&GuestTurn::default()));
    Ok(())
}
