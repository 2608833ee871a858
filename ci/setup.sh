#!/usr/bin/env bash
# Installs the Debian packages that assay is built from, tested with and measured against.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: ci/setup.sh [--full] [--tests] [--list] [--help]

Installs what assay needs from Debian 12. Does nothing, quickly, when
everything is there already. Uses sudo only when not run as root.

  (nothing)  what building and running assay needs
  --full     also what assay uses when it is there: the OpenBLAS and oneDNN rungs
  --tests    also what only the tests need (implies --full)
  --list     prints the packages that the other flags name, one a line, and installs nothing
TEXT
}

build=(
    build-essential gcc cmake ninja-build pkg-config git ca-certificates
    libhdf5-dev libjansson-dev libyaml-dev libpcre2-dev libutf8proc-dev libmicrohttpd-dev
    libssl-dev zlib1g-dev
    gnuplot-nox
    python3 python3-venv python3-pip
)
full=(libopenblas-dev libdnnl-dev)
tests=(libcriterion-dev clang clang-format shellcheck hdf5-tools)

packages=("${build[@]}")
with_full=0
with_tests=0
list=0
for arg in "$@"; do
    case "$arg" in
    --full) with_full=1 ;;
    --tests)
        with_full=1
        with_tests=1
        ;;
    --list) list=1 ;;
    -h | --help)
        usage
        exit 0
        ;;
    *)
        echo "ci/setup.sh: unknown argument '$arg'" >&2
        usage >&2
        exit 2
        ;;
    esac
done
if [ "$with_full" = 1 ]; then packages+=("${full[@]}"); fi
if [ "$with_tests" = 1 ]; then packages+=("${tests[@]}"); fi

if [ "$list" = 1 ]; then
    printf '%s\n' "${packages[@]}"
    exit 0
fi

if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
    {
        echo "ci/setup.sh: this system has no dpkg and apt-get; assay's set-up knows only Debian's packages."
        echo "Install the equivalents of these by hand, then run the next step:"
        printf '  %s\n' "${packages[@]}"
    } >&2
    exit 2
fi

missing=()
for package in "${packages[@]}"; do
    if ! dpkg -s "$package" 2>/dev/null | grep -q '^Status: install ok installed$'; then
        missing+=("$package")
    fi
done

if [ "${#missing[@]}" = 0 ]; then
    echo "setup: all ${#packages[@]} Debian packages are installed"
    exit 0
fi

as_root=()
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        {
            echo "ci/setup.sh: ${#missing[@]} packages are missing, and this user is not root and has no sudo."
            echo "Run as root:"
            echo "  apt-get update && apt-get install --no-install-recommends ${missing[*]}"
        } >&2
        exit 2
    fi
    as_root=(sudo)
fi

echo "setup: installing ${#missing[@]} of ${#packages[@]} Debian packages: ${missing[*]}"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT

# An installation that fails is worth a second try with fresh lists: a version in old lists may be gone.
export DEBIAN_FRONTEND=noninteractive
apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@"
}
install() {
    apt install -y --no-install-recommends "${missing[@]}" </dev/null >"$log" 2>&1
}
if ! { apt update </dev/null >"$log" 2>&1 && install; }; then
    echo "setup: apt-get failed; trying once more in 5 seconds" >&2
    sleep 5
    if ! { apt update </dev/null >"$log" 2>&1 && install; }; then
        {
            echo "ci/setup.sh: apt-get could not install: ${missing[*]}"
            echo "The end of what it said:"
            tail -n 20 "$log" | sed 's/^/  /'
            echo "Check that this machine reaches its Debian mirror, then run ci/setup.sh again."
        } >&2
        exit 2
    fi
fi
echo "setup: done"
