//! The bindings of the contract in `wit/`, generated once for all guests.
//!
//! Each interface is a module here, named as in `wit/`. All worlds share the modules of the imports, so a
//! type such as `Failure` is the same in every guest. A component imports only what its code calls: shared
//! bindings add no import that needs a grant.

pub use hook::cofferdam::plugin::{hooks, tool_call};
pub use hook::exports::cofferdam::plugin::{on_request, on_response};
pub use model_router::exports::cofferdam::plugin::{model_choice, routing};
pub use provider::exports::cofferdam::plugin::{dialect, embedding, generation};
pub use tool::cofferdam::plugin::*;
pub use tool::exports::cofferdam::plugin::tools;

/// Makes the crate a component of a world, with this type as its guest: `export!(tool: DateTime)`.
///
/// | world | exports | needs the crate's own world |
/// |---|---|---|
/// | `tool` | `tools` | no |
/// | `hook` | `on_request`, `on_response` | no |
/// | `request_hook` | `on_request` | yes |
/// | `response_hook` | `on_response` | yes |
/// | `provider` | `dialect`, `generation`, `embedding` | no |
/// | `generation_provider` | `dialect`, `generation` | yes |
/// | `router` | `routing` | yes |
/// | `model_router` | `routing`, `model_choice` | no |
///
/// A crate outside of this workspace says where its own world is, as a folder beside its `Cargo.toml` and the name of
/// the world: `export!(router: Budget, "wit", "plugin")`. Without them, the crate has to lie beside the kit.
#[macro_export]
macro_rules! export {
    (router: $guest:ident $(, $path:literal, $name:literal)?) => {
        $crate::export_part!($guest, [$($path, $name)?] "router", model_router:
            routing __export_cofferdam_plugin_routing_0_1_0_cabi);
    };
    (generation_provider: $guest:ident $(, $path:literal, $name:literal)?) => {
        $crate::export_part!($guest, [$($path, $name)?] "generation-provider", provider:
            dialect __export_cofferdam_plugin_dialect_0_1_0_cabi,
            generation __export_cofferdam_plugin_generation_0_1_0_cabi);
    };
    (request_hook: $guest:ident $(, $path:literal, $name:literal)?) => {
        $crate::export_part!($guest, [$($path, $name)?] "request-hook", hook:
            on_request __export_cofferdam_plugin_on_request_0_1_0_cabi);
    };
    (response_hook: $guest:ident $(, $path:literal, $name:literal)?) => {
        $crate::export_part!($guest, [$($path, $name)?] "response-hook", hook:
            on_response __export_cofferdam_plugin_on_response_0_1_0_cabi);
    };
    ($world:ident: $guest:ident) => {
        #[allow(unsafe_code, reason = "generated")]
        const _: () = {
            use $crate::bindings::$world as bindings;
            bindings::export!($guest with_types_in bindings);
        };
    };
}

/// Exports some interfaces of a world as a smaller world. wit-bindgen makes one macro for each exported
/// interface, with the same name in every world, so this crate cannot have bindings of two worlds that
/// export the same interface. The guest therefore generates the smaller world for its description alone and
/// exports the functions of the larger one.
#[doc(hidden)]
#[macro_export]
macro_rules! export_part {
    ($guest:ident, [] $name:literal, $($rest:tt)+) => {
        $crate::export_part!($guest, ["../../wit", $name] "", $($rest)+);
    };
    (
        $guest:ident, [$path:literal, $name:literal] $unused:literal, $world:ident:
        $($interface:ident $export:ident),+
    ) => {
        #[allow(unsafe_code, dead_code, unused_qualifications, clippy::all, clippy::pedantic, reason = "generated")]
        mod world {
            $crate::wit_bindgen::generate!({
                path: $path,
                world: $name,
                generate_all,
                runtime_path: "cofferdam_guest_kit::wit_bindgen::rt",
            });
        }
        #[allow(unsafe_code, reason = "generated")]
        const _: () = {
            use $crate::bindings::$world::exports::cofferdam::plugin as bindings;
            $(bindings::$interface::$export!($guest with_types_in bindings::$interface);)+
        };
    };
}

/// Generates the module of a world. `with` lists the interfaces whose types come from the modules of the
/// world `tool`.
macro_rules! world {
    (
        $(#[$about:meta])*
        $module:ident: $world:tt, $path:tt
        $(, with $($interface:tt as $shared:ident)+)?
    ) => {
        $(#[$about])*
        pub mod $module {
            wit_bindgen::generate!({
                path: "../../wit",
                world: $world,
                with: { $($($interface: crate::bindings::$shared),+)? },
                additional_derives: [PartialEq],
                pub_export_macro: true,
                default_bindings_module: $path,
            });
        }
    };
}

world! {
    /// A server tool.
    tool: "tool", "cofferdam_guest_kit::bindings::tool"
}

world! {
    /// A hook for both phases. The hooks for one phase are parts of it.
    hook: "hook", "cofferdam_guest_kit::bindings::hook",
    with "cofferdam:plugin/types@0.1.0" as types
        "cofferdam:plugin/log@0.1.0" as log
        "cofferdam:plugin/config@0.1.0" as config
        "cofferdam:plugin/http@0.1.0" as http
        "cofferdam:plugin/http-stream@0.1.0" as http_stream
        "cofferdam:plugin/model@0.1.0" as model
        "cofferdam:plugin/model-panel@0.1.0" as model_panel
}

world! {
    /// A router that also chooses the model. The world `router` is a part of it.
    model_router: "model-router", "cofferdam_guest_kit::bindings::model_router",
    with "cofferdam:plugin/types@0.1.0" as types
        "cofferdam:plugin/log@0.1.0" as log
        "cofferdam:plugin/config@0.1.0" as config
}

world! {
    /// A provider of responses and embeddings. The world `generation-provider` is a part of it.
    provider: "provider", "cofferdam_guest_kit::bindings::provider",
    with "cofferdam:plugin/types@0.1.0" as types
        "cofferdam:plugin/log@0.1.0" as log
        "cofferdam:plugin/config@0.1.0" as config
}
