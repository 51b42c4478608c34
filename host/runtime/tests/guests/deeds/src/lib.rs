//! Harmful actions that a test can ask any of these guests to take.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};

/// Keeps its value after a call if the instance is, wrongly, reused.
static CALLS: AtomicU32 = AtomicU32::new(0);

/// How often this instance was called, including the current call.
pub fn calls() -> u32 {
    CALLS.fetch_add(1, Ordering::Relaxed) + 1
}

/// Takes the action that `deed` names. Returns if it is harmless, or if the sandbox did not stop it.
pub fn commit(deed: &str, write: impl Fn(&str)) {
    match deed {
        "loop" => spin(),
        "trap" => panic!("as told"),
        "bomb" => bomb(1 << 20),
        "big bomb" => bomb(1 << 30),
        "recurse" => drop(black_box(recurse(black_box(1)))),
        "divide" => drop(black_box(1 / black_box(0))),
        "copy" => copy(),
        "log flood" => (0..100_000).for_each(|_| write("line")),
        "long line" => write(&"x".repeat(60 << 20)),
        "forged line" => write("one\nINFO two\x1b[2J"),
        "stdout flood" => (0..10_000).for_each(|_| println!("line")),
        "sleep" => std::thread::sleep(std::time::Duration::from_secs(3600)),
        "exit" => std::process::exit(3),
        "files" => assert!(std::fs::read("/etc/passwd").is_err() && std::fs::write("/tmp/x", "x").is_err()),
        "environment" => assert!(std::env::vars().count() == 0 && std::env::args().count() == 0),
        "network" => assert!(std::net::TcpStream::connect("127.0.0.1:80").is_err()),
        _ => {}
    }
}

/// Uses processor time, then returns.
pub fn burn(rounds: u32) {
    let mut sum = 0u32;
    for round in 0..rounds {
        for step in 0..100_000u32 {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(step ^ round));
        }
    }
    black_box(sum);
}

fn spin() {
    let mut round = 0u32;
    loop {
        round = black_box(round.wrapping_add(1));
    }
}

fn bomb(step: usize) {
    let mut kept = Vec::new();
    loop {
        kept.push(black_box(vec![1u8; step]));
    }
}

#[allow(unconditional_recursion)]
fn recurse(depth: u32) -> u32 {
    let frame = black_box([depth; 64]);
    recurse(black_box(depth + 1)).wrapping_add(frame[(depth % 64) as usize])
}

fn copy() {
    let from = vec![1u8; 8 << 20];
    let mut to = vec![0u8; 8 << 20];
    loop {
        to.copy_from_slice(black_box(&from));
        black_box(&to);
    }
}
