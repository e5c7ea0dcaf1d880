#!/usr/bin/env bash
# Runs every test of the workspace and of the benchmark's own code, lists the slowest (in target/slowest.txt too), and closes with
# one line of counts. Exit status: 0 only if all passed. HAUL_TEST_FULL=1 (make test FULL=1): all rounds, all keys.
set -u
cd "$(dirname "$0")/.."
log=target/test.log
mkdir -p target
: > target/skipped.txt
export HAUL_TEST_TOOLS="$PWD/target/tools/bin"
# Tests' labs are in memory if it has space and keeps xattrs: on a disk their many small files take half as long again. The
# stores' own tests stay on the disk; with all rounds all tests do.
roomy() { [ "$(df --output=avail -BG "$1" 2>/dev/null | tail -1 | tr -dc 0-9)0" -ge 80 ]; }
keeps() { python3 -c 'import os, sys, tempfile; file = tempfile.TemporaryFile(dir=sys.argv[1]); os.setxattr(file.fileno(), "user.x", b"")' "$1" 2>/dev/null; }
if [ -z "${HAUL_TEST_FULL:-}${HAUL_TEST_DIR:-}" ] && roomy /dev/shm && keeps /dev/shm; then export HAUL_TEST_DIR=/dev/shm; fi
# Most tests wait for servers, disks and timers more than they compute.
export RUST_TEST_THREADS="${RUST_TEST_THREADS:-$((3 * $(nproc)))}"
export OTHERS=$(((RUST_TEST_THREADS + 2) / 3)) BESIDE="$PWD/target/beside"
rm -rf "$BESIDE" && mkdir -p "$BESIDE"
trap '[ ! -e "$BESIDE/pid" ] || kill -- -"$(cat "$BESIDE/pid")"; exit 1' INT TERM
runner=(--config "target.'cfg(unix)'.runner = ['bash', '$PWD/tests/beside.sh']")
cargo "${runner[@]}" test --workspace --locked --no-fail-fast --lib --bins --tests -- -Z unstable-options --report-time 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
if [ -e "$BESIDE/pid" ]; then
  while kill -0 "$(cat "$BESIDE/pid")" 2>/dev/null; do sleep 1; done
  tee -a "$log" < "$BESIDE/output"
  [ "$(cat "$BESIDE/status")" = 0 ] || status=1
fi
trap - INT TERM
# On a busy machine a test may time out beside hundreds of others. So if only a few failed, they run once more by themselves, and
# those that pass then are reported as unsteady. Not after any other failure: the last line of each failed binary, and its exit status
# 101, must say that all of its tests ended.
count() { grep -cE "$1" "$2"; }
again=$(sed -nE 's/^test ([^ ]+) .*\.\.\. FAILED.*/\1/p' "$log" | sort)
unsteady=0
if [ "$status" -ne 0 ] && [ -n "$again" ] && [ "$(wc -l <<< "$again")" -le 3 ] && [ -z "$(uniq -d <<< "$again")" ]; then
  beside=0
  [ ! -e "$BESIDE/status" ] || [ "$(cat "$BESIDE/status")" = 0 ] || beside=1
  results=$(count '^test result: FAILED' "$log")
  if [ "$(count '^error: test failed, to rerun' "$log")" -eq $((results - beside)) ] &&
    [ "$(count 'process didn.t exit successfully: .*\(exit status: 101\)' "$log")" -eq "$(count 'process didn.t exit successfully' "$log")" ] &&
    { [ "$beside" -eq 0 ] || [ "$(cat "$BESIDE/status")" = 101 ]; } &&
    [ "$(count '^running [0-9]+ test' "$log")" -eq "$(count '^test result: ' "$log")" ]; then
    echo "once more, by themselves:" $again
    # shellcheck disable=SC2086 # Names of tests have no spaces.
    if cargo test --workspace --locked --lib --bins --tests -- --exact --test-threads=1 $again > target/again.log 2>&1 &&
      [ "$(count '^test .* ok$' target/again.log)" -eq "$(wc -l <<< "$again")" ]; then
      status=0 unsteady=$(wc -l <<< "$again")
    else
      grep -vE '^(running 0 tests|test result: ok. 0 passed.*|)$' target/again.log
    fi
  fi
fi
# Only where a comment of documentation has an example: else rustdoc would read each crate once more to find none.
for crate in $(grep -rlE '^ *//[/!] *```' crates/*/src | cut -d/ -f2 | sort -u); do
  cargo test --package "$crate" --locked --no-fail-fast --doc 2>&1 | tee -a "$log"
  [ "${PIPESTATUS[0]}" -eq 0 ] || status=1
done
[ "$status" -ne 0 ] || bash tests/install.sh || status=1
# The static binary and the packages take ten minutes.
[ "$status" -ne 0 ] || [ -z "${HAUL_TEST_FULL:-}" ] || bash tests/packages.sh || status=1
without=0
if command -v python3 >/dev/null; then
  python3 bench/tests 2>&1 | tee -a "$log"
  [ "${PIPESTATUS[0]}" -eq 0 ] || status=1
else
  echo "Python is not installed: the tests of the benchmark's own code are skipped"
  without=1
fi
sum() { grep -E '^(test result|bench): ' "$log" | grep -oE "[0-9]+ $1" | awk '{n += $1} END {print n + 0}'; }
skipped=$(wc -l < target/skipped.txt)
# A test that skipped itself returned normally, so the runner counted it as passed.
passed=$(($(sum passed) - skipped + unsteady))
failed=$(($(sum failed) - unsteady))
skipped=$((skipped + without))
[ "$status" -eq 0 ] || [ "$failed" -gt 0 ] || failed=1
[ ! -s target/skipped.txt ] || { echo; sort target/skipped.txt | uniq -c; }
sed -nE 's/^test ([^ ]+) .*<([0-9.]+)s>$/\2 s  \1/p' "$log" | sort -rn | head -20 > target/slowest.txt
echo
echo "The slowest tests:"
cat target/slowest.txt
echo
more=""
[ "$unsteady" -eq 0 ] || more=", $unsteady of them once more by themselves: $(tr '\n' ' ' <<< "$again")"
echo "haul: $passed passed, $failed failed, $skipped skipped$more"
[ "$status" -eq 0 ]
