#!/usr/bin/env bash
# linear.sh EXAMPLE COUNT: counts the instructions of `EXAMPLE SHAPE N` for every shape that EXAMPLE prints, with a list
# of COUNT elements and with twice as many. Where a request may not have that many, it takes the maximum and half of it.
# The instructions for one element are subtracted. Fails if twice the list takes three times the instructions.
set -euo pipefail

example=$1
count=$2

instructions() {
  local told
  told=$(valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null "$example" "$1" "$2" 2>&1) ||
    { printf '%s\n' "$told" >&2; return 1; }
  awk '/I *refs:/ { gsub(",", ""); print $NF; found = 1 } END { exit !found }' <<<"$told"
}

slow=0
while read -r shape most; do
  half=$((count * 2 > most ? most / 2 : count))
  one=$(instructions "$shape" 1)
  once=$(($(instructions "$shape" "$half") - one))
  twice=$(($(instructions "$shape" $((2 * half))) - one))
  verdict=linear
  if ((once <= 0 || twice >= 3 * once)); then
    verdict='NOT LINEAR'
    slow=1
  fi
  printf '%-32s %6d: %13d  %6d: %13d  %s\n' "$shape" "$half" "$once" $((2 * half)) "$twice" "$verdict"
done < <("$example")
exit "$slow"
