#!/usr/bin/env bash
# Builds haul-mpi for Open MPI and for MPICH, runs its own tests and those of tests/mpi.py. Reports what can't be installed.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
crate=crates/haul-mpi
install() { apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }
libclang() { compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null || compgen -G '/usr/lib/*/libclang*.so*' >/dev/null; }
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  missing=()
  command -v mpicc.openmpi >/dev/null || missing+=(openmpi-bin libopenmpi-dev)
  command -v mpicc.mpich >/dev/null || missing+=(mpich libmpich-dev)
  libclang || missing+=(libclang-dev)
  PATH=$PATH:/usr/sbin command -v slurmctld >/dev/null || missing+=(slurm-wlm munge)
  PATH=$PATH:/usr/sbin command -v setfacl >/dev/null || missing+=(acl)
  [ ${#missing[@]} = 0 ] || { apt-get update -qq && install "${missing[@]}"; } || echo "not all of ${missing[*]} could be installed"
fi
built=()
for make in openmpi mpich; do
  command -v "mpicc.$make" >/dev/null || { echo "skipped: haul-mpi on $make, which could not be installed"; continue; }
  libclang || { echo "skipped: haul-mpi, which needs libclang to be built"; break; }
  # A rebuild wouldn't notice another MPI otherwise.
  cargo clean --quiet --manifest-path $crate/Cargo.toml -p mpi-sys
  MPICC=mpicc.$make cargo build --quiet --locked --manifest-path $crate/Cargo.toml
  cp "$CARGO_TARGET_DIR/debug/haul-mpi" "$CARGO_TARGET_DIR/haul-mpi.$make"
  built+=("$make")
done
[ ${#built[@]} != 0 ] || exit 0
cargo fmt --manifest-path $crate/Cargo.toml --check
cargo clippy --quiet --locked --manifest-path $crate/Cargo.toml --all-targets -- -D warnings
cargo test --quiet --locked --manifest-path $crate/Cargo.toml
if command -v cargo-deny >/dev/null; then cargo deny --manifest-path $crate/Cargo.toml --config deny.toml check licenses bans sources; fi
# Files that are installed with it.
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
make -s install-mpi DESTDIR="$root" PREFIX=/usr MPI_BIN="$CARGO_TARGET_DIR/haul-mpi.${built[0]}"
for file in bin/haul-mpi share/man/man1/haul-mpi.1 share/man/man1/haul-mpi-sync.1 share/bash-completion/completions/haul-mpi \
  share/zsh/site-functions/_haul-mpi share/fish/vendor_completions.d/haul-mpi.fish; do
  [ -s "$root/usr/$file" ] || { echo "make install-mpi: no $file"; exit 1; }
done
bash -n "$root/usr/share/bash-completion/completions/haul-mpi"
make -s uninstall DESTDIR="$root" PREFIX=/usr
[ -z "$(find "$root/usr" -type f)" ] || { echo "make uninstall leaves $(find "$root/usr" -type f | head -3)"; exit 1; }
python3 tests/mpi.py "$CARGO_TARGET_DIR" "${built[@]}"
