// SPDX-License-Identifier: MIT

//go:build linux

package suites

import (
	"testing"
	"time"
)

// programs are modules as "ringside build --files --sockets" makes them. The brief ones need a minute
// in all.
var programs = []suite{
	program("go files", "", "archive/zip", "debug/elf", "debug/buildinfo", "os").inBrief(3),
	program("tableflip", "github.com/cloudflare/tableflip@v1.2.3", ".").inBrief(0),
	program("dns", "github.com/miekg/dns@v1.1.73", ".").inBrief(0),
	program("afero", "github.com/spf13/afero@v1.15.0", ".", "./zipfs", "./tarfs").inBrief(1),
	program("sftp", "github.com/pkg/sftp@v1.13.12", "."),
	program("thrift", "github.com/apache/thrift@v0.25.0", "./lib/go/thrift"),
	program("memberlist", "github.com/hashicorp/memberlist@v0.7.0", "."),
	program("mochi", "github.com/mochi-mqtt/server/v2@v2.7.9", "./listeners", "."),
	program("fasthttp now", "github.com/valyala/fasthttp@v1.78.0", "."),
	program("wlog", "github.com/prometheus/prometheus@v0.316.0", "./tsdb/wlog", "./tsdb/chunks", "./tsdb/fileutil"),
	program("VictoriaMetrics", "github.com/VictoriaMetrics/VictoriaMetrics@v1.140.0", "./lib/fs", "./lib/filestream", "./lib/persistentqueue", "./lib/mergeset"),
	program("git", "github.com/go-git/go-git/v5@v5.19.3", "./plumbing/format/packfile", "./plumbing/format/idxfile", "./storage/filesystem"),
	program("billy", "github.com/go-git/go-billy/v5@v5.9.2", "./osfs", "./util"),
	program("quic", "github.com/quic-go/quic-go@v0.65.0", "."),
	program("gorilla", "github.com/gorilla/websocket@v1.5.3", "."),
	program("bolt", bbolt.module, "."),
	program("leveldb", goleveldb.module, "./leveldb/storage", "./leveldb/table", "./leveldb"),
	program("badger files", badger.module, "./table", "./y"),
	program("pebble files", pebble.module, "./vfs", "./record", "./wal"),
	program("raft logs", "github.com/hashicorp/raft-wal@v0.4.2", ".", "./fs", "./segment"),
	program("tidwall", "github.com/tidwall/wal@v1.1.8", "."),
}

func init() { all = append(all, programs...) }

// program is a suite that runs as a user's program does.
func program(name, module string, pkgs ...string) suite {
	return suite{name: name, module: module, pkgs: pkgs, args: []string{"-test.short"}, judges: "program", limit: 4 * time.Minute}
}

// inBrief makes a suite part of the brief run, with its first few packages.
func (s suite) inBrief(few int) suite {
	s.brief, s.few = []string{"auto"}, few
	return s
}

func TestPrograms(t *testing.T) { judgeEach(t, programs) }
