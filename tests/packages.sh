#!/usr/bin/env bash
# Builds the static binary and its packages (make packages), and checks that they run and are complete. Takes about ten minutes:
# `make test FULL=1` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."
missing() { echo "make packages: $1"; exit 1; }
make -s packages
bin="target/$(uname -m)-unknown-linux-musl/release/haul"
! readelf -d "$bin" 2>/dev/null | grep -q NEEDED || missing "the static binary needs libraries"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
# A root that holds nothing but haul: no library, no /etc, no /proc.
mkdir -p "$root/empty/from"
cp "$bin" "$root/empty/haul"
head -c 3000000 /dev/urandom > "$root/empty/from/file"
if [ "$(id -u)" = 0 ]; then inside=(chroot "$root/empty"); else inside=(unshare -r chroot "$root/empty"); fi
if "${inside[@]}" /haul version > "$root/version" 2>"$root/errors" || ! grep -q 'Operation not permitted' "$root/errors"; then
  grep -q -- '- commit: ' "$root/version" || missing "the static binary doesn't say what it is: $(cat "$root/errors")"
  "${inside[@]}" /haul copy /from /to || missing "the static binary doesn't copy where there is nothing else"
  cmp "$root/empty/from/file" "$root/empty/to/file"
else
  echo "skipped: the static binary in an empty root, which only root may enter here" | tee -a target/skipped.txt
fi
deb=$(ls target/packages/*.deb) rpm=$(ls target/packages/*.rpm)
wanted="usr/bin/haul usr/share/man/man1/haul.1 usr/share/bash-completion/completions/haul"
if command -v dpkg-deb > /dev/null; then
  dpkg-deb -x "$deb" "$root/deb"
  for file in $wanted; do [ -e "$root/deb/$file" ] || [ -e "$root/deb/$file.gz" ] || missing "$deb has no $file"; done
  cmp "$bin" "$root/deb/usr/bin/haul"
else
  echo "skipped: the contents of the .deb, without dpkg-deb" | tee -a target/skipped.txt
fi
if command -v rpm > /dev/null; then
  for file in $wanted; do rpm -qlp "$rpm" 2>/dev/null | grep -q "^/$file" || missing "$rpm has no $file"; done
else
  echo "skipped: the contents of the .rpm, without rpm" | tee -a target/skipped.txt
fi
