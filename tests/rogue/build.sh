#!/bin/sh
# Builds the test guests into built/. The bytes depend on the sources, the lock
# file and the toolchain alone: paths of this machine are mapped away and
# settings of the environment dropped.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
root=$(CDPATH='' cd -- "$here/../.." && pwd -P)
cd "$here"

for variable in $(env | sed -n 's/^\(CARGO_PROFILE_[A-Z0-9_]*\|CARGO_TARGET_WASM32_[A-Z0-9_]*\|CARGO_BUILD_[A-Z0-9_]*\)=.*/\1/p'); do
    unset "$variable"
done
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_INCREMENTAL

target=${CARGO_TARGET_DIR:-$here/target}/built
cargo_home=${CARGO_HOME:-$HOME/.cargo}
commit=$(rustc -vV | sed -n 's/^commit-hash: //p')
cargo fetch --quiet --locked --target wasm32-wasip2

# Of several mappings that match, rustc takes the last: the general ones first.
separator=$(printf '\037')
flags=
map() { flags="$flags${flags:+$separator}--remap-path-prefix=$1=$2"; }
map "$root" /cofferdam
map "$target" /cofferdam/target
map "$cargo_home" /cargo
for index in "$cargo_home"/registry/src/*; do
    map "$index" /cargo/registry
done
map "$(rustc --print sysroot)/lib/rustlib/src/rust" "/rustc/$commit"
export CARGO_ENCODED_RUSTFLAGS="$flags"

for manifest in */Cargo.toml; do
    name=$(dirname "$manifest")
    cargo build --quiet --release --locked --target wasm32-wasip2 --target-dir "$target" --package "$name"
    cp "$target/wasm32-wasip2/release/$(echo "$name" | tr - _).wasm" "built/$name.wasm"
done
ls -l built/*.wasm
