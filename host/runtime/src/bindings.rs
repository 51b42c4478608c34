//! The contract of `wit/` as generated Rust. One synthetic world contains every interface, so each
//! shared type is generated once. Guests do not have to match that world: each exported interface
//! is looked up separately, which makes the contract's interfaces optional.

#![expect(missing_docs, reason = "generated from wit/, documented there")]

pub(crate) mod exchange;

wasmtime::component::bindgen!({
    path: "../../wit",
    inline: "
        package cofferdam:host;
        world everything {
            import cofferdam:plugin/types@0.1.0;
            import cofferdam:plugin/hooks@0.1.0;
            import cofferdam:plugin/log@0.1.0;
            import cofferdam:plugin/config@0.1.0;
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
            export cofferdam:plugin/routing@0.1.0;
            export cofferdam:plugin/model-choice@0.1.0;
            export cofferdam:plugin/dialect@0.1.0;
            export cofferdam:plugin/generation@0.1.0;
            export cofferdam:plugin/embedding@0.1.0;
            export cofferdam:plugin/on-request@0.1.0;
            export cofferdam:plugin/on-response@0.1.0;
            export cofferdam:plugin/tools@0.1.0;
        }
    ",
    world: "cofferdam:host/everything",
    imports: {
        "cofferdam:plugin/http.send": async | trappable,
        "cofferdam:plugin/http-stream.open": async | trappable,
        "cofferdam:plugin/http-stream.[method]exchange.read": async | trappable,
        "cofferdam:plugin/model.ask": async | trappable,
        "cofferdam:plugin/model-panel.ask-all": async | trappable,
        "cofferdam:plugin/tool-call.call": async | trappable,
        default: trappable,
    },
    exports: { default: async },
    with: { "cofferdam:plugin/http-stream.exchange": crate::bindings::exchange::HttpExchange },
    additional_derives: [PartialEq, serde::Serialize, serde::Deserialize],
});
