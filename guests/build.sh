#!/bin/sh
# Builds the guests that have a manifest in plugins/ into components.
#
#   guests/build.sh           writes plugins/NAME.wasm
#   guests/build.sh --check   builds into a temporary folder and compares with plugins/NAME.wasm
#
# The bytes depend only on the sources, the lock file and the toolchain: every path of
# this machine is mapped to a fixed one, and environment settings are removed. Anyone
# can therefore rebuild the binaries in git and compare them.
set -eu

guests=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
root=$(dirname -- "$guests")
plugins=$root/plugins
check=false
case ${1-} in
    '') ;;
    --check) check=true ;;
    *) echo "usage: $0 [--check]" >&2; exit 2 ;;
esac
cd "$guests"

# Another compiler version produces other bytes.
wanted=$(sed -n 's/^channel = "\(.*\)"$/\1/p' "$root/rust-toolchain.toml")
case $(rustc --version) in
    "rustc $wanted "*) ;;
    *) echo "this needs rustc $wanted, which rustup would choose by itself; found $(rustc --version)" >&2; exit 1 ;;
esac

# Settings that a developer made for other builds must not change this build.
for variable in $(env | sed -n 's/^\(CARGO_PROFILE_[A-Z0-9_]*\|CARGO_TARGET_WASM32_[A-Z0-9_]*\|CARGO_BUILD_[A-Z0-9_]*\)=.*/\1/p'); do
    unset "$variable"
done
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_INCREMENTAL

target=${CARGO_TARGET_DIR:-$guests/target}/plugins
cargo_home=${CARGO_HOME:-$HOME/.cargo}
sysroot=$(rustc --print sysroot)
commit=$(rustc -vV | sed -n 's/^commit-hash: //p')

# The sources must be unpacked before their folder names are known.
cargo fetch --quiet --locked --target wasm32-wasip2

# When several mappings match, rustc uses the last one: general mappings come first.
separator=$(printf '\037')
flags=
map() { flags="$flags${flags:+$separator}--remap-path-prefix=$1=$2"; }
map "$root" /cofferdam
map "$guests" /cofferdam/guests
map "$target" /cofferdam/target
map "$cargo_home" /cargo
for index in "$cargo_home"/registry/src/*; do
    map "$index" /cargo/registry
done
# The standard library's own spelling, so that it does not matter whether its sources are installed.
map "$sysroot/lib/rustlib/src/rust" "/rustc/$commit"
# The kit searches JSON text with instructions for 16 bytes at once. The host's engine has them on every processor.
export CARGO_ENCODED_RUSTFLAGS="$flags$separator-Ctarget-feature=+simd128"

out=$plugins
if $check; then
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT INT TERM
fi

failed=false
for manifest in "$plugins"/*.toml; do
    name=$(basename "$manifest" .toml)
    [ -f "$name/Cargo.toml" ] || continue
    # Separate builds: the bytes of a guest must not depend on the cargo features another guest needs.
    cargo build --quiet --release --locked --target wasm32-wasip2 --target-dir "$target" --package "$name"
    built=$target/wasm32-wasip2/release/$(echo "$name" | tr - _).wasm
    for path in "$root" "$cargo_home" "$target" "$sysroot" "$HOME/" index.crates.io; do
        if grep -aqF -- "$path" "$built"; then
            echo "$name.wasm contains the path $path" >&2
            failed=true
        fi
    done
    cp "$built" "$out/$name.wasm"
    if $check && ! cmp -s "$out/$name.wasm" "$plugins/$name.wasm"; then
        echo "plugins/$name.wasm differs from what its sources give: run guests/build.sh" >&2
        failed=true
    fi
done
! $failed
