# Sourced by the scripts beside it: where things are, how to fail, and what needs the network.
# shellcheck shell=bash disable=SC2034

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

# Debian's own Python first: another one on PATH may lack pip or venv, or be older than the pins allow.
python=/usr/bin/python3
[ -x "$python" ] || python=python3

# fail CODE LINE...: says what is wrong, a line each, and ends.
fail() {
    local code="$1"
    shift
    printf "ci/${0##*ci/}: %s\n" "$@" >&2
    exit "$code"
}

# show FILE: the end of a log, indented, on stderr.
show() { tail -n 15 "$1" | sed 's/^/  /' >&2; }

need_pip() {
    command -v "$python" >/dev/null 2>&1 || fail 2 "python3 is missing; run ci/setup.sh"
    "$python" -m pip --version >/dev/null 2>&1 || fail 2 "$python has no pip; run ci/setup.sh"
}

# offline LOG: whether pip's words in LOG mean that the package index cannot be reached; if so, says why.
offline() {
    if grep -qi 'CERTIFICATE_VERIFY_FAILED' "$1"; then
        echo "the package index shows a certificate that this machine does not trust (pip reads PIP_CERT)" >&2
        return 0
    fi
    grep -qiE 'NewConnectionError|connection broken|name resolution|unreachable|timed out|ProxyError' "$1"
}
