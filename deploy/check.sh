#!/usr/bin/env bash
# Checks the files of deploy/ with the tools of their systems: the unit with systemd's own, the manifests against the
# schemas of Kubernetes. Needs systemd 252 or later, kubectl and python3; the schemas are downloaded.
set -euo pipefail
cd "$(dirname "$0")"

# 1.6 of 10: what is left is the network, AF_UNIX, and memory that is written and executed.
exposure_max=16
kubernetes_validate_version=1.37.0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The program need not be installed here.
sed 's#exec /usr/local/bin/cofferdam#exec /bin/true#' cofferdam.service > "$work/cofferdam.service"
systemd-analyze verify "$work/cofferdam.service"
systemd-analyze security --offline=true --threshold="$exposure_max" --no-pager cofferdam.service | tail -1

kubectl kustomize kubernetes > "$work/all.yaml"
python3 -m venv "$work/python"
"$work/python/bin/pip" --quiet --disable-pip-version-check install "kubernetes-validate==$kubernetes_validate_version"
"$work/python/bin/kubernetes-validate" --strict "$work/all.yaml" kubernetes/secret.example.yaml
