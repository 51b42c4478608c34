#!/usr/bin/env bash
# Builds the program that is shipped and measured, in target/dist, twice: with counters, which a training load fills,
# and again with functions and branches laid out by those counts (profile-guided optimisation). Takes about
# 25 minutes on two cores; `cargo build --profile dist` does the same without the counts.
set -euo pipefail
cd "$(dirname "$0")/.."

machine=$(rustc -vV | sed -n 's/^host: //p')
mkdir -p "${CARGO_TARGET_DIR:-target}"
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
counts=$target/dist-counts
merge=$(rustc --print target-libdir)/../bin/llvm-profdata
[ -x "$merge" ] || rustup component add llvm-tools

# With a target named, build scripts and macros are built without these flags.
build() {
  RUSTFLAGS="${RUSTFLAGS:-} $1" cargo build --profile dist --locked --package cofferdam --target "$machine"
}

rm -rf "$counts"
mkdir -p "$counts" "$target/dist"
echo "1 of 3: the program with counters"
build "-Cprofile-generate=$counts"
cp "$target/$machine/dist/cofferdam" "$counts/cofferdam"
echo "2 of 3: the training load"
cargo run --release --locked --package cofferdam-bench -- train --program "$counts/cofferdam"
"$merge" merge --output "$counts/merged.profdata" "$counts"/*.profraw
echo "3 of 3: the program laid out by the counts"
build "-Cprofile-use=$counts/merged.profdata"
cp "$target/$machine/dist/cofferdam" "$target/dist/cofferdam"
echo "built: $target/dist/cofferdam"
