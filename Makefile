# Copyright The Ordinal Authors.
# SPDX-License-Identifier: Apache-2.0

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# One setting for everything, so that every target shares one build cache.
export CGO_ENABLED := 0

# Seconds over which `make bench-up` measures CPU.
BENCH_IDLE ?= 300

# Flags of `make bench`, such as -scale 0.1 -rounds 3.
BENCH ?=

# Flags of `make conformance`, such as -only disruption.
CONFORMANCE ?=

# Flags of `make test-faults`, such as -seed 1 -kills 20.
export FAULTS ?=

# Flags of `make test-docs`, such as -only how-to/canary.
DOCS ?=

# Flags of `make load`, such as -sets 200 -duration 1m.
LOAD ?=

# Flags of `make profile`, which are those of `make bench`.
PROFILE ?= -only ordered,rolling,restart

# Which random worlds `make test-differential` compares, and how many.
SEED ?= 1
WORLDS ?= 20000

# How many histories `make test-histories` goes through.
HISTORIES ?= 10000

# How long `make fuzz` runs each fuzz test.
export FUZZTIME ?= 20s

.PHONY: help deps build image release helm generate demo down test test-race alerts test-differential test-histories test-faults test-foreign test-docs conformance conformance-go fuzz e2e lint vuln bench load bench-plan bench-latency bench-up profile clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## install the system packages that containers need (runc, CNI plugins, nftables, …)
	@scripts/deps

build: ## build bin/: ordinal, containerd, its shim and the two images (first time: about 15 minutes)
	@scripts/deps --go-only
	@scripts/build

image: ## make the controller's image for linux/amd64 and arm64, without Docker: bin/ordinal-controller-image.tar
	@scripts/image

release: ## make bin/release/: archives, image, chart, manifests, bills of materials, checksums: VERSION=v1.2.3
	@scripts/deps --go-only
	@scripts/release

helm: ## build bin/helm, with which the chart is tested and packaged
	@scripts/helm version --short

generate: ## make what follows from the code: deep copies, the definition of policies, the reference in docs/
	@scripts/generate

demo: deps build ## start a one-machine cluster and show a StatefulSet at work in it
	@scripts/demo

down: ## stop the cluster that `make demo` started (its data stays)
	@scripts/as-root bin/ordinal down

test: ## run every test that this machine can run, and say which it cannot
	@scripts/test

test-race: ## run the tests of our own packages under the race detector
	@scripts/test race

alerts: ## check the alerts and the dashboard against the metrics, with promtool
	@scripts/test alerts

test-differential: ## compare with kube-controller-manager's controller: SEED=1 WORLDS=20000
	@go test -buildvcs=false -c -o bin/.differential ./test/differential
	@bin/.differential -test.v -test.timeout 0 -seed $(SEED) -worlds $(WORLDS)

test-histories: ## random histories of a model cluster, with every fault: SEED=1 HISTORIES=10000
	@go test -buildvcs=false -c -o bin/.histories ./test/histories
	@bin/.histories -test.v -test.run 'TestHistories$$' -test.timeout 0 -seed $(SEED) -histories $(HISTORIES)

conformance-go: ## run the tests that Kubernetes has for its own StatefulSet controller against ours
	@go test -buildvcs=false -count=1 -v ./test/conformance

conformance: deps build ## run what Kubernetes' own end-to-end suite has on StatefulSets: real pods, about 20 minutes
	@scripts/conformance $(CONFORMANCE)

test-faults: deps build ## break clusters while sets change, real pods and simulated nodes: FAULTS='-seed 1 -kills 200'
	@scripts/test faults

test-foreign: deps build ## go through an installation in clusters that are not ours: Kubernetes' own programs, new and old
	@scripts/foreign

test-docs: deps build ## run every command that the documents show, and compare what it prints: DOCS='-only how-to'
	@go build -buildvcs=false -o bin/.test-docs ./test/docs/run
	@scripts/as-root bin/.test-docs $(DOCS)

fuzz: ## run each fuzz test for FUZZTIME=20s; what fails is kept in testdata/fuzz
	@scripts/fuzz

e2e: deps build ## run the end-to-end tests: real pods in a cluster of their own
	@scripts/test e2e

lint: ## check format, imports, complexity, comments, the usual slips, and what `make generate` makes
	@scripts/lint

vuln: ## look for known vulnerabilities in what our binaries call (needs the internet, or GOVULNDB)
	@scripts/vuln

bench: build ## compare with kube-controller-manager's controller on the same work: BENCH='-scale 0.1 -rounds 3'
	@go build -buildvcs=false -ldflags='-s -w' -o bin/.bench-incumbent ./bench/controllers/incumbent
	@go build -buildvcs=false -o bin/.bench-controllers ./bench/controllers
	@bin/.bench-controllers -json bin/bench.json -svg bin/bench.svg $(BENCH)

profile: build ## keep CPU and memory profiles of the controller and the API server: PROFILE='-only ordered -scale 0.1'
	@scripts/profile $(PROFILE)

load: build ## 2,000 sets, 10,000 simulated pods, 20 changes a second for 10 minutes: LOAD='-sets 200 -duration 1m'
	@go build -buildvcs=false -o bin/.bench-load ./bench/load
	@bin/.bench-load -json bin/load.json $(LOAD)

bench-plan: ## measure the planner alone, and compare with bin/bench-plan.old
	@scripts/bench-plan

bench-latency: deps build ## measure from a ready pod to the next, beside kube-controller-manager, with real pods (about 7 minutes)
	@go build -buildvcs=false -ldflags='-s -w' -o bin/.bench-incumbent ./bench/controllers/incumbent
	@go build -buildvcs=false -o bin/.bench-up ./bench/up
	@scripts/as-root bin/.bench-up -rounds 5 -json bin/bench-latency.json

bench-up: deps build ## measure start-up stages, memory and idle CPU of a cluster (about 8 minutes)
	@go build -buildvcs=false -o bin/.bench-up ./bench/up
	@scripts/as-root bin/.bench-up -idle $(BENCH_IDLE)s

clean: ## delete what the build made (the Go build cache stays)
	rm -rf bin
