#!/usr/bin/env bash
# From a fresh clone to a first report: sets up, fetches a model, builds, runs, shows.
set -euo pipefail
# shellcheck source=ci/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'TEXT'
usage: ci/quickstart.sh [--help]

Installs what is missing, fetches SmolLM2-135M-Instruct (without network: uses the built-in
synthetic:llama-135m), builds assay, replays 16 recorded requests twice under the strategies naive
and fast, and shows the report, report.h5. Every command is printed before it is run, so that each
can be repeated by hand.
TEXT
}

case "${1:-}" in
'') ;;
-h | --help)
    usage
    exit 0
    ;;
*) fail 2 "takes no argument '$1'; see ci/quickstart.sh --help" ;;
esac

cd "$root"
began=$SECONDS

step() {
    printf '\n$ %s\n' "$*"
    local code=0
    "$@" </dev/null || code=$?
    if [ "$code" != 0 ]; then
        fail "$code" "this step ended with $code after $((SECONDS - began)) s in all: $*"
    fi
}

step ci/setup.sh

model=models/SmolLM2-135M-Instruct.Q4_1.gguf
printf '\n$ ci/fetch-model.sh\n'
code=0
ci/fetch-model.sh </dev/null || code=$?
case "$code" in
0) ;;
3)
    model=synthetic:llama-135m
    echo "quickstart: no network, so the built-in model $model stands in: same shapes, random weights"
    ;;
*) fail "$code" "the model could not be fetched; what went wrong is said above" ;;
esac

step cmake --preset release
step cmake --build --preset release --target assay
step build/release/assay run --model "$model" --workload workloads/chat.awl.jsonl --limit 16 \
    --strategy naive --strategy fast --mode offline --repeat 2 -o report.h5
step build/release/assay show report.h5

printf '\nquickstart: done in %d s; the report is report.h5\n' "$((SECONDS - began))"
