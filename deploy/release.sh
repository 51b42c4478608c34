#!/usr/bin/env bash
# Packs a built program for others: release.sh [PROGRAM] [DIRECTORY]. PROGRAM is target/dist/cofferdam, which
# `just dist` builds; DIRECTORY is target/release-files. The directory gets the archive with the program, its licences,
# the documents, the unit, the manifests, the alerts, completions and manual pages, beside it the bill of materials, and SHA256SUMS of both.
#
# The same program and the same commit make the same bytes: names are sorted, and all files have the time of the commit.
set -euo pipefail
cd "$(dirname "$0")/.."

program=${1:-${CARGO_TARGET_DIR:-target}/dist/cofferdam}
directory=${2:-${CARGO_TARGET_DIR:-target}/release-files}
cyclonedx_version=0.5.9

[ -x "$program" ] || { echo "no program at $program: \`just dist\` builds it" >&2; exit 1; }
# Builds for tests can search their memory for secrets and end themselves; see host/store/src/canaries.rs.
if grep --quiet --text COFFERDAM_CANARIES "$program"; then
  echo "$program is a build for tests: pack one without debug assertions" >&2
  exit 1
fi
machine=$(rustc -vV | sed -n 's/^host: //p')
version=$("$program" --version | cut -d' ' -f2)
name=cofferdam-$version-$machine
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

mkdir -p "$directory"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
files=$work/$name
mkdir -p "$files/completions" "$files/man"

install -m 0755 "$program" "$files/cofferdam"
cp LICENSE README.md CHANGELOG.md "$files/"
cp -r docs deploy/cofferdam.service deploy/cofferdam.toml deploy/kubernetes deploy/prometheus deploy/grafana "$files/"
for shell in bash zsh fish elvish powershell; do
  "$program" completions "$shell" > "$files/completions/cofferdam.$shell"
done
"$program" man "$files/man" > "$work/log"
deploy/licences.py > "$files/THIRD-PARTY-LICENCES.txt"

tar --create --directory "$work" --sort=name --format=gnu --owner=0 --group=0 --numeric-owner \
  --mode='u=rwX,go=rX' --mtime="@$SOURCE_DATE_EPOCH" "$name" | gzip --no-name --best > "$directory/$name.tar.gz"

# The tool writes beside each Cargo.toml of the workspace.
command -v cargo-cyclonedx > "$work/log" || cargo install --locked "cargo-cyclonedx@$cyclonedx_version"
trap 'rm -rf "$work"; find . -name release-sbom.json -not -path "./target/*" -delete' EXIT
cargo cyclonedx --quiet --manifest-path host/server/Cargo.toml --format json --target "$machine" \
  --no-build-deps --override-filename release-sbom
# Crates of this tree are named by their place, which must not be that of this machine.
sed "s#file://$PWD#file:///cofferdam#g" host/server/release-sbom.json > "$directory/$name.cdx.json"

(cd "$directory" && sha256sum "$name.tar.gz" "$name.cdx.json" > SHA256SUMS)
echo "packed: $directory/$name.tar.gz"
