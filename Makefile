# `make test` passes the tests on a fresh machine; `make bench` compares with peers. See README.md.
TOOLS := $(CURDIR)/target/tools/bin
RCLONE := github.com/rclone/rclone@v1.75.1
DVC := dvc==3.67.1 dvc-s3==3.3.0
# The last of DVC 2, and what it needs to be older.
DVC2 := dvc==2.58.2 'pathspec<0.12'
MINIO := github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c
VERSITYGW := github.com/versity/versitygw/cmd/versitygw@v1.8.0
MOTO := 'moto[server]==5.2.5' boto3==1.44.5
MVN_COPY := org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DincludeScope=runtime

.PHONY: test tools lint bench

# Installs what the tests need, runs all of them, closes with the counts.
test: tools
	@bash tests/run.sh

# Peers that the tests run against: built from source with Go, from PyPI in an environment of their own, from Maven. Without Go,
# Python, Java or a network the tests that need them are skipped and say so.
tools:
	@mkdir -p $(TOOLS)
	@if command -v go >/dev/null; then \
	  [ -x $(TOOLS)/rclone ] || GOBIN=$(TOOLS) go install $(RCLONE) || echo "rclone could not be installed"; \
	  [ -x $(TOOLS)/minio ] || GOBIN=$(TOOLS) go install $(MINIO) || echo "MinIO could not be installed"; \
	  [ -x $(TOOLS)/versitygw ] || GOBIN=$(TOOLS) go install $(VERSITYGW) || echo "versitygw could not be installed"; \
	else echo "Go is not installed: the tests against rclone, MinIO and versitygw will be skipped"; fi
	@if command -v python3 >/dev/null; then \
	  [ -x $(TOOLS)/../dvc/bin/dvc ] || { python3 -m venv $(TOOLS)/../dvc && $(TOOLS)/../dvc/bin/pip install -q --retries 1 $(DVC); } \
	    || { rm -rf $(TOOLS)/../dvc; echo "DVC could not be installed: the tests against it will be skipped"; }; \
	  [ -x $(TOOLS)/../dvc2/bin/dvc2 ] || { python3 -m venv $(TOOLS)/../dvc2 && $(TOOLS)/../dvc2/bin/pip install -q --retries 1 $(DVC2) \
	    && ln -sf dvc $(TOOLS)/../dvc2/bin/dvc2; } \
	    || { rm -rf $(TOOLS)/../dvc2; echo "DVC 2 could not be installed: the tests against it will be skipped"; }; \
	  [ -x $(TOOLS)/../moto_server/bin/moto_server ] || { python3 -m venv $(TOOLS)/../moto_server \
	    && $(TOOLS)/../moto_server/bin/pip install -q --retries 1 $(MOTO); } \
	    || { rm -rf $(TOOLS)/../moto_server; echo "moto and boto3 could not be installed: the tests against them will be skipped"; }; \
	else echo "Python is not installed: the tests against DVC, moto and boto3 will be skipped"; fi
	@if command -v java >/dev/null && command -v mvn >/dev/null; then \
	  [ -x $(TOOLS)/s3proxy ] || { mvn -B -q -f tests/s3proxy/pom.xml $(MVN_COPY) -DoutputDirectory=$(TOOLS)/../s3proxy \
	    && install -m 644 tests/s3proxy/logback.xml $(TOOLS)/../s3proxy && install -m 755 tests/s3proxy/run $(TOOLS)/s3proxy; } \
	    || echo "S3Proxy could not be installed: the tests against it will be skipped"; \
	else echo "Java or Maven is not installed: the tests against S3Proxy will be skipped"; fi

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
	@if command -v cargo-deny >/dev/null; then cargo deny --all-features check bans licenses sources; \
	else echo "cargo-deny is not installed: dependencies were not checked"; fi

# ONLY=case[,case] picks cases by name or beginning; QUICK=1 runs each at a reduced size; LIST=1 names them; DIR=folder holds the
# data; RUNS=n; PEERS=tool[,tool] leaves the other peers out; PROFILE=dev takes what the tests built, a slow haul.
bench: $(if $(LIST),,tools)
	@python3 bench/bench.py $(if $(LIST),--list) $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY)) \
	  $(if $(RUNS),--runs $(RUNS)) $(if $(DIR),--dir $(DIR)) $(if $(PEERS),--tools $(PEERS)) \
	  $(if $(PROFILE),--profile $(PROFILE))
