#!/bin/sh
# Rebuilds ../fixtures from the sources here. Needs the target wasm32-wasip2.
# Paths are remapped so that the bytes do not depend on the machine.
set -eu
cd "$(dirname "$0")"
cargo_home="${CARGO_HOME:-$HOME/.cargo}"
registry="$(ls -d "$cargo_home"/registry/src/*/ | head -n 1)"
RUSTFLAGS="--remap-path-prefix=${registry%/}=/deps --remap-path-prefix=$PWD=/guests" \
CARGO_TARGET_DIR="${GUESTS_TARGET_DIR:-$PWD/target}" \
    cargo build --release --locked --target wasm32-wasip2
for guest in hook provider router tool; do
    cp "${GUESTS_TARGET_DIR:-$PWD/target}/wasm32-wasip2/release/test_$guest.wasm" "../fixtures/$guest.wasm"
done
ls -l ../fixtures
