// SPDX-License-Identifier: MIT

//go:build linux

package suites

import (
	"testing"
	"time"
)

// These are Go's own packages: the tests of os and net and of packages built on net.
var (
	goOS = suite{
		name: "os", pkgs: []string{"os"}, args: []string{"-test.short"},
		judges: "ufile", limit: 2 * time.Minute, brief: allModes, slow: "^TestRoot(Multi(Link|Rename)|Chtimes|Mkdir)$",
	}
	goNet = suite{
		name: "net", pkgs: []string{"net"}, args: []string{"-test.short"},
		judges: "unet", limit: 2 * time.Minute, brief: netModes,
	}
	goHTTP = suite{
		name: "net/http", pkgs: []string{"net/http", "net/http/httptest", "net/http/httputil"}, args: []string{"-test.short"},
		judges: "unet", limit: 3 * time.Minute, brief: justRing, few: 1,
	}
	goTLS = suite{
		name: "crypto/tls", pkgs: []string{"crypto/tls"}, args: []string{"-test.short"},
		judges: "unet", limit: 3 * time.Minute, brief: justRing,
	}
	goRPC = suite{
		name: "net/rpc", pkgs: []string{"net/rpc", "net/smtp"}, args: []string{"-test.short"},
		judges: "unet", limit: time.Minute,
	}
)

// These are other projects that move data through net.
var (
	grpc = suite{
		name: "grpc", module: "google.golang.org/grpc@v1.76.0",
		pkgs:   []string{"./internal/transport", "./test", "."},
		judges: "unet", limit: 5 * time.Minute, brief: justRing, few: 1,
	}
	xnet = suite{
		name: "x/net", module: "golang.org/x/net@v0.62.0",
		pkgs:   []string{"./http2", "./nettest", "./websocket", "./netutil", "./proxy"},
		judges: "unet", limit: 3 * time.Minute, brief: justRing, few: 2, slow: "^TestIssue20704Race$",
	}
	raft = suite{
		name: "raft", module: "github.com/hashicorp/raft@v1.7.3",
		pkgs: []string{"."}, args: []string{"-test.run=^Test(Network|TCP)Transport"}, // the other tests use no sockets
		judges: "unet", limit: 2 * time.Minute, brief: justRing,
	}
	cmux = suite{
		name: "cmux", module: "github.com/soheilhy/cmux@v0.1.5",
		pkgs: []string{"."}, judges: "unet", limit: time.Minute,
	}
	websockets = []suite{
		{name: "gorilla/websocket", module: "github.com/gorilla/websocket@v1.5.3", pkgs: []string{"."}, judges: "unet", limit: time.Minute},
		{name: "coder/websocket", module: "github.com/coder/websocket@v1.8.14", pkgs: []string{"."}, judges: "unet", limit: 2 * time.Minute},
	}
	ssh = suite{
		name: "x/crypto/ssh", module: "golang.org/x/crypto@v0.53.0",
		pkgs: []string{"./ssh", "./ssh/agent", "./ssh/test"}, judges: "unet", limit: 2 * time.Minute,
	}
	muxes = []suite{
		{name: "yamux", module: "github.com/hashicorp/yamux@v0.1.2", pkgs: []string{"."}, judges: "unet", limit: 2 * time.Minute},
		{name: "smux", module: "github.com/xtaci/smux@v1.5.35", pkgs: []string{"."}, judges: "unet", limit: 2 * time.Minute},
	}
	fasthttp = suite{
		name: "fasthttp", module: "github.com/valyala/fasthttp@v1.58.0",
		pkgs: []string{".", "./fasthttputil"}, args: []string{"-test.short"}, judges: "unet", limit: 3 * time.Minute,
	}
)

// These are other projects that keep data in files.
var (
	pebble = suite{
		name: "pebble", module: "github.com/cockroachdb/pebble/v2@v2.1.7",
		pkgs: []string{"./vfs", "./wal", "./record", "./objstorage/objstorageprovider", "./sstable"}, args: []string{"-test.short"},
		judges: "ufile", limit: 5 * time.Minute, brief: justRing, few: 1,
	}
	// The other packages keep their database in memory, and take hours on few processors.
	pebbleDB = suite{
		name: "pebble database", module: pebble.module, pkgs: []string{"."},
		args: []string{"-test.short", "-test.run=^Test(BasicReads|IteratorErrors|FileCacheClockPro|IngestIdempotence|" +
			"IngestFileNumReuseCrash|CheckLevelsBasics|OpenAlreadyLocked|OpenCloseOpenClose|TwoWALReplayCorrupt|Peek|" +
			"MkdirAllAndSyncParents|OptionsParse)$"},
		judges: "ufile", limit: 5 * time.Minute,
	}
	bbolt = suite{
		name: "bbolt", module: "go.etcd.io/bbolt@v1.4.3",
		pkgs: []string{"."}, args: []string{"-test.short"}, judges: "ufile", limit: 3 * time.Minute,
	}
	goleveldb = suite{
		name: "goleveldb", module: "github.com/syndtr/goleveldb@v1.0.0",
		pkgs: []string{"./leveldb/storage"}, judges: "ufile", limit: 3 * time.Minute,
	}
	badger = suite{
		name: "badger", module: "github.com/dgraph-io/badger/v4@v4.8.0",
		pkgs: []string{"./table", "./y"}, args: []string{"-test.short"}, judges: "ufile", limit: 5 * time.Minute,
	}
	// All tests take five minutes in each mode. These are about badger's files: the value log, the
	// manifest, reopening.
	badgerDB = suite{
		name: "badger database", module: badger.module, pkgs: []string{"."},
		args:   []string{"-test.short", "-test.run=^Test(Value|DynamicValueThreshold|Manifest|Overlapping|Truncat|Read|Sync|Penultimate|Persist|Reopen)"},
		judges: "ufile", limit: 5 * time.Minute,
	}
	logs = []suite{
		{name: "raft snapshots", module: "github.com/hashicorp/raft@v1.7.3", pkgs: []string{"."}, args: []string{"-test.run=^Test(FileS|Discard)"}, judges: "ufile", limit: 2 * time.Minute},
		{name: "raft-wal", module: "github.com/hashicorp/raft-wal@v0.4.2", pkgs: []string{".", "./fs", "./segment"}, judges: "ufile", limit: 2 * time.Minute},
		{name: "tidwall/wal", module: "github.com/tidwall/wal@v1.1.8", pkgs: []string{"."}, judges: "ufile", limit: 2 * time.Minute},
	}
)

// all are the suites that may occur in the table of differences.
var all = append(append(append([]suite{
	goOS, goNet, goHTTP, goTLS, goRPC, grpc, xnet, raft, cmux, ssh, fasthttp, pebble, pebbleDB, bbolt, goleveldb, badger, badgerDB,
}, websockets...), muxes...), logs...)

// Promise: ufile/tests-go-s
func TestGoOS(t *testing.T) { judge(t, goOS) }

// Promise: unet/tests-go-s
func TestGoNet(t *testing.T) { judge(t, goNet) }

// Promise: unet/tests-go-s
func TestGoHTTP(t *testing.T) { judge(t, goHTTP) }

// Promise: unet/tests-go-s
func TestGoTLS(t *testing.T) { judge(t, goTLS) }

// Promise: unet/tests-go-s
func TestGoRPC(t *testing.T) { judge(t, goRPC) }

// Promise: unet/tests-go-s
func TestGRPC(t *testing.T) { judge(t, grpc) }

// Promise: unet/tests-go-s
func TestXNet(t *testing.T) { judge(t, xnet) }

// Promise: unet/tests-go-s
func TestRaft(t *testing.T) { judge(t, raft) }

// Promise: unet/tests-go-s
func TestCmux(t *testing.T) { judge(t, cmux) }

// Promise: unet/tests-go-s
func TestWebSockets(t *testing.T) { judgeEach(t, websockets) }

// Promise: unet/tests-go-s
func TestSSH(t *testing.T) { judge(t, ssh) }

// Promise: unet/tests-go-s
func TestMuxes(t *testing.T) { judgeEach(t, muxes) }

// Promise: unet/tests-go-s
func TestFastHTTP(t *testing.T) { judge(t, fasthttp) }

// Promise: ufile/tests-go-s
func TestPebble(t *testing.T) { judgeEach(t, []suite{pebble, pebbleDB}) }

// Promise: ufile/tests-go-s
func TestBbolt(t *testing.T) { judge(t, bbolt) }

// Promise: ufile/tests-go-s
func TestGoLevelDB(t *testing.T) { judge(t, goleveldb) }

// Promise: ufile/tests-go-s
func TestBadger(t *testing.T) { judgeEach(t, []suite{badger, badgerDB}) }

// Promise: ufile/tests-go-s
func TestLogs(t *testing.T) { judgeEach(t, logs) }

func judgeEach(t *testing.T, suites []suite) {
	for _, s := range suites {
		t.Run(s.name, func(t *testing.T) { judge(t, s) })
	}
}
