#!/usr/bin/env bash
# Runs the unmodified OpenAI clients for Python and Node, OpenRouter's SDK and the Codex agent against the built
# program, one test of the agent unless CODEX_TESTS=all:
#     tests/clients/run.sh PATH_TO_BINARY
# A scripted provider (upstream.py), servers for tools (services.py) and one host are
# started on free ports and ended by their process ids. The clients are installed once, under the cargo target
# directory, from exact versions. Wants Python 3.10 and Node 20 or newer.
set -euo pipefail

binary=${1:?usage: tests/clients/run.sh PATH_TO_BINARY}
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

install_python() {
  python3 -m venv "$cache/python"
  "$cache/python/bin/pip" install --quiet --disable-pip-version-check -r "$here/python/requirements.txt"
}

install_node() {
  mkdir -p -- "$cache/node"
  cp -- "$here/node/"{package.json,package-lock.json,.npmrc} "$cache/node/"
  (cd -- "$cache/node" && npm ci --no-audit --no-fund --loglevel=error)
}

install_codex() {
  mkdir -p -- "$cache/codex"
  cp -- "$here/codex/"{package.json,package-lock.json,.npmrc} "$cache/codex/"
  (cd -- "$cache/codex" && npm ci --no-audit --no-fund --loglevel=error)
}

installed python "$(python3 --version) $(sha256sum <"$here/python/requirements.txt")" install_python
installed node "$(node --version) $(sha256sum <"$here/node/package-lock.json")" install_node
installed codex "$(node --version) $(sha256sum <"$here/codex/package-lock.json")" install_codex
python=$cache/python/bin/python
# Modules are looked up beside the tests.
cp -- "$here/node/"*.mjs "$cache/node/"
cp -- "$here/codex/"*.mjs "$cache/codex/"

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
COFFERDAM_MANAGER_KEY=$("$binary" --json --data "$work/data" --config "$work/cofferdam.toml" \
  key create --provisioning --workspace default |
  "$python" -c 'import json, sys; print(json.load(sys.stdin)["key"])')
export COFFERDAM_KEY COFFERDAM_MANAGER_KEY COFFERDAM_URL
await "$host" is_ready "http://$(field admin)" || fail "the host did not get ready: $(<"$work/host.log")"

status=0
(cd -- "$here/python" && timeout --kill-after=10 600 "$python" -m pytest) 2>&1 |
  tee "$work/python.out" || status=1
(cd -- "$cache/node" && timeout --kill-after=10 300 node --test --test-concurrency=2 --test-timeout=60000 \
  --test-reporter=spec ./*.test.mjs) 2>&1 |
  tee "$work/node.out" || status=1
(cd -- "$cache/codex" && timeout --kill-after=10 900 node --test --test-concurrency=1 --test-timeout=180000 \
  --test-reporter=spec ./*.test.mjs) 2>&1 |
  tee "$work/codex.out" || status=1

if ! kill -0 "$host" 2>/dev/null; then
  printf 'clients: the host ended by itself\n' >&2
  status=1
fi
if grep -q 'panicked at' "$work/host.log"; then
  grep -A 3 'panicked at' "$work/host.log" >&2
  status=1
fi
for name in COFFERDAM_KEY COFFERDAM_MANAGER_KEY "${!UPSTREAM_@}"; do
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

python_summary=$(grep -E '(passed|failed|error).* in [0-9]' "$work/python.out" | tail -n 1 || true)
counts='s/^[^a-z]*(tests|pass|fail|cancelled) ([0-9]+)$/\1 \2/p'
node_summary=$(sed -nE "$counts" "$work/node.out" | paste -sd ' ')
codex_summary=$(sed -nE "$counts" "$work/codex.out" | paste -sd ' ')
printf 'python: %s\nnode: %s\ncodex: %s\n' "${python_summary:-did not finish}" \
  "${node_summary:-did not finish}" "${codex_summary:-did not finish}"
exit "$status"
