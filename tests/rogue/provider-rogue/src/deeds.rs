//! The misbehaviours.

use std::hint::black_box;

use crate::bindings::cofferdam::plugin::log;
use crate::bindings::exports::cofferdam::plugin::generation::{
    CallDelta, Event, Finish, FinishReason, TextDelta,
};

/// How to misbehave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// `loop`: never returns.
    Loop,
    /// `allocate`: takes memory until there is none.
    Allocate,
    /// `recurse`: takes stack until there is none.
    Recurse,
    /// `trap`: an unreachable instruction.
    Trap,
    /// `list`: returns a list that claims two gigabytes.
    List,
    /// `log`: writes log lines for ever, long, with control characters.
    Log,
    /// `flood`: returns honestly far too many events.
    Flood,
    /// `disorder`: returns events that make no sense together.
    Disorder,
    /// `garbage`: returns events whose JSON is none.
    Garbage,
}

impl Deed {
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "loop" => Deed::Loop,
            "allocate" => Deed::Allocate,
            "recurse" => Deed::Recurse,
            "trap" => Deed::Trap,
            "list" => Deed::List,
            "log" => Deed::Log,
            "flood" => Deed::Flood,
            "disorder" => Deed::Disorder,
            "garbage" => Deed::Garbage,
            _ => return None,
        })
    }

    /// Does it. Only the deeds that consist of an answer return.
    pub fn commit(self) -> Vec<Event> {
        match self {
            Deed::Loop => loop {
                black_box(());
            },
            Deed::Allocate => allocate(),
            Deed::Recurse => {
                black_box(recurse(black_box(0)));
                Vec::new()
            }
            Deed::Trap => trap(),
            Deed::List => vec![Event::Annotation(lying_list())],
            Deed::Log => {
                log::write(log::Level::Error, &"\u{1b}[31mrogue\r\n".repeat(1000));
                // Short lines, so that also a slow host writes more of them than a call may before time runs out.
                loop {
                    log::write(log::Level::Error, "\u{1b}[31mrogue\r\n");
                }
            }
            Deed::Flood => (0..200_000).map(|_| text("x")).collect(),
            Deed::Disorder => disorder(),
            Deed::Garbage => {
                vec![Event::OpaqueItem(b"\xff[".to_vec()), Event::Annotation(b"not json".to_vec())]
            }
        }
    }
}

fn allocate() -> ! {
    let mut hoard = Vec::new();
    loop {
        hoard.push(vec![1_u8; 1 << 20]);
        black_box(&hoard);
    }
}

/// Uses nothing but the call stack: what is on the guest's own stack in memory
/// would run out of bounds instead.
#[inline(never)]
fn recurse(depth: u64) -> u64 {
    if depth == u64::MAX {
        return 1;
    }
    // Using the result afterwards keeps this from becoming a loop.
    recurse(depth + 1).wrapping_mul(31) ^ depth
}

#[cfg(target_arch = "wasm32")]
fn trap() -> ! {
    core::arch::wasm32::unreachable()
}

#[cfg(not(target_arch = "wasm32"))]
fn trap() -> ! {
    std::process::abort()
}

/// As long as a list can claim to be in Rust, and nothing behind it. Handing it
/// over writes down pointer and length without looking.
#[expect(unsafe_code, reason = "a list that lies cannot be made safely")]
fn lying_list() -> Vec<u8> {
    let start = Box::leak(Box::new(0_u8));
    let length = usize::try_from(i32::MAX).unwrap_or_default();
    // SAFETY: none; the host has to catch it.
    unsafe { Vec::from_raw_parts(black_box(start), black_box(length), black_box(length)) }
}

fn disorder() -> Vec<Event> {
    let finish = || Event::Finish(Finish { reason: FinishReason::Stop, service_tier: None });
    vec![
        Event::CallEnd(7),
        Event::FunctionArgumentsDelta(CallDelta { key: 9, text: "{".to_owned() }),
        Event::Annotation(b"{}".to_vec()),
        Event::OpaqueItem(b"{}".to_vec()),
        finish(),
        text("after the end"),
        finish(),
    ]
}

fn text(text: &str) -> Event {
    Event::TextDelta(TextDelta { text: text.to_owned(), logprobs: Vec::new() })
}
