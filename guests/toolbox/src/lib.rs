//! What server tools share: the bindings of the world `tool`, reading settings
//! and arguments, rules about domains, what came back over HTTP as text, and
//! asking models.
//!
//! Nothing here keeps state or decides by a tool's name.

/// The world `tool` of `wit/`, generated once for all tools. A component imports
/// only what its code calls, so that sharing costs no grant.
#[allow(unsafe_code, unused_qualifications, clippy::all, clippy::pedantic, reason = "generated")]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "tool",
        pub_export_macro: true,
        default_bindings_module: "cofferdam_toolbox::bindings",
    });
}

/// Makes a crate the component of the tool that this type is.
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
