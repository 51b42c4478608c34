//! Large futures that are made where they stay.

use std::pin::Pin;

/// Boxes the future that `make` returns. `Box::pin(make())` would make the future on the stack and copy all its
/// bytes into the box; this writes only what the future begins with, which is little: its arguments.
#[inline(always)]
pub fn boxed<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    let place = Box::new_uninit();
    Box::into_pin(Box::write(place, make()))
}
