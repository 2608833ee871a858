#!/usr/bin/env bash
# Makes the Python environment that tests, goldens and peers use. assay itself needs no Python.
set -euo pipefail
# shellcheck source=ci/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'TEXT'
usage: ci/python.sh [--golden] [--peers] [--help]

Makes (or completes) the Python environment in the ignored folder .venv/ with pinned packages, and
does nothing when everything is there. Run its Python as .venv/bin/python.

  (nothing)  what the tests import: ci/requirements/light.txt
  --golden   also what only makes the goldens: ci/requirements/golden.txt (torch: 5 GB on disk)
  --peers    also builds the engine that assay is measured against: ci/peers/llama_cpp.sh

Exit: 0 everything is there, 2 something is wrong, 3 no network (what is missing was not installed).
TEXT
}

sets=(light)
peers=0
for arg in "$@"; do
    case "$arg" in
    --golden) sets+=(golden) ;;
    --peers) peers=1 ;;
    -h | --help)
        usage
        exit 0
        ;;
    *) fail 2 "unknown argument '$arg'; see ci/python.sh --help" ;;
    esac
done

venv="$root/.venv"
if ! "$venv/bin/python" -c '' 2>/dev/null; then
    need_pip
    "$python" -c 'import ensurepip, venv' 2>/dev/null || fail 2 "$python has no venv; run ci/setup.sh"
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi

log="$(mktemp)"
trap 'rm -f "$log"' EXIT
for set in "${sets[@]}"; do
    pins="$root/ci/requirements/$set.txt"
    stamp="$venv/$set.installed"
    if cmp -s "$pins" "$stamp"; then
        echo "python: .venv has $set.txt"
        continue
    fi
    echo "python: installing $set.txt into .venv"
    if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --retries 2 \
        --only-binary :all: -r "$pins" >"$log" 2>&1 </dev/null; then
        if offline "$log"; then
            # An environment without its packages would look to tests as if it had them.
            compgen -G "$venv/*.installed" >/dev/null || rm -rf "$venv"
            fail 3 "cannot reach the Python package index, so ci/requirements/$set.txt is not installed"
        fi
        show "$log"
        fail 2 "pip could not install ci/requirements/$set.txt; its words are above"
    fi
    cp "$pins" "$stamp.partial"
    mv "$stamp.partial" "$stamp"
done

if [ "$peers" = 1 ]; then
    "$root/ci/peers/llama_cpp.sh" --install-only
fi
