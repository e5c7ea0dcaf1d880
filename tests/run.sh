#!/usr/bin/env bash
# Runs every test of the workspace and of the benchmark's own code, and closes with one line of counts. Exit status: 0 only if
# all passed.
set -u
cd "$(dirname "$0")/.."
log=target/test.log
mkdir -p target
: > target/skipped.txt
export HAUL_TEST_TOOLS="$PWD/target/tools/bin"
cargo test --workspace --locked --no-fail-fast 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
without=0
if command -v python3 >/dev/null; then
  python3 bench/tests 2>&1 | tee -a "$log"
  [ "${PIPESTATUS[0]}" -eq 0 ] || status=1
else
  echo "Python is not installed: the tests of the benchmark's own code are skipped"
  without=1
fi
sum() { grep -oE "[0-9]+ $1" "$log" | awk '{n += $1} END {print n + 0}'; }
skipped=$(wc -l < target/skipped.txt)
# A test that skipped itself returned normally, so the runner counted it as passed.
passed=$(($(sum passed) - skipped))
failed=$(sum failed)
skipped=$((skipped + without))
[ "$status" -eq 0 ] || [ "$failed" -gt 0 ] || failed=1
[ ! -s target/skipped.txt ] || { echo; sort target/skipped.txt | uniq -c; }
echo
echo "haul: $passed passed, $failed failed, $skipped skipped"
[ "$status" -eq 0 ]
