# Sourced by scripts/quickstart and scripts/check: which Debian 12 packages they need, and how these get installed.
# shellcheck shell=bash

# What builds the library and the afmoe command.
build_packages='gcc libc6-dev meson ninja-build pkgconf libjansson-dev'
# What the tests need besides: C++ and clang for the header and the second build, cmocka for the test programs, libclang
# for the form of the header, numpy for reference values, hwloc to compare counts of cores with, SIMDe for AVX-512 on
# CPUs without it, groff for the manual pages, libedit for afmoe chat, xxhash for saving sessions, libabigail to compare
# with the first release.
check_packages='g++ clang-14 binutils libcmocka-dev libhwloc-dev libsimde-dev libedit-dev groff-base'
check_packages="$check_packages libxxhash-dev abigail-tools python3 python3-clang-14 python3-numpy xz-utils"
# For the Python package: its tests, its types, the picture of its example, and pip for the wheel.
check_packages="$check_packages python3-pytest mypy python3-matplotlib python3-venv"
# For the Rust crates: bindgen makes the declarations; Rust is the one in PATH, which may be newer than Debian's.
check_packages="$check_packages bindgen"
command -v cargo >/dev/null || check_packages="$check_packages cargo rustfmt rust-clippy"

# Other Pythons, and a meson of theirs, may come first in PATH (pyenv, virtual environments). Debian's are meant.
MESON=/usr/bin/meson
PYTHON=/usr/bin/python3
NINJA=/usr/bin/ninja
export NINJA

say()
{
    printf '%s: %s\n' "${0##*/}" "$*" >&2
}

die()
{
    say "$@"
    exit 1
}

# apt_get WORD...: as root, asking nothing. The variable goes through env because sudo may drop it.
apt_get()
{
    local sudo=()
    [ "$(id -u)" -eq 0 ] || sudo=(sudo)
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" >&2 </dev/null
}

is_installed()
{
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# need PACKAGE...: install those that are missing. Package lists are fetched only when those at hand do not know the
# packages (a fresh image has none), or name files that are gone (an old image).
need()
{
    local package missing=()
    if ! command -v dpkg-query >/dev/null; then
        say "not a Debian system; these packages of Debian 12, or the like, must be there: $*"
        return
    fi
    for package; do
        is_installed "$package" || missing+=("$package")
    done
    [ "${#missing[@]}" -eq 0 ] && return
    [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null || die "root or sudo is needed to install ${missing[*]}"
    say "installing ${missing[*]}"
    apt-cache show "${missing[@]}" >/dev/null 2>&1 || apt_get update
    apt_get install --no-install-recommends "${missing[@]}" && return
    apt_get update
    apt_get install --no-install-recommends "${missing[@]}" || die "could not install ${missing[*]}"
}
