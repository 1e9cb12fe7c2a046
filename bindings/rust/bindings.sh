#!/bin/sh
# Make afmoe-sys/src/bindings.rs from include/afmoe.h.
#
# Usage: bindings.sh [--check]     --check: write nothing, fail where the file is not what would be written
#
# The text depends on bindgen's version: it must be that of Debian 12 (elsewhere: cargo install bindgen --version
# 0.60.1 --locked). Where another one, or none, is found, the answer is 77.
set -eu
version=0.60.1
cd "$(dirname "$0")"
bindings=afmoe-sys/src/bindings.rs

found=$(bindgen --version 2>/dev/null || true)
if [ "$found" != "bindgen $version" ]; then
    echo "skipped: program bindgen (version $version is needed, found ${found:-none})"
    exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Rustfmt is asked afterwards: its versions differ, so both sides of a comparison go through the one that is here.
# Constants get the type that the header's fields and arguments for them have, in place of the one that a C compiler
# chooses for each unnamed enum.
bindgen --no-rustfmt-bindings --rust-target 1.47 --allowlist-file '.*/afmoe\.h' \
    --raw-line '// SPDX-License-Identifier: Apache-2.0' ../../include/afmoe.h -- -std=c11 |
    sed -E -e 's/(# \[doc = "([^"\\]|\\.)*"\] )*pub type (_bindgen_ty_[0-9]+|__[a-z0-9]+_t) = [^;]*;//g' \
        -e 's/: _bindgen_ty_[0-9]+ =/: i32 =/g' >"$folder/bindings.rs"
rustfmt --edition 2021 --config-path rustfmt.toml "$folder/bindings.rs"

if [ "${1-}" != --check ]; then
    cp "$folder/bindings.rs" "$bindings"
    exit
fi
mkdir "$folder/kept"
cp "$bindings" "$folder/kept"
rustfmt --edition 2021 --config-path rustfmt.toml "$folder/kept/bindings.rs"
diff -u "$folder/kept/bindings.rs" "$folder/bindings.rs" || {
    echo "$bindings is not what afmoe.h says: run bindings/rust/bindings.sh"
    exit 1
}
