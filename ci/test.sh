#!/usr/bin/env bash
# Builds assay and runs every check and test that needs no GPU, in a clean clone or a used one.
set -euo pipefail
# shellcheck source=ci/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'TEXT'
usage: ci/test.sh [--quick] [--no-setup] [--help]

Installs what is missing, builds the presets release and asan, and runs their tests (asan: without
those labelled "slow"), then checks the scripts and the code style. What cannot run here, for want of
a network or a tool, is skipped and named.

  --quick     the release preset only, and no style checks
  --no-setup  installs and fetches nothing

The last line is "N passed, N failed, N skipped". Exit: 0 all passed, 1 something failed or nothing ran.
TEXT
}

quick=0
with_setup=1
for arg in "$@"; do
    case "$arg" in
    --quick) quick=1 ;;
    --no-setup) with_setup=0 ;;
    -h | --help)
        usage
        exit 0
        ;;
    *) fail 2 "unknown argument '$arg'; see ci/test.sh --help" ;;
    esac
done

cd "$root"
exec </dev/null
ulimit -c 0 || true

# Tests write their cache into the build folder, never into the user's own.
mkdir -p build/test
export XDG_CACHE_HOME="$root/build/test/cache"
# A finding of a sanitizer must fail its test, not only be printed.
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}"

passed=0
failed=0
skipped=0
notes=()

note() {
    case "$1" in
    passed) passed=$((passed + 1)) ;;
    failed)
        failed=$((failed + 1))
        notes+=("failed: $2")
        ;;
    skipped)
        skipped=$((skipped + 1))
        notes+=("skipped: $2")
        ;;
    esac
}

began=$SECONDS
title() { printf '\n== %s (%d s)\n' "$1" "$((SECONDS - began))"; }

finish() {
    title "results"
    if [ "${#notes[@]}" != 0 ]; then printf '%s\n' "${notes[@]}"; fi
    if [ "$passed" = 0 ] && [ "$failed" = 0 ]; then
        echo "failed: nothing ran"
        failed=1
    fi
    printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
    if [ "$failed" != 0 ]; then exit 1; fi
    exit 0
}

# check NAME COMMAND...: one check, passed or failed by its exit code.
check() {
    local name="$1"
    shift
    if "$@"; then
        note passed "$name"
    else
        note failed "$name (ended with $?)"
        return 1
    fi
}

# results PRESET FILE: the outcome of each test in ctest's JUnit file, a line each: outcome, name, reason.
results() {
    "$python" - "$1" "$2" <<'PY'
import sys
import xml.etree.ElementTree as tree

preset, path = sys.argv[1:]
for case in tree.parse(path).getroot().iter("testcase"):
    name = f"{preset}: {case.get('name')}"
    status = case.get("status")
    mark = case.find("skipped")
    message = "" if mark is None else mark.get("message", "")
    words = [line.strip() for line in (case.findtext("system-out") or "").splitlines() if line.strip()]
    if status == "run":
        print("passed", name)
    elif status == "disabled":
        print("skipped", name, "(disabled)")
    elif status == "notrun" and message.startswith("SKIP_"):
        said = [line for line in words if "skip" in line.lower()]
        print("skipped", name, f"({(said or words or ['no reason given'])[-1][:200]})")
    else:
        print("failed", name, f"({message})" if message else "")
PY
}

# suite PRESET CTEST-ARGUMENT...: configures, builds and tests one preset.
suite() {
    local preset="$1"
    shift
    title "$preset: configure and build"
    check "$preset: configure" cmake --preset "$preset" || return 0
    check "$preset: build" cmake --build --preset "$preset" || return 0

    title "$preset: test"
    local junit="$root/build/test/$preset.xml"
    rm -f "$junit"
    local code=0
    ctest --test-dir "build/$preset" -j 2 --output-on-failure --no-tests=error --timeout 600 \
        --output-junit "$junit" "$@" || code=$?
    local counted=0 before=$failed outcome rest
    if [ -s "$junit" ]; then
        while read -r outcome rest; do
            note "$outcome" "$rest"
            counted=$((counted + 1))
        done < <(results "$preset" "$junit")
    fi
    if [ "$counted" = 0 ]; then
        note failed "$preset: ctest ran no test (ended with $code)"
    elif [ "$code" != 0 ] && [ "$failed" = "$before" ]; then
        note failed "$preset: ctest ended with $code though no test failed"
    fi
}

# sources PATTERN...: the project's own files, from git where there is one.
sources() {
    git ls-files -- "$@" 2>/dev/null && return 0
    local tests=() pattern
    for pattern in "$@"; do tests+=(-o -path "./$pattern"); done
    find . \( -path ./build -o -path ./.venv -o -path ./.peers -o -path ./models -o -path ./.git \) -prune \
        -o -type f \( "${tests[@]:1}" \) -print
}

if [ "$with_setup" = 1 ]; then
    title "set-up"
    if ! ci/setup.sh --tests; then
        note failed "set-up: ci/setup.sh --tests"
        finish
    fi
    code=0
    ci/python.sh || code=$?
    case "$code" in
    0) ;;
    3) note skipped "tests that need Python packages: no network" ;;
    *) note failed "set-up: ci/python.sh ended with $code" ;;
    esac
    code=0
    ci/fetch-model.sh || code=$?
    case "$code" in
    0) ;;
    3) note skipped "tests of SmolLM2-135M-Instruct: no network" ;;
    *) note failed "set-up: ci/fetch-model.sh ended with $code" ;;
    esac
fi

suite release
if [ "$quick" = 1 ]; then finish; fi
suite asan -LE slow

title "scripts and style"
mapfile -t scripts < <(sources 'ci/*.sh' 'ci/*/*.sh' '.ci/run' | sort -u)
syntax() {
    local script bad=0
    for script in "${scripts[@]}"; do bash -n "$script" || bad=1; done
    return "$bad"
}
check "scripts: bash -n" syntax || true
if command -v shellcheck >/dev/null 2>&1; then
    check "scripts: shellcheck" shellcheck -x -S warning "${scripts[@]}" || true
else
    note skipped "scripts: shellcheck is not installed"
fi

# Versions of clang-format differ in what they accept, so only the one that the style was written for counts.
style_version=14
if ! command -v clang-format >/dev/null 2>&1; then
    note skipped "style: clang-format is not installed"
elif ! clang-format --version | grep -q "version $style_version\."; then
    note skipped "style: clang-format is not version $style_version"
else
    mapfile -t code_files < <(sources '*.c' '*.h')
    style() {
        local file bad=0
        for file in "${code_files[@]}"; do
            if ! clang-format --dry-run --Werror "$file" >/dev/null 2>&1; then
                echo "style: $file is not formatted"
                bad=1
            fi
        done
        return "$bad"
    }
    if ! check "style: clang-format" style; then
        echo "style: to put it right: git ls-files '*.c' '*.h' | xargs clang-format -i"
    fi
fi

finish
