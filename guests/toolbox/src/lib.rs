//! Shared code of the server tools: the bindings of the world `tool`, readers for settings and
//! arguments, domain rules, HTTP answers as text, and questions to models.
//!
//! Nothing here keeps state, and nothing depends on the name of a tool.

/// The bindings of the world `tool` in `wit/`, generated once for all tools. A component imports
/// only what its code calls, so the shared bindings do not add imports that need a grant.
#[allow(unsafe_code, unused_qualifications, clippy::all, clippy::pedantic, reason = "generated")]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "tool",
        pub_export_macro: true,
        default_bindings_module: "cofferdam_toolbox::bindings",
    });
}

/// Makes the crate a component that exports this type as its tool.
#[macro_export]
macro_rules! export_tool {
    ($tool:ident) => {
        #[allow(unsafe_code, reason = "generated")]
        mod export {
            use super::$tool;
            use $crate::bindings;

            bindings::export!($tool with_types_in bindings);
        }
    };
}

mod domains;
mod fields;
mod media;
mod models;
mod network;
mod paths;
#[cfg(feature = "testing")]
pub mod testing;
mod words;

pub use cofferdam_text::{Clipped, clip, decode};
pub use domains::DomainRules;
pub use fields::Fields;
pub use media::Media;
pub use models::{Instance, Manner, Models, Service, completed, failed, text_of};
pub use network::{Network, Streaming, Wire, header, sentence, web_address};
pub use paths::relative_path;
pub use words::{grade, lower_words};
