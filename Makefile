# `make test` passes the tests on a fresh machine; `make bench` compares with peers. See README.md.
TOOLS := $(CURDIR)/target/tools/bin
RCLONE := github.com/rclone/rclone@v1.75.1
MINIO := github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c

.PHONY: test tools lint bench

# Installs what the tests need, runs all of them, closes with the counts.
test: tools
	@bash tests/run.sh

# Peers that the tests run against, built from source; without Go the tests that need them are skipped and say so.
tools:
	@mkdir -p $(TOOLS)
	@if command -v go >/dev/null; then \
	  [ -x $(TOOLS)/rclone ] || GOBIN=$(TOOLS) go install $(RCLONE); \
	  [ -x $(TOOLS)/minio ] || GOBIN=$(TOOLS) go install $(MINIO); \
	else echo "Go is not installed: the tests against rclone and MinIO will be skipped"; fi

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	@if command -v cargo-deny >/dev/null; then cargo deny --all-features check bans licenses sources; \
	else echo "cargo-deny is not installed: dependencies were not checked"; fi

# ONLY=case[,case] picks cases; QUICK=1 runs each at a reduced size.
bench: tools
	@python3 bench/bench.py $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))
