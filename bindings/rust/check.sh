#!/bin/sh
# One step of what meson tests here, by name; nothing is fetched.
#
#   check.sh form       rustfmt has nothing to change, and bindings.rs is what the header says
#   check.sh lint       clippy has nothing to say
#   check.sh test       the crates' tests; those in the documentation too, except with a sanitizer
#   check.sh doc        the documentation builds without the library, as on docs.rs
#   check.sh vendored   the crate builds the library by itself, and the example answers
#
# Environment: as afmoe-sys/src/lib.rs says, CARGO_TARGET_DIR, AFMOE_LOGITS_PROGRAM, AFMOE_SANITIZE (meson's
# b_sanitize).
set -eu
cd "$(dirname "$0")"
export CARGO_TERM_COLOR=never CARGO_NET_OFFLINE=true

need()
{
    "$@" --version >/dev/null 2>&1 && return
    echo "skipped: program $* (not found)"
    exit 77
}

case $1 in
form)
    need cargo fmt
    cargo fmt --all --check
    ./bindings.sh --check
    ;;
lint)
    need cargo clippy
    cargo clippy --locked --workspace --all-targets -- -D warnings
    ;;
test)
    # The example first: a choice of targets leaves it out, and one of the tests runs it.
    cargo build --locked --examples
    case ${AFMOE_SANITIZE-none} in
    none) ;;
    *address*)
        # The sanitizer's library must come before all others; only the tests run with it, not the compiler.
        target=$(rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_)
        export "CARGO_TARGET_${target}_RUNNER=env LD_PRELOAD=$(gcc -print-file-name=libasan.so)"
        ;;
    *)
        echo "skipped: sanitizer $AFMOE_SANITIZE (Rust programs do not start it)"
        exit 77
        ;;
    esac
    cargo test --locked --lib --test suite
    [ "${AFMOE_SANITIZE-none}" != none ] || cargo test --locked --doc
    ;;
doc)
    # In a folder of its own: what the build script answers differs.
    export DOCS_RS=1 RUSTDOCFLAGS='-D warnings' PKG_CONFIG=false CARGO_TARGET_DIR="${CARGO_TARGET_DIR-target}/docs.rs"
    unset AFMOE_LIB_DIR
    cargo doc --locked --no-deps
    ;;
vendored)
    need "${MESON:-meson}"
    unset AFMOE_LIB_DIR LD_LIBRARY_PATH
    answer=$(echo 'What is the capital of France?' |
        cargo run --quiet --locked --features vendored --example chat -- ../../models/pico-q8_0.gguf)
    [ "$answer" = 'The capital of France is Paris.' ] || { echo "it answers: $answer" && exit 1; }
    ;;
*)
    sed -n '2,/^set/s/^# \?//p' "$0"
    exit 2
    ;;
esac
