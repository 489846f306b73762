# Everyday commands. `.ci/run` is everything that must pass.

.DEFAULT_GOAL := help
PYTHON ?= python3
.PHONY: help check test ci build release fmt generate bench fuzz demo wheels

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

check: ## before each commit, under 3 minutes: format, lint, buf, unit tests, race of server, client and engine
	@.ci/run formatted linted buf_checks unit_tests raced_core

test: ## all tests but those that take long
	go test ./...

ci: ## everything that must pass, up to 12 minutes
	@.ci/run

build: ## build ./ckd, a static binary
	CGO_ENABLED=0 go build -trimpath -o ckd ./cmd/ckd

wheels: ## build Python wheels with the program inside into ./dist, for every platform, in minutes; PLATFORMS=linux-amd64 for one, VERSION=1.2.3 sets their version, PROGRAMS=dist takes programs of there
	$(PYTHON) python/wheels.py --out $(or $(DIST),dist) $(if $(VERSION),--version $(VERSION)) $(if $(PROGRAMS),--programs $(PROGRAMS)) $(foreach p,$(PLATFORMS),--platform $(subst -,/,$(p)))

release: ## build images, binaries, SBOM, chart and wheels of the tag at HEAD into dist/
	@.ci/release

fmt: ## format Go and proto files
	gofmt -w .
	go tool -modfile=tools/go.mod buf format -w

generate: ## renew stubs, schemas, tables of the docs, assembly and the chart's copies
	go tool -modfile=tools/go.mod buf generate
	go generate ./...

bench: ## the tables of BENCHMARKS.md, on a machine that does nothing else
	go run ./bench/speed

fuzz: ## fuzz every target for FUZZTIME (3s)
	@.ci/run fuzz

demo: ## stream a real recording through a daemon and show what comes back
	go run ./cmd/ckd demo
