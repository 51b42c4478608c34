//! Everything this guest holds or has held: its linear memory.

/// Stretches of fewer bytes are left out.
const STRETCH_BYTES_MIN: usize = 4;

/// What may change in the memory between measuring it and copying it.
const SLACK_BYTES: usize = 4096;

/// A copy of the memory as it was when this was called, what is freed included. Of the
/// zeros, which are most of it, one is left between two stretches of other bytes.
#[cfg(target_family = "wasm")]
#[expect(unsafe_code, reason = "a guest's own memory has no safe name")]
pub(crate) fn all() -> Vec<u8> {
    const PAGE_BYTES: usize = 64 * 1024;
    let pages = core::arch::wasm32::memory_size::<0>();
    // SAFETY: all pages below the current size are there, and nothing runs beside
    // this. The first bytes are left out: a slice never begins at zero.
    let memory = unsafe { core::slice::from_raw_parts(8 as *const u8, pages * PAGE_BYTES - 8) };
    let stretches = memory.split(|byte| *byte == 0).filter(|stretch| stretch.len() >= STRETCH_BYTES_MIN);
    let bytes: usize = stretches.clone().map(|stretch| stretch.len() + 1).sum();
    // Room for all at once: growing would move what is being looked at.
    let mut copy = Vec::with_capacity(bytes + SLACK_BYTES);
    for stretch in stretches {
        copy.extend_from_slice(stretch);
        copy.push(0);
    }
    copy
}

/// Outside of the sandbox there is nothing to show.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn all() -> Vec<u8> {
    Vec::new()
}
