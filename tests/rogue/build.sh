#!/bin/sh
# Builds the test guests into built/. Paths are remapped, so that the same
# toolchain makes the same bytes on every machine.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH= cd -- "$here/../.." && pwd)
cd "$here"
RUSTFLAGS="--remap-path-prefix=$root=. \
--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo \
--remap-path-prefix=$(rustc --print sysroot)=rust"
export RUSTFLAGS
cargo build --locked --release --target wasm32-wasip2
for name in provider-empty provider-own provider-rogue router-own; do
    file=$(echo "$name" | tr - _).wasm
    cp "${CARGO_TARGET_DIR:-target}/wasm32-wasip2/release/$file" "built/$name.wasm"
done
ls -l built/*.wasm
