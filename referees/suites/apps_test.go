// SPDX-License-Identifier: MIT

//go:build linux

package suites

import (
	"slices"
	"testing"
	"time"
)

// programs are modules as "ringside build --files --sockets" makes them. The brief ones need a minute
// in all.
var programs = []suite{
	program("go files", "", "archive/zip", "debug/elf", "debug/buildinfo").inBrief(0),
	program("go os", "", "os"),
	program("tableflip", "github.com/cloudflare/tableflip@v1.2.3", ".").inBrief(0),
	program("dns", "github.com/miekg/dns@v1.1.73", ".").inBrief(0),
	program("afero", "github.com/spf13/afero@v1.15.0", ".", "./zipfs", "./tarfs").inBrief(1),
	program("sftp", "github.com/pkg/sftp@v1.13.12", "."),
	program("thrift", "github.com/apache/thrift@v0.25.0", "./lib/go/thrift"),
	program("memberlist", "github.com/hashicorp/memberlist@v0.7.0", "."),
	program("mochi", "github.com/mochi-mqtt/server/v2@v2.7.9", "./listeners", "."),
	program("fasthttp now", "github.com/valyala/fasthttp@v1.78.0", "."),
	program("wlog", "github.com/prometheus/prometheus@v0.316.0", "./tsdb/wlog", "./tsdb/chunks", "./tsdb/fileutil").unused(),
	program("tsdb", "github.com/prometheus/prometheus@v0.316.0", "./tsdb").within(15 * time.Minute).unused(),
	program("VictoriaMetrics", "github.com/VictoriaMetrics/VictoriaMetrics@v1.140.0", "./lib/fs", "./lib/persistentqueue", "./lib/mergeset").with("-fs.disableMmap"),
	program("git", "github.com/go-git/go-git/v5@v5.19.3", "./plumbing/format/packfile", "./plumbing/format/idxfile", "./storage/filesystem"),
	program("billy", "github.com/go-git/go-billy/v5@v5.9.2", "./osfs", "./util"),
	program("quic", "github.com/quic-go/quic-go@v0.65.0", ".").unused(),
	program("gorilla", "github.com/gorilla/websocket@v1.5.3", "."),
	program("bolt", bbolt.module, "."),
	program("leveldb", goleveldb.module, "./leveldb/storage", "./leveldb/table", "./leveldb"),
	program("badger files", badger.module, "./table", "./y").unused(),
	program("pebble files", pebble.module, "./vfs", "./record", "./wal", "./objstorage/objstorageprovider").unused(),
	program("raft logs", "github.com/hashicorp/raft-wal@v0.4.2", ".", "./fs", "./segment"),
	program("tidwall", "github.com/tidwall/wal@v1.1.8", ".").unused(),
	program("buntdb", "github.com/tidwall/buntdb@v1.3.0", ".").unused(),
	program("gnet", "github.com/panjf2000/gnet/v2@v2.9.7", "."),
	program("go-redis", "github.com/redis/go-redis/v9@v9.23.0", "./internal/pool", "./internal/proto"),
	program("grpc-go", grpc.module, "./internal/transport", "./credentials"),
	program("etcd", "go.etcd.io/etcd/server/v3@v3.7.3", "./storage/wal", "./storage/backend", "./storage/mvcc", "./embed"),
	program("etcd transport", "go.etcd.io/etcd/client/pkg/v3@v3.7.3", "./transport", "./fileutil"),
	program("nats-server", "github.com/nats-io/nats-server/v2@v2.15.2", "./conf", "./test"),
	program("restic", "github.com/restic/restic@v0.18.1", "./internal/backend/local", "./internal/fs", "./internal/repository").unused(),
	program("syncthing", "github.com/syncthing/syncthing@v1.30.0", "./lib/fs", "./lib/scanner"),
	program("distribution", "github.com/distribution/distribution/v3@v3.1.2", "./registry/storage/driver/filesystem").unused(),
	program("CoreDNS", "github.com/coredns/coredns@v1.15.0", "./core/dnsserver", "./plugin/forward", "./plugin/file"),
	program("rclone", "github.com/rclone/rclone@v1.76.0", "./lib/file", "./lib/http", "./backend/local"),
	program("hugo", "github.com/gohugoio/hugo@v0.152.2", "./hugofs", "./cache/filecache").unused(),
	program("gitea", "code.gitea.io/gitea@v1.26.0", "./modules/storage", "./modules/git", "./modules/lfs", "./modules/queue", "./modules/zstd"),
	program("Caddy", "github.com/caddyserver/caddy/v2@v2.11.9", ".", "./modules/caddyhttp/fileserver", "./modules/caddyhttp/reverseproxy"),
}

func init() { all = append(all, programs...) }

// program is a suite that runs as a user's program does.
func program(name, module string, pkgs ...string) suite {
	return suite{name: name, module: module, pkgs: pkgs, args: []string{"-test.short"}, judges: "program", limit: 4 * time.Minute}
}

// with adds arguments of the test binaries.
func (s suite) with(args ...string) suite {
	s.args = slices.Concat(s.args, args)
	return s
}

// within sets how long the tests of a package may take.
func (s suite) within(limit time.Duration) suite {
	s.limit = limit
	return s
}

// unused says that the module maps its files, or reads them from the beginning to the end.
func (s suite) unused() suite {
	s.idle = true
	return s
}

// inBrief makes a suite part of the brief run, with its first few packages.
func (s suite) inBrief(few int) suite {
	s.brief, s.few = []string{"auto"}, few
	return s
}

func TestPrograms(t *testing.T) { judgeEach(t, programs) }
