# Every command that people and CI run. `just` alone lists them.

set shell := ["bash", "-euo", "pipefail", "-c"]

cargo_deny_version := "0.20.2"
cargo_fuzz_version := "0.13.2"

[private]
default:
    @just --list --unsorted

# Start the host on ./data, release build.
run *arguments:
    cargo run --release -- {{arguments}}

# The program that is shipped and measured, in target/dist, laid out by the counts of training loads. Two builds,
# whose links alone take about ten minutes each.
dist:
    deploy/dist.sh

# An archive of target/dist/cofferdam, or of another program, with licences, units, manual pages, digests and a bill of
# materials.
release *arguments:
    deploy/release.sh {{arguments}}

# The unit and the manifests of deploy/, with systemd's own tools and the schemas of Kubernetes, which are downloaded.
deploy-check:
    deploy/check.sh

# All Rust tests of the host and of the whole program.
test:
    cargo test --workspace

# All tests of the whole program, or those with this in their names, with hosts that search the memory of guests, log,
# rows, recordings, exports and answers for released secrets.
canaries *filter:
    COFFERDAM_CANARIES=1 cargo test --workspace --test all --locked -- {{filter}}

# The program without the cargo feature `postgres`. The tests of the feature are among all others; `COFFERDAM_FAULTS=all`
# breaks connections 50 times at each place. `COFFERDAM_STORE=postgres` runs the tests of the store and of the program with
# stores in databases; tests of the program that need an embedded store are skipped then.
without-postgres:
    cargo clippy --package cofferdam --no-default-features --locked -- -D warnings

# Faults of three hosts on a primary with a synchronous standby: each `rounds` times, or `all`. Prints the rows of
# docs/reliability.md. The row with two versions needs `COFFERDAM_PREVIOUS=PROGRAM`, the program of the version before.
faults-cluster rounds="all":
    COFFERDAM_FAULTS={{rounds}} COFFERDAM_POSTGRES=required cargo test --workspace --test all --locked several_hosts::faults \
      -- --nocapture --test-threads=1

# Three hosts on a replicated database, with a balancer, all on this machine and in temporary folders. Ctrl-C ends it.
cluster:
    cargo build --workspace --bins --locked
    cargo run --package cofferdam-test-postgres --example cluster --locked -- "${CARGO_TARGET_DIR:-target}/debug/cofferdam"

# Tests of the guests' own logic, native.
guests-test:
    cargo test --manifest-path guests/Cargo.toml --workspace --locked

# The unmodified OpenAI clients for Python and Node against the built program.
clients:
    cargo test --workspace --no-run
    tests/clients/run.sh "${CARGO_TARGET_DIR:-target}/debug/cofferdam"

# The same, all tests of the Codex agent, and the agent frameworks: LangChain, Pydantic AI, OpenAI Agents, AI SDK,
# Mastra, OpenRouter's SDKs.
clients-all:
    cargo test --workspace --no-run
    tests/clients/run.sh "${CARGO_TARGET_DIR:-target}/debug/cofferdam" all

# The console in Chromium against the built program: every page, the keyboard, hostile names, sessions. `just console
# --smoke` only signs in. Screenshots are in target/console.
console *arguments:
    cargo build --workspace --bins --locked
    tests/console/run.sh "${CARGO_TARGET_DIR:-target}/debug/cofferdam" {{arguments}}

# The templates of `plugin new` in all languages: built, checked and called; mistakes in all languages. Downloads their toolchains' packages.
plugins-all:
    COFFERDAM_LANGUAGES=all cargo test --package cofferdam --test all --locked plugin_kit

# One fuzz target of tests/fuzz or tests/fuzz-guests for so many seconds; what it finds new stays in target/. The
# nightly toolchain is used where there is one; with it the sanitizer may be `address`.
fuzz target seconds="600" sanitizer="none":
    #!/usr/bin/env bash
    set -euo pipefail
    command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz@{{cargo_fuzz_version}}
    folder=tests/fuzz features=(--features server)
    case "{{target}}" in provider-*) folder=tests/fuzz-guests features=() ;; esac
    toolchain=()
    if cargo +nightly --version >/dev/null 2>&1; then toolchain=(+nightly); else export RUSTC_BOOTSTRAP=1; fi
    mkdir -p "target/fuzz/{{target}}"
    cargo "${toolchain[@]}" fuzz run --fuzz-dir "$folder" --sanitizer {{sanitizer}} --debug-assertions "${features[@]}" \
      "{{target}}" "target/fuzz/{{target}}" "tests/fuzz/corpus/{{target}}" -- -max_total_time={{seconds}} -timeout=10

# The host's instructions for a request of each shape, counted by valgrind: fewer than three times as many for
# twice the list.
linear count="1000":
    cargo build --package cofferdam-engine --example linear --locked
    host/engine/examples/linear.sh "${CARGO_TARGET_DIR:-target}/debug/examples/linear" {{count}}

# The instructions and cache misses of a whole answer, counted by valgrind in a model of the caches. The first run after
# a change of the plugins compiles them under valgrind, which takes minutes.
bench-callgrind *arguments:
    cargo run --release --locked --package cofferdam-bench -- callgrind {{arguments}}

# Processor time, latency, start and memory of target/dist/cofferdam beside nginx. docs/performance.md explains it.
bench *arguments:
    cargo run --release --locked --package cofferdam-bench -- compare {{arguments}}

# 5,000 paced streams at once: failures, memory, delays.
bench-density *arguments:
    cargo run --release --locked --package cofferdam-bench -- density {{arguments}}

# How the cost of a request grows with prompts, endpoints, tools, hooks, streams, secrets and keys.
bench-growth *arguments:
    cargo run --release --locked --package cofferdam-bench -- growth {{arguments}}

# What one PostgreSQL database does for many hosts, which settle requests in one process.
bench-many-hosts *arguments:
    cargo run --release --locked --package cofferdam-bench -- many-hosts {{arguments}}

# A store with up to 100,000 interns and keys: one more of them, a request, a start, memory.
bench-records *arguments:
    cargo run --release --locked --package cofferdam-bench -- records {{arguments}}

# What recording requests costs: one program with and without its recorder, in turn.
bench-recorder *arguments:
    cargo run --release --locked --package cofferdam-bench -- recorder {{arguments}}

# What a store in PostgreSQL costs beside the embedded one, with one to three hosts. Needs the programs of PostgreSQL.
bench-shared-store *arguments:
    cargo run --release --locked --package cofferdam-bench -- shared-store {{arguments}}

# An hour of mixed load; fails if memory grows or something is not given back.
soak *arguments:
    cargo run --release --locked --package cofferdam-bench -- soak {{arguments}}

# Single functions: the search of answers for secrets, the parser. `just microbench parse` runs one file.
microbench file="*":
    cargo bench --locked --package cofferdam-egress --package cofferdam-engine --bench '{{file}}'

# The alerts and the dashboard, checked with promtool: names, expressions, and whether each alert fires.
alerts:
    #!/usr/bin/env bash
    set -euo pipefail
    if ! command -v promtool >/dev/null; then
      echo "alerts: SKIPPED, promtool is not on the PATH; Debian: apt-get install prometheus"
      exit 0
    fi
    promtool check rules deploy/prometheus/alerts.yml
    promtool test rules deploy/prometheus/alerts.test.yml
    COFFERDAM_PROMTOOL=required cargo test --workspace --test all --locked metrics::

# Drive an instrumented build for half a minute, so that it writes a profile for the compiler.
train program *arguments:
    cargo run --release --locked --package cofferdam-bench -- train --program {{program}} {{arguments}}

# Format everything.
fmt:
    cargo fmt --all
    cargo fmt --all --manifest-path guests/Cargo.toml
    cargo fmt --all --manifest-path tests/rogue/Cargo.toml
    cargo fmt --manifest-path tests/fuzz/Cargo.toml
    cargo fmt --manifest-path tests/fuzz-guests/Cargo.toml

# Refuse code that is not formatted.
fmt-check:
    cargo fmt --all --check
    cargo fmt --all --check --manifest-path guests/Cargo.toml
    cargo fmt --all --check --manifest-path tests/rogue/Cargo.toml
    cargo fmt --check --manifest-path tests/fuzz/Cargo.toml
    cargo fmt --check --manifest-path tests/fuzz-guests/Cargo.toml

# Lints, warnings denied: the host natively, the guests natively and for the sandbox.
clippy:
    cargo clippy --workspace --all-targets --locked -- -D warnings
    cargo clippy --manifest-path guests/Cargo.toml --workspace --all-targets --locked -- -D warnings
    cargo clippy --manifest-path guests/Cargo.toml --workspace --target wasm32-wasip2 --locked -- -D warnings

# Documentation, broken links denied.
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --locked

# Rewrite the parts of docs/ that are made from the code: configuration keys, commands, metrics, errors. Then the
# examples in guests/examples, which `plugin new` makes.
docs:
    COFFERDAM_DOCS=write cargo test --package cofferdam --lib --test all --locked the_generated_page
    COFFERDAM_DOCS=write cargo test --package cofferdam --test all --locked the_examples_are_what_new_writes

# Rebuild the components in plugins/ from guests/.
guests:
    guests/build.sh

# Rebuild the components elsewhere and compare every byte with plugins/.
guests-check:
    guests/build.sh --check

# Licences, banned and duplicate crates, sources. `just deny advisories` also
# asks the advisory database, which needs the network.
deny +checks="bans licenses sources":
    command -v cargo-deny >/dev/null || cargo install --locked cargo-deny@{{cargo_deny_version}}
    cargo deny --workspace check {{checks}}
    cargo deny --manifest-path guests/Cargo.toml --workspace check {{checks}}

# Known vulnerabilities of all dependencies. Needs the network: for a nightly job and before a release.
advisories: (deny "advisories")

# What CI runs after the README's test command, with the time of each step.
ci:
    @for recipe in fmt-check clippy doc without-postgres guests-test guests-check clients deny alerts; do \
      started=$SECONDS; echo "== just $recipe"; "{{just_executable()}}" "$recipe"; \
      echo "== just $recipe took $(( (SECONDS - started) / 60 )) min $(( (SECONDS - started) % 60 )) s"; \
    done
