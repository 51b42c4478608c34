#!/usr/bin/env bash
# Tests the console in Chromium against the built program:
#     tests/console/run.sh PATH_TO_BINARY [--smoke] [further options of run.js]
# Needs Node 20 or newer and Debian's `chromium`; CHROMIUM names another program. The two packages
# are installed from exact versions. Screenshots go to target/console.
set -euo pipefail

binary=$(realpath -- "${1:?usage: tests/console/run.sh PATH_TO_BINARY [--smoke]}")
shift
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
if ! command -v "${CHROMIUM:-chromium}" >/dev/null; then
  echo "console: chromium is not on the PATH; Debian: apt-get install chromium, else set CHROMIUM" >&2
  exit 1
fi
CHROMIUM=$(command -v "${CHROMIUM:-chromium}")
export CHROMIUM
if [[ ! $here/node_modules/.package-lock.json -nt $here/package-lock.json ]]; then
  npm ci --prefix "$here" --no-audit --no-fund --loglevel=error
fi
exec node "$here/run.js" "$binary" "$@"
