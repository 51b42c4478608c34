//! The bindings of the worlds in `wit/`, generated once for all guests.
//!
//! Each interface of the contract is a module here, named as in `wit/`. All worlds share the modules of the imports, so a type such as `Failure` is the same in every guest. A
//! component imports only what its code calls: shared bindings add no import that needs a grant.

pub use imports::cofferdam::plugin::*;
pub use model_router::exports::cofferdam::plugin::{model_choice, routing};
pub use provider::exports::cofferdam::plugin::{dialect, embedding, generation};
pub use request_hook::exports::cofferdam::plugin::on_request;
pub use response_hook::exports::cofferdam::plugin::on_response;
pub use tool::exports::cofferdam::plugin::tools;

/// Makes the crate a component of this world, with this type as its guest: `export!(tool: DateTime)`. The worlds
/// are the modules of `bindings`, and `router` and `generation_provider`.
#[macro_export]
macro_rules! export {
    (router: $guest:ident) => {
        $crate::export_part!($guest, "router", model_router: routing __export_cofferdam_plugin_routing_0_1_0_cabi);
    };
    (generation_provider: $guest:ident) => {
        $crate::export_part!($guest, "generation-provider", provider:
            dialect __export_cofferdam_plugin_dialect_0_1_0_cabi,
            generation __export_cofferdam_plugin_generation_0_1_0_cabi);
    };
    ($world:ident: $guest:ident) => {
        #[allow(unsafe_code, reason = "generated")]
        const _: () = {
            use $crate::bindings::$world as bindings;
            bindings::export!($guest with_types_in bindings);
        };
    };
}

/// Exports some interfaces of a world as the world `$name`. wit-bindgen gives the macro of an exported interface one
/// name in a crate, so this crate cannot have bindings of two worlds that export the same interface. The guest
/// generates the smaller world for its description alone and exports the functions of the larger one.
#[doc(hidden)]
#[macro_export]
macro_rules! export_part {
    ($guest:ident, $name:literal, $world:ident: $($interface:ident $export:ident),+) => {
        #[allow(unsafe_code, dead_code, unused_qualifications, clippy::all, clippy::pedantic, reason = "generated")]
        mod world {
            $crate::wit_bindgen::generate!({
                path: "../../wit",
                world: $name,
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

mod imports {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package cofferdam:guest-kit;

            world imports {
                import cofferdam:plugin/types@0.1.0;
                import cofferdam:plugin/log@0.1.0;
                import cofferdam:plugin/config@0.1.0;
                import cofferdam:plugin/hooks@0.1.0;
                import cofferdam:plugin/clock@0.1.0;
                import cofferdam:plugin/random@0.1.0;
                import cofferdam:plugin/http@0.1.0;
                import cofferdam:plugin/http-stream@0.1.0;
                import cofferdam:plugin/model@0.1.0;
                import cofferdam:plugin/model-panel@0.1.0;
                import cofferdam:plugin/catalog@0.1.0;
                import cofferdam:plugin/scratch@0.1.0;
                import cofferdam:plugin/request@0.1.0;
                import cofferdam:plugin/deferred-tools@0.1.0;
                import cofferdam:plugin/tool-call@0.1.0;
            }
        ",
        generate_all,
        additional_derives: [PartialEq],
    });
}

/// A server tool.
pub mod tool {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "tool",
        with: {
            "cofferdam:plugin/types@0.1.0": crate::bindings::types,
            "cofferdam:plugin/log@0.1.0": crate::bindings::log,
            "cofferdam:plugin/config@0.1.0": crate::bindings::config,
            "cofferdam:plugin/clock@0.1.0": crate::bindings::clock,
            "cofferdam:plugin/random@0.1.0": crate::bindings::random,
            "cofferdam:plugin/http@0.1.0": crate::bindings::http,
            "cofferdam:plugin/http-stream@0.1.0": crate::bindings::http_stream,
            "cofferdam:plugin/model@0.1.0": crate::bindings::model,
            "cofferdam:plugin/model-panel@0.1.0": crate::bindings::model_panel,
            "cofferdam:plugin/catalog@0.1.0": crate::bindings::catalog,
            "cofferdam:plugin/scratch@0.1.0": crate::bindings::scratch,
            "cofferdam:plugin/request@0.1.0": crate::bindings::request,
            "cofferdam:plugin/deferred-tools@0.1.0": crate::bindings::deferred_tools,
        },
        additional_derives: [PartialEq],
        pub_export_macro: true,
        default_bindings_module: "cofferdam_guest_kit::bindings::tool",
    });
}

/// A hook for requests.
pub mod request_hook {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "request-hook",
        with: {
            "cofferdam:plugin/types@0.1.0": crate::bindings::types,
            "cofferdam:plugin/log@0.1.0": crate::bindings::log,
            "cofferdam:plugin/config@0.1.0": crate::bindings::config,
            "cofferdam:plugin/hooks@0.1.0": crate::bindings::hooks,
            "cofferdam:plugin/http@0.1.0": crate::bindings::http,
            "cofferdam:plugin/http-stream@0.1.0": crate::bindings::http_stream,
            "cofferdam:plugin/model@0.1.0": crate::bindings::model,
            "cofferdam:plugin/model-panel@0.1.0": crate::bindings::model_panel,
            "cofferdam:plugin/tool-call@0.1.0": crate::bindings::tool_call,
        },
        additional_derives: [PartialEq],
        pub_export_macro: true,
        default_bindings_module: "cofferdam_guest_kit::bindings::request_hook",
    });
}

/// A hook for responses.
pub mod response_hook {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "response-hook",
        with: {
            "cofferdam:plugin/types@0.1.0": crate::bindings::types,
            "cofferdam:plugin/log@0.1.0": crate::bindings::log,
            "cofferdam:plugin/config@0.1.0": crate::bindings::config,
            "cofferdam:plugin/hooks@0.1.0": crate::bindings::hooks,
            "cofferdam:plugin/http@0.1.0": crate::bindings::http,
            "cofferdam:plugin/http-stream@0.1.0": crate::bindings::http_stream,
            "cofferdam:plugin/model@0.1.0": crate::bindings::model,
            "cofferdam:plugin/model-panel@0.1.0": crate::bindings::model_panel,
            "cofferdam:plugin/tool-call@0.1.0": crate::bindings::tool_call,
        },
        additional_derives: [PartialEq],
        pub_export_macro: true,
        default_bindings_module: "cofferdam_guest_kit::bindings::response_hook",
    });
}

/// A router that also chooses the model. The world `router` is a part of it.
pub mod model_router {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "model-router",
        with: {
            "cofferdam:plugin/types@0.1.0": crate::bindings::types,
            "cofferdam:plugin/log@0.1.0": crate::bindings::log,
            "cofferdam:plugin/config@0.1.0": crate::bindings::config,
        },
        additional_derives: [PartialEq],
        pub_export_macro: true,
        default_bindings_module: "cofferdam_guest_kit::bindings::model_router",
    });
}

/// A provider of responses and embeddings. The world `generation-provider` is a part of it.
pub mod provider {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "provider",
        with: {
            "cofferdam:plugin/types@0.1.0": crate::bindings::types,
            "cofferdam:plugin/log@0.1.0": crate::bindings::log,
            "cofferdam:plugin/config@0.1.0": crate::bindings::config,
        },
        additional_derives: [PartialEq],
        pub_export_macro: true,
        default_bindings_module: "cofferdam_guest_kit::bindings::provider",
    });
}
