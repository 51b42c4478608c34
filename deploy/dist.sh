#!/usr/bin/env bash
# Builds the program that is shipped and measured, in target/dist. It is built with counters, which a training load
# fills, and again with functions and branches laid out by those counts (profile-guided optimisation). Then BOLT lays
# the code of the linked program out by the counts of a second training load. Takes about 30 minutes on two cores;
# `cargo build --profile dist` makes the same program without the counts.
#
# BOLT is `llvm-bolt` of LLVM 16 or later: Debian's package `bolt-16` or a later one. Without it, or on another
# processor than x86-64, its step is left out, and a whole answer takes up to a tenth more processor time.
set -euo pipefail
cd "$(dirname "$0")/.."

machine=$(rustc -vV | sed -n 's/^host: //p')
mkdir -p "${CARGO_TARGET_DIR:-target}"
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
counts=$target/dist-counts
merge=$(rustc --print target-libdir)/../bin/llvm-profdata
[ -x "$merge" ] || rustup component add llvm-tools

bolt=
case $machine in x86_64-*-linux-*)
  # Debian installs it with the number of its LLVM in its name. It finds its runtime beside the file itself, not beside
  # a link to it.
  for name in llvm-bolt llvm-bolt-{30..16}; do
    if found=$(command -v "$name"); then
      bolt=$(readlink -f "$found")
      break
    fi
  done
esac
[ -n "$bolt" ] || echo "without BOLT: there is no llvm-bolt for $machine (Debian: apt-get install bolt-16)"

# With a target named, build scripts and macros are built without these flags.
build() {
  RUSTFLAGS="${RUSTFLAGS:-} $1" cargo build --profile dist --locked --package cofferdam --target "$machine"
}

train() {
  cargo run --release --locked --package cofferdam-bench -- train --program "$1"
}

# Runs BOLT, which warns of much that does not matter; what it says is in a file.
lay_out() {
  "$bolt" "$counts/linked" "$@" >"$counts/bolt.log" 2>&1 || { tail -n 20 "$counts/bolt.log" >&2; return 1; }
}

rm -rf "$counts"
mkdir -p "$counts" "$target/dist"
echo "1 of 5: the program with counters"
build "-Cprofile-generate=$counts"
cp "$target/$machine/dist/cofferdam" "$counts/cofferdam"
echo "2 of 5: the training load"
train "$counts/cofferdam"
"$merge" merge --output "$counts/merged.profdata" "$counts"/*.profraw
echo "3 of 5: the program laid out by the counts"
# BOLT moves code, so it needs the relocations.
build "-Cprofile-use=$counts/merged.profdata ${bolt:+-Clink-arg=-Wl,--emit-relocs}"
cp "$target/$machine/dist/cofferdam" "$counts/linked"
if [ -n "$bolt" ]; then
  echo "4 of 5: the training load for BOLT"
  # Each process writes the file anew when it ends. The one that took the load ends last.
  lay_out -instrument -o "$counts/instrumented" --instrumentation-file="$counts/bolt.fdata"
  train "$counts/instrumented"
  echo "5 of 5: the code laid out by BOLT"
  # The code stays where the linker put it, without alignment to pages of 2 MiB: both make the program larger in memory,
  # and not faster.
  lay_out -o "$counts/laid-out" -data="$counts/bolt.fdata" -reorder-blocks=ext-tsp -reorder-functions=hfsort+ \
    -split-functions -split-all-cold -split-eh -icf=1 --no-huge-pages --use-old-text
  cp "$counts/laid-out" "$target/dist/cofferdam"
else
  cp "$counts/linked" "$target/dist/cofferdam"
fi
echo "built: $target/dist/cofferdam"
