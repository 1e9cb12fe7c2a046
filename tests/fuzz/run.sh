#!/bin/sh
# Fuzz for a while: run.sh BUILD_FOLDER SECONDS TARGET...
# Starts from the kept inputs; new ones go to BUILD_FOLDER/fuzz/TARGET, crashes to BUILD_FOLDER/fuzz/TARGET-*, the log
# to BUILD_FOLDER/fuzz/TARGET.log; its last line is the processor time (user, system) of all targets so far.
set -eu
build=$1 seconds=$2 failed=0
shift 2
here=$(cd "$(dirname "$0")" && pwd)
export AFMOE_TEST_DATA="$here/../data" ASAN_OPTIONS="${ASAN_OPTIONS-}:quarantine_size_mb=16"
for target; do
    work=$build/fuzz/$target
    mkdir -p "$work" "$here/corpus/$target"
    nice "$build/tests/fuzz/fuzz_$target" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -max_len=1024 \
        -len_control=10 -print_final_stats=1 -artifact_prefix="$work-" "$work" "$here/corpus/$target" \
        > "$work.log" 2>&1 || failed=1
    times >> "$work.log"
    grep DONE "$work.log" || { echo "$target: failed, see $work.log"; tail -30 "$work.log"; }
done
exit $failed
