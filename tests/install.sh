#!/usr/bin/env bash
# Installs the tests' build into an empty directory, checks that everything exists and works, and uninstalls it. `make test`
# calls it.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
make -s install DESTDIR="$root" PREFIX=/usr BIN="${BIN:-target/debug/haul}"
missing() { echo "make install: $1"; exit 1; }
for file in bin/haul share/man/man1/haul.1 share/man/man1/haul-copy.1 share/man/man1/haul-snapshot-push.1 \
  share/bash-completion/completions/haul share/zsh/site-functions/_haul share/fish/vendor_completions.d/haul.fish \
  share/doc/haul/LICENSE; do
  [ -s "$root/usr/$file" ] || missing "no $file"
done
[[ $("$root/usr/bin/haul" version) == *"- commit: "* ]] || missing "haul version names no commit"
bash -n "$root/usr/share/bash-completion/completions/haul"
make -s modulefiles DESTDIR="$root" PREFIX=/sw/haul MODULES=/modules
for file in "$root"/modules/haul/*; do
  grep -q '/sw/haul' "$file" || missing "$file doesn't say where haul is"
  ! grep -q '@' "$file" || missing "$file has a place that isn't filled in"
done
make -s uninstall DESTDIR="$root" PREFIX=/usr
[ -z "$(find "$root/usr" -type f)" ] || missing "make uninstall leaves $(find "$root/usr" -type f | head -3)"
