# Every target runs with Go and make alone; `kernels` also needs qemu and
# Debian's package tools, and says so.

GO       ?= go
CORE      = ./...
PLATFORMS = linux/arm64 linux/386 darwin/arm64 windows/amd64
ARCH     ?= amd64
KERNELS  ?= $(if $(filter arm64,$(ARCH)),6.12,6.1 6.12)
PRODUCT   = ./... ./cmd/... ./sqlitevfs/... ./sqlitevfs/backup/... ./replica/... ./replica/cmd/... ./metrics/... ./ufile/pebblevfs/... ./examples/tenants/...
RINGS     = ./features ./reactor ./ufile/... ./unet/... ./uring ./watch/... ./internal/probe

.PHONY: help test short lint fmt vet staticcheck cross bench bench-once forbidden kernels disabled environments scenarios fuzz fuzz-brief vuln ci

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The packages that `make test` tests, the slow ones first: the last one does not then keep one
# processor waiting. The race detector judges the libraries. The commands and the
# examples run without it: what they do with the libraries, the libraries' own tests do too. So do
# s3, whose requests minio-go makes, and abi, which has no function. Nightly has all with it.
SLOW   = ./replica ./unet/event ./ufile ./internal/testing/stress ./sqlitevfs/backup ./appendlog ./sqlitevfs ./unet
TESTED = $(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' work
RACED ?= $(SLOW) $$($(TESTED) | grep -vE '/ringside/(cmd|replica/(cmd|bench)|referees|metrics|ufile/pebblevfs|internal/(abi|overlay)|internal/testing/(lint|vm)|examples)(/|$$)|/backup/s3$$')
PLAIN ?= ./cmd/ringside ./internal/abi ./internal/overlay ./replica/cmd/... ./cmd/... ./examples/... ./examples/tenants ./sqlitevfs/backup/s3

# The tests that compile the standard library anew, changed or for another system, and so take
# half a minute of processor time: adapters has them.
BUILDS = TestProgram|TestUnchangedElsewhere|TestCommandsOfREADME

# Vet is part of lint, and test programs need no debug information.
QUICK = -vet=off -ldflags=-w

# The compiler collects its garbage less often, which saves a sixth of its processor time.
COMPILER = -toolexec='env GOGC=400'

# What `make test` tests without the race detector is compiled when processors are idle: the tests
# of replica begin sooner, which wait for elections as long as all others compute.
LATER = -toolexec='nice env GOGC=400'

# Each test bounds what it waits for; beside other programs a package takes longer than ten minutes.
LIMIT = -timeout 15m

# The race detector does not judge SQLite's own code, compiled to Go: with it the tests of
# sqlitevfs take two to three times the processor time. Nor does it judge the simulated disk of
# the tests. SQLite is last: a test asks for it, and Go records the last such flag only. (A package
# that synchronizes by sync/atomic cannot be left out: what it orders would be reported as races.)
UNRACED = -gcflags=github.com/ringside-io/ringside/internal/testing/powercut=-race=false -gcflags=github.com/ncruces/go-sqlite3-wasm/...=-race=false

# A program with the race detector sleeps for a second when it ends, so that
# goroutines which go on may show something; TestMain lets none go on.
test nightly: export GORACE ?= atexit_sleep_ms=0
# Both parts at the same time, six packages in all: together the tests wait as long as they compute.
test: ## the tests, the libraries' with the race detector where there is a C compiler; adapters, referees, powercuts and nightly have more
	@race='-race $(UNRACED)'; if ! why=$$($(GO) build -race runtime/cgo 2>&1); then race=; \
	  echo "make test: the race detector is left out, which needs a C compiler: $$(echo "$$why" | tail -n 1)"; fi; \
	set -x; $(if $(PLAIN),$(GO) test -p 2 $(LATER) $(QUICK) $(LIMIT) -skip '^($(BUILDS))$$' $(PLAIN) & plain=$$!;) \
	$(GO) test -p 4 $(COMPILER) $$race $(QUICK) $(LIMIT) $(RACED); failed=$$?; \
	{ $(if $(PLAIN),wait $$plain || failed=1; )exit $$failed; } 2>/dev/null

.PHONY: adapters
adapters: ## the tests that compile longer than they run: of what adapts to pebble, Prometheus and OpenTelemetry, of builds of unchanged programs; and a test at which the race detector reports package raft
	$(GO) test $(QUICK) ./metrics/... ./ufile/pebblevfs
	$(GO) test $(QUICK) -run '^($(BUILDS))$$' ./internal/overlay ./cmd/ringside
	$(GO) test $(QUICK) -run '^TestAddresses$$' ./replica

short: ## the same without the race detector, and the long ones shortened
	$(GO) test -short work

lint: fmt vet staticcheck house ## gofmt, vet, staticcheck, and the tests of names, imports, exported surface and texts

.PHONY: house
house:
	$(GO) test $(QUICK) ./internal/testing/lint

fmt:
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "not gofmt-ed:"; echo "$$out"; exit 1; fi

vet:
	$(GO) vet work
	GOOS=darwin GOARCH=arm64 $(GO) vet work
	GOOS=windows GOARCH=amd64 $(GO) vet work

staticcheck:
	cd cmd && $(GO) tool staticcheck ../... ../referees/... ../sqlitevfs/... ../sqlitevfs/backup/... ../replica/... ../replica/cmd/... ../metrics/... ../ufile/pebblevfs/... ../examples/tenants/... ./...

cross: ## compile for every platform that must compile, and link the command; of 386 the core only
	@set -e; for p in $(PLATFORMS); do echo "build $$p"; \
	  export CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/}; \
	  if [ $$p = linux/386 ]; then $(GO) list -export $(CORE) >/dev/null; \
	  else $(GO) list -export $(PRODUCT) >/dev/null; $(GO) build -ldflags=-w -o /dev/null ./cmd/ringside; fi; \
	  case $$p in linux/*) $(GO) vet ./uring ./features ./reactor ./ufile/... ./unet/... ./watch/...;; esac; \
	done # lint vets for the others

# Programs of other architectures, by the user-mode emulators of Debian's qemu-user. An amd64
# kernel runs those of 386 itself; in qemu-i386 7.2 Go programs with several threads crash.
FOREIGN ?= 386:i386 riscv64:riscv64 ppc64le:ppc64le s390x:s390x
.PHONY: encodings
encodings: ## vet for, and run the encodings on, architectures that compile: 386, riscv64, ppc64le, s390x (big-endian); needs qemu-user
	@set -e; for p in $(FOREIGN); do arch=$${p%:*} qemu=qemu-$${p#*:}; echo "encodings $$arch"; \
	  export GOOS=linux GOARCH=$$arch CGO_ENABLED=0; $(GO) vet ./uring ./features ./reactor ./ufile/... ./unet/... ./watch/... ./appendlog ./internal/...; \
	  if [ $$arch = 386 ] && [ "$$($(GO) env GOHOSTARCH)" = amd64 ]; then qemu=; fi; \
	  [ -z "$$qemu" ] || command -v $$qemu >/dev/null || { echo "SKIP $$arch: needs $$qemu: apt-get install --no-install-recommends qemu-user"; continue; }; \
	  $(GO) test -vet=off -ldflags=-w $${qemu:+-exec $$qemu} -count=1 -short ./internal/abi ./internal/sys; \
	  $(GO) test -vet=off -ldflags=-w $${qemu:+-exec $$qemu} -count=1 -short -run 'Golden|Ledger|SQE|Sockaddr|ArrayPlace|Msg|Siginfo|Flags' ./uring; done

bench: ## the main job: measure this machine
	$(GO) run ./cmd/ringside bench

.PHONY: peers
peers: ## vet and test the command's engines of other projects, which its default build leaves out
	$(GO) vet -tags peers ./cmd/...
	$(GO) test -tags peers $(QUICK) ./cmd/internal/echo ./cmd/internal/peers/ycsb ./cmd/internal/sqlitebench

# Linking the programs of the packages without benchmarks would take most of the time.
bench-once: ## run each Go benchmark once, to prove that it works
	$(GO) test $(QUICK) -run '^$$' -bench . -benchtime 1x $$(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -n 1 dirname | sort -u)

forbidden: ## all tests where a seccomp filter refuses io_uring, those of what opens rings also where it is missing
	$(GO) run ./internal/testing/seccomp -errno EPERM -- $(GO) test $(QUICK) -short -count=1 work
	$(GO) run ./internal/testing/seccomp -errno ENOSYS -- $(GO) test $(QUICK) -short -count=1 $(RINGS)

.PHONY: forbidden-brief
forbidden-brief: ## the tests of what opens rings where a seccomp filter refuses io_uring
	$(GO) run ./internal/testing/seccomp -errno EPERM -- $(GO) test $(QUICK) -short -count=1 $(RINGS) ./appendlog ./sqlitevfs ./cmd/ringside

# The release after the one in go.mod: "as package os and net" means those of the toolchain that
# builds. The module proxy serves it.
NEWEST  ?= go1.27.3
MIRRORS ?= ./reactor ./ufile ./unet ./unet/event ./unet/ktls ./sqlitevfs
.PHONY: newest
newest: ## short tests of the packages that mirror the standard library, with the newest release of Go (NEWEST)
	GOTOOLCHAIN=$(NEWEST) $(GO) test $(QUICK) -short $(MIRRORS)

kernels: ## the core's tests on older kernels, in a virtual machine; ARCH=arm64 for Linux 6.12 on arm64
	$(GO) test $(QUICK) ./internal/testing/vm/...
	$(GO) run ./internal/testing/vm/lane -arch $(ARCH) -timeout 30m $(addprefix -kernel ,$(KERNELS)) -tool openssl -tool curl $(LANE)

# What an emulated arm64 answers in a minute: encodings, probes, a real ring.
.PHONY: kernels-brief
kernels-brief: ARCH = arm64
kernels-brief: LANE = $(addprefix -pkg ,./internal/abi ./internal/sys ./features ./uring)
kernels-brief: kernels

# What decides by the kernel that runs, on rings of older kernels. Emulated, ufile, unet and
# event take ten minutes more: nightly has them.
.PHONY: kernels-rings
kernels-rings: LANE = $(addprefix -pkg ,./features ./uring ./reactor ./watch)
kernels-rings: kernels

DISABLED = $(GO) run ./internal/testing/vm/lane -kernel 6.12 -env RINGSIDE_MUST= -sysctl kernel.io_uring_disabled
disabled: ## the core's tests where the sysctl forbids io_uring to all, and to users, in virtual machines
	$(DISABLED)=2
	$(DISABLED)=1 -uid 1000

STATES ?= 100
.PHONY: powercuts
powercuts: ## STATES (100) power cuts of each workload below real file systems; needs root, FUSE, loop devices, mkfs
	$(GO) test -count=1 -timeout 0 ./referees/blockdisk -states $(STATES)

REFEREES ?= all
SUITES   ?= ./referees/...
.PHONY: referees
referees: ## the tests that other projects wrote, on ufile and unet; REFEREES=brief for what CI runs
	RINGSIDE_REFEREES=$(REFEREES) $(GO) test $(QUICK) -count=1 -v -timeout 0 $(SUITES)

.PHONY: apps
apps: ## the tests of programs built by "ringside build", beside go build; REFEREES=brief for what CI runs
	RINGSIDE_REFEREES=$(REFEREES) $(GO) test $(QUICK) -count=1 -v -timeout 0 ./referees/suites -run TestPrograms

.PHONY: std-bench
std-bench: ## the benchmarks of os, net and net/http on a build by "ringside test", beside go test's
	RINGSIDE_REFEREES=bench $(GO) test $(QUICK) -count=1 -v -timeout 0 ./referees/suites -run TestGoBenchmarks

scenarios: ## a million operations of seeded scenarios, with the race detector; test has a tenth
	$(GO) test -race -count=1 -timeout 60m ./internal/testing/stress -run 'TestScenarios$$' -long

CHAOS ?= 20m
.PHONY: chaos
chaos: ## the tests of ./replica and ./sqlitevfs in their full sizes, and seeds of faults on three machines for CHAOS (20m), with a continuous backup
	$(GO) test -overlay=replica/testdata/backup/overlay.json -count=1 -timeout 0 ./replica -long $(CHAOS)
	$(GO) test -count=1 -timeout 0 ./sqlitevfs -long
	$(GO) test -count=1 -timeout 60m ./sqlitevfs/backup -long
	$(GO) test -count=1 -timeout 0 ./replica/cmd/... -run 'TestBackupUnderFaults$$' -long $(CHAOS)

STORES ?= 2m
.PHONY: stores
stores: ## backups to a real S3 server, which the module proxy serves, with faults; a cluster's for STORES (2m)
	RINGSIDE_REFEREES=all $(GO) test $(QUICK) -count=1 -v -timeout 30m ./sqlitevfs/backup/s3 -run TestServer
	RINGSIDE_REFEREES=all $(GO) test $(QUICK) -count=1 -v -timeout 60m ./replica/cmd/ringside-replica -run OnServer -long $(STORES)

.PHONY: nightly
nightly: export RINGSIDE_LONG ?= 1
nightly: ## what is too long for each change, and what a release needs
	$(MAKE) test RACED='$$($(GO) list work)' PLAIN=./cmd/ringside
	$(MAKE) lint cross bench-once peers
	$(MAKE) scenarios chaos powercuts
	$(MAKE) forbidden environments unprivileged disabled
	$(MAKE) newest fuzz
	$(MAKE) referees stores kernels encodings
	RINGSIDE_REFEREES_TASKS=16 $(MAKE) referees REFEREES=brief SUITES='./referees/suites -run TestGoOS'
	$(MAKE) kernels ARCH=arm64
	$(MAKE) std-bench
	$(MAKE) drawn # last: it wants the machine for itself

DRAWN ?= 50
.PHONY: drawn
drawn: ## DRAWN (50) cells of the benchmarks, drawn at random; a cell that loses is an open defect
	$(GO) run ./cmd/ringside bench --drawn $(DRAWN)

.PHONY: unprivileged
unprivileged: export GORACE ?= atexit_sleep_ms=0
unprivileged: ## all tests as a user without privileges, in user and network namespaces; with UNMAPPED=1 as nobody there
	scripts/unprivileged -race -vet=off -timeout 900s work

environments: ## what probe says under seccomp, io_uring_disabled and a low memlock limit
	.ci/environments

FUZZTIME ?= 10s
fuzz: ## each fuzzer of all modules for FUZZTIME (10s)
	scripts/fuzz $(FUZZTIME)

fuzz-brief: ## each for a second
	scripts/fuzz 1s

# All at once, because CI has 15 minutes in all.
DECODERTIME ?= 60s
fuzz-decoders: ## the fuzzers of what comes from outside for DECODERTIME (60s) each, side by side
	scripts/fuzz decoders $(DECODERTIME)

VULNDB ?= https://vuln.go.dev
vuln: ## known vulnerabilities in what all modules use; reads VULNDB over the network
	@set -e; for m in . cmd referees replica replica/cmd sqlitevfs sqlitevfs/backup metrics ufile/pebblevfs examples/tenants; do echo "$$m:"; \
	  $(GO) run -C $$m golang.org/x/vuln/cmd/govulncheck@v1.1.4 -db $(VULNDB) -test ./...; done

PREFIX  ?= /usr/local
.PHONY: install
install: ## the command, manual pages and shell completions below PREFIX (/usr/local) in DESTDIR
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' -o $(DESTDIR)$(PREFIX)/bin/ringside ./cmd/ringside
	$(DESTDIR)$(PREFIX)/bin/ringside man $(DESTDIR)$(PREFIX)/share/man/man1
	mkdir -p $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions \
	  $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(DESTDIR)$(PREFIX)/bin/ringside completion bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/ringside
	$(DESTDIR)$(PREFIX)/bin/ringside completion zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_ringside
	$(DESTDIR)$(PREFIX)/bin/ringside completion fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/ringside.fish

ci: ## what CI runs
	.ci/run
