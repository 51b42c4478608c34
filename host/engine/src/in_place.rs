//! Large futures that are made where they stay.

use std::pin::Pin;

/// Boxes the future that `make` returns. `Box::pin(make())` makes the future on the stack and copies all its
/// bytes into the box; of this, an optimised build writes only what the future begins with: its arguments.
#[inline(always)]
pub fn boxed<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    let place = Box::new_uninit();
    Box::into_pin(Box::write(place, make()))
}
