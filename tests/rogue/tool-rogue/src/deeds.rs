//! The misbehaviours.

use std::hint::black_box;

/// Never returns.
pub(crate) fn hang() -> ! {
    loop {
        black_box(());
    }
}

/// Takes memory until there is none.
pub(crate) fn allocate() -> ! {
    let mut hoard = Vec::new();
    loop {
        hoard.push(vec![1_u8; 1 << 20]);
        black_box(&hoard);
    }
}

/// Keeps the processor busy for a moment.
pub(crate) fn burn() {
    for round in 0..1_000_000_u32 {
        black_box(round);
    }
}

/// An unreachable instruction.
#[cfg(target_arch = "wasm32")]
pub(crate) fn trap() -> ! {
    core::arch::wasm32::unreachable()
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn trap() -> ! {
    std::process::abort()
}
