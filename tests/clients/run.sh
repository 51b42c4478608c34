#!/usr/bin/env bash
# Runs the unmodified OpenAI clients for Python and Node, OpenRouter's SDK and the Codex agent against the built
# program:
#     tests/clients/run.sh PATH_TO_BINARY [all]
# With `all` every test of the agent runs, not only one, and the agent frameworks of tests/clients/frameworks.
# A scripted provider (upstream.py), servers for tools (services.py) and one host are
# started on free ports and ended by their process ids. The clients are installed once, under the cargo target
# directory, from exact versions. Needs Python 3.10 and Node 20 or newer.
set -euo pipefail

binary=${1:?usage: tests/clients/run.sh PATH_TO_BINARY [all]}
suites=${2:-}
[[ -z $suites || $suites == all ]] || { echo "usage: $0 PATH_TO_BINARY [all]" >&2; exit 2; }
binary=$(realpath -- "$binary")
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../target}
mkdir -p -- "$target/clients"
cache=$(cd -- "$target/clients" && pwd)
exec </dev/null

fail() {
  printf 'clients: %s\n' "$*" >&2
  exit 1
}

# Installs NAME by the rest of the arguments unless the files with the versions are
# those of the last installation. The stamp is written last.
installed() {
  local name=$1 versions=$2
  shift 2
  if [[ $(cat -- "$cache/$name.installed" 2>/dev/null) != "$versions" ]]; then
    rm -rf -- "${cache:?}/$name" "$cache/$name.installed"
    "$@" || fail "$name: the clients could not be installed"
    printf '%s\n' "$versions" >"$cache/$name.installed"
  fi
}

# Installs the sources' requirements.txt into the virtual environment NAME.
install_python() {
  local name=$1 sources=$2
  python3 -m venv "$cache/$name"
  "$cache/$name/bin/pip" install --quiet --disable-pip-version-check -r "$sources/requirements.txt"
}

# Installs the sources' package-lock.json into the folder NAME.
install_node() {
  local name=$1 sources=$2
  mkdir -p -- "$cache/$name"
  cp -- "$sources/"{package.json,package-lock.json,.npmrc} "$cache/$name/"
  (cd -- "$cache/$name" && npm ci --no-audit --no-fund --loglevel=error)
}

# Both languages of one folder of tests; PREFIX keeps the installations of the folders apart.
prepare() {
  local prefix=$1 sources=$2
  installed "${prefix}python" "$(python3 --version) $(sha256sum <"$sources/python/requirements.txt")" \
    install_python "${prefix}python" "$sources/python"
  prepare_node "${prefix}node" "$sources/node"
}

# Tests for Node, with their packages, in the folder NAME.
prepare_node() {
  local name=$1 sources=$2
  installed "$name" "$(node --version) $(sha256sum <"$sources/package-lock.json")" install_node "$name" "$sources"
  # Modules are looked up beside the tests.
  cp -- "$sources/"*.mjs "$cache/$name/"
}

prepare '' "$here"
prepare_node codex "$here/codex"
[[ $suites != all ]] || prepare frameworks- "$here/frameworks"
python=$cache/python/bin/python

work=$(mktemp -d)
pids=()
clean_up() {
  local pid
  for pid in "${pids[@]}"; do
    kill -TERM "$pid" 2>/dev/null || true
  done
  for pid in "${pids[@]}"; do
    # Neither waits for anything after the tests; 10 s are for a busy machine.
    for _ in {1..100}; do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
  done
  rm -rf -- "$work"
}
trap clean_up EXIT

# Waits until a command succeeds, as long as a process lives: at most 5 minutes, which
# are for compiling the guests in a debug build on a busy machine.
await() {
  local pid=$1
  shift
  for _ in {1..3000}; do
    "$@" && return
    kill -0 "$pid" 2>/dev/null || return 1
    sleep 0.1
  done
  return 1
}

has_line() {
  [[ -s $1 && $(wc -l <"$1") -gt 0 ]]
}

is_ready() {
  "$python" -c 'import sys, urllib.request as r; r.urlopen(sys.argv[1], timeout=5)' "$1/readyz" 2>/dev/null
}

secret() {
  "$python" -c 'import secrets; print("scripted-" + secrets.token_hex(24))'
}

export PYTHONDONTWRITEBYTECODE=1 OPENAI_AGENTS_DISABLE_TRACING=1
# Nothing here leaves the machine, whatever the environment says.
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY OPENAI_API_KEY OPENAI_BASE_URL
UPSTREAM_RESPONSES_KEY=$(secret)
UPSTREAM_CHAT_KEY=$(secret)
UPSTREAM_ANTHROPIC_KEY=$(secret)
UPSTREAM_WRONG_KEY=$(secret)
UPSTREAM_SERVICES_KEY=$(secret)
export UPSTREAM_RESPONSES_KEY UPSTREAM_CHAT_KEY UPSTREAM_ANTHROPIC_KEY UPSTREAM_WRONG_KEY
export UPSTREAM_SERVICES_KEY

"$python" "$here/upstream.py" >"$work/upstream.out" 2>"$work/upstream.log" &
pids+=($!)
await $! has_line "$work/upstream.out" ||
  fail "the scripted provider did not start: $(<"$work/upstream.log")"
UPSTREAM_URL=http://127.0.0.1:$(<"$work/upstream.out")
export UPSTREAM_URL

"$python" "$here/services.py" >"$work/services.out" 2>"$work/services.log" &
pids+=($!)
await $! has_line "$work/services.out" ||
  fail "the servers for tools did not start: $(<"$work/services.log")"
services_port=$(<"$work/services.out")
export SERVICES_URL=http://localhost:$services_port

sed "s|@UPSTREAM@|$UPSTREAM_URL|; s|@SERVICES_PORT@|$services_port|" "$here/host.toml" >"$work/cofferdam.toml"
COFFERDAM_CACHE=${COFFERDAM_CACHE:-$cache/compiled} "$binary" --json --data "$work/data" \
  --config "$work/cofferdam.toml" serve --listen 127.0.0.1:0 --admin 127.0.0.1:0 \
  >"$work/host.out" 2>"$work/host.log" &
host=$!
pids+=("$host")
await "$host" has_line "$work/host.out" || fail "the host did not start: $(<"$work/host.log")"
field() {
  "$python" -c "import json, sys; print(json.load(open(sys.argv[1]))['$1'])" "$work/host.out"
}
COFFERDAM_KEY=$(field key)
COFFERDAM_URL=http://$(field listen)/v1
# A key with the rest of the arguments.
new_key() {
  "$binary" --json --data "$work/data" --config "$work/cofferdam.toml" key create --workspace default "$@" |
    "$python" -c 'import json, sys; print(json.load(sys.stdin)["key"])'
}
COFFERDAM_MANAGER_KEY=$(new_key --provisioning)
# The agent's long prompts must not meet what the other clients have used of the tokens of a minute.
COFFERDAM_AGENT_KEY=$(new_key)
export COFFERDAM_KEY COFFERDAM_MANAGER_KEY COFFERDAM_URL
await "$host" is_ready "http://$(field admin)" || fail "the host did not get ready: $(<"$work/host.log")"

status=0
# Runs the tests of one folder and keeps what they print for the summary.
run_tests() {
  local prefix=$1 sources=$2
  (cd -- "$sources/python" && timeout --kill-after=10 600 "$cache/${prefix}python/bin/python" -m pytest) 2>&1 |
    tee "$work/${prefix}python.out" || status=1
  run_node "${prefix}node" 2 60 300
}

# The same for the folder NAME of Node tests: how many at once, and for how many seconds each and all may run.
run_node() {
  local name=$1 at_once=$2 each=$3 all=$4
  (cd -- "$cache/$name" && timeout --kill-after=10 "$all" node --test --test-concurrency="$at_once" \
    --test-timeout="${each}000" --test-reporter=spec ./*.test.mjs) 2>&1 |
    tee "$work/$name.out" || status=1
}
run_tests '' "$here"
COFFERDAM_KEY=$COFFERDAM_AGENT_KEY CLIENT_SUITES=$suites run_node codex 1 180 900
[[ $suites != all ]] || run_tests frameworks- "$here/frameworks"

if ! kill -0 "$host" 2>/dev/null; then
  printf 'clients: the host ended by itself\n' >&2
  status=1
fi
if grep -q 'panicked at' "$work/host.log"; then
  grep -A 3 'panicked at' "$work/host.log" >&2
  status=1
fi
for name in "${!COFFERDAM_@}" "${!UPSTREAM_@}"; do
  [[ $name == *_KEY ]] || continue
  if grep -qF -- "${!name}" "$work/host.log"; then
    printf 'clients: the log of the host holds %s\n' "$name" >&2
    status=1
  fi
done
# Words that the tests said and heard.
if grep -nE 'Köln|Question [0-9]+|One word follows|Here I am|get_weather' "$work/host.log" >&2; then
  printf 'clients: the log of the host repeats what was said\n' >&2
  status=1
fi
if [[ $status -ne 0 ]]; then
  printf '%s\n' '--- what the host warned of' >&2
  grep -vE '"level":"(INFO|DEBUG|TRACE)"' "$work/host.log" | tail -n 40 >&2 || true
fi

counts='s/^[^a-z]*(tests|pass|fail|cancelled) ([0-9]+)$/\1 \2/p'
summary() {
  local prefix=$1 python_summary
  python_summary=$(grep -E '(passed|failed|error).* in [0-9]' "$work/${prefix}python.out" | tail -n 1 || true)
  printf '%spython: %s\n' "$prefix" "${python_summary:-did not finish}"
  node_summary "${prefix}node"
}
node_summary() {
  local name=$1 told
  told=$(sed -nE "$counts" "$work/$name.out" | paste -sd ' ')
  printf '%s: %s\n' "$name" "${told:-did not finish}"
}
summary ''
node_summary codex
[[ $suites != all ]] || summary frameworks-
exit "$status"
