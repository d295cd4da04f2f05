#!/usr/bin/env bash
# Renders the Helm chart with Helm's own engine for every set of values in longshore/ci, and validates what comes out,
# and the manifests in deploy/, against the schemas of several versions of Kubernetes.
#
# Needs Python 3.10 or later; installs two packages into a folder of its own. Without Python, or where packages cannot
# be installed, it says so and skips.
set -euo pipefail
cd "$(dirname "$0")"

venv="${LONGSHORE_CHART_VENV:-../target/chart-venv}"
if ! command -v python3 >/dev/null; then
    echo "SKIPPED: the chart is not checked, since there is no python3"
    exit 0
fi
if ! [ -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import helm_python, kubernetes_validate, yaml' 2>/dev/null; then
    if ! { python3 -m venv "$venv" &&
        "$venv/bin/pip" install --quiet --disable-pip-version-check 'helm-python-sdk==0.2.2' 'kubernetes-validate==1.37.0' pyyaml; }; then
        echo "SKIPPED: the chart is not checked, since its checker's packages could not be installed"
        exit 0
    fi
fi
exec "$venv/bin/python" check.py
