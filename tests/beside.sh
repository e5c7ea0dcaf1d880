#!/usr/bin/env bash
# Runs one test binary for tests/run.sh: cargo's runner. Binaries run one after another, and at the end of each only its slowest tests
# run: haul-cli's, which take twice as long as all others, go on beside those. Their output and exit status are left in $BESIDE.
set -u
# Only nightly test binaries print times, or others with this variable. It is set for running, not for compiling.
export RUSTC_BOOTSTRAP=1
case "$PWD/$(basename "$1")" in
  */crates/haul-cli/all-*)
    # In a process group of its own, so that interrupts aren't ignored in it.
    set -m
    (
      "$@"
      echo $? > "$BESIDE/status"
    ) < /dev/null > "$BESIDE/output" 2>&1 &
    echo $! > "$BESIDE/pid"
    echo "goes on beside the others"
    ;;
  *)
    export RUST_TEST_THREADS="$OTHERS"
    exec "$@"
    ;;
esac
