//! The function that the model sees.

use cofferdam_guest_kit::bindings::tools::Function;
use cofferdam_guest_kit::server_tool::schema;
use serde_json::json;

use crate::settings::Settings;

/// The only function, named like the tool.
pub(crate) const NAME: &str = "http_request";

/// The function for these settings. The same settings give the same bytes.
pub(crate) fn function(settings: &Settings) -> Function {
    let hosts = match &settings.hosts {
        Some(hosts) => format!(" Only these hosts: {}.", hosts.join(", ")),
        None => String::new(),
    };
    let properties = json!({
        "method": { "type": "string", "enum": settings.methods },
        "url": {
            "type": "string",
            "description": format!("An absolute https URL without credentials.{hosts}")
        },
        "query": {
            "type": "object",
            "additionalProperties": { "type": ["string", "number", "boolean"] },
            "description": "Query parameters to add to the URL; they are encoded for you."
        },
        "headers": {
            "type": "object",
            "additionalProperties": { "type": "string" },
            "description": "Further headers. Where the operator allows it, a value may hold {{secret:NAME}} \
                in place of a secret that the user stored."
        },
        "body": {
            "type": ["string", "object", "array"],
            "description": "The body: text as it is, or a JSON value. Not for GET and HEAD."
        },
        "secret": {
            "type": "object",
            "properties": {
                "name": { "type": "string", "description": "The secret's name." },
                "header": { "type": "string", "description": "The header that carries it; authorization when left out." },
                "prefix": {
                    "type": "string",
                    "description": "Text before it; \"Bearer \" for authorization and none for others when left out."
                }
            },
            "required": ["name"],
            "additionalProperties": false,
            "description": "A secret that the user stored, to be sent along as a credential. You never see its value."
        }
    });
    Function::new(
        NAME,
        "Sends one HTTP request to an API and returns status, headers and body. Redirects are not followed. \
            Never ask the user for a key or password: name a stored secret instead.",
        schema(properties, &["method", "url"]),
    )
}
