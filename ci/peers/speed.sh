#!/usr/bin/env bash
# Measures assay beside llama.cpp, alternating; see speed.py beside this file.
set -euo pipefail
# shellcheck source=ci/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

cd "$root"
if [ ! -x .venv/bin/python ]; then ci/python.sh; fi
exec .venv/bin/python ci/peers/speed.py "$@"
