//! Everything this guest holds or has held: its linear memory.

/// A copy of the memory as it was when this was called. What is freed is still in it.
#[cfg(target_family = "wasm")]
#[expect(unsafe_code, reason = "a guest's own memory has no safe name")]
pub(crate) fn all() -> Vec<u8> {
    const PAGE_BYTES: usize = 64 * 1024;
    let pages = core::arch::wasm32::memory_size::<0>();
    // SAFETY: all pages below the current size are there, and nothing runs beside
    // this. The first bytes are left out: a slice never begins at zero.
    let memory = unsafe { core::slice::from_raw_parts(8 as *const u8, pages * PAGE_BYTES - 8) };
    memory.to_vec()
}

/// Outside of the sandbox there is nothing to show.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn all() -> Vec<u8> {
    Vec::new()
}
