// SPDX-License-Identifier: MIT

package raftlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringside-io/ringside/appendlog"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

func open(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func entry(index uint64, size int) *raft.Log {
	return &raft.Log{Index: index, Term: index / 3, Type: raft.LogCommand, Data: bytes.Repeat([]byte{byte(index)}, size),
		Extensions: []byte("x"), AppendedAt: time.Unix(int64(index), 0)}
}

// TestLikeInmem makes random calls on the store and on raft's own store in memory,
// sometimes opens the store again, and compares everything that can be read.
// Promise: replica/raft-s-log
func TestLikeInmem(t *testing.T) {
	for seed := range uint64(ringtest.Rounds(20, 8)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			dir := t.TempDir()
			o := Options{SegmentSize: 16 << 10, CacheBytes: 1 << 10, LargeBytes: 150, Sync: appendlog.SyncNone}
			s, model := open(t, dir, o), raft.NewInmemStore()
			last := uint64(r.IntN(3) * 100)
			first := last + 1
			for range 300 {
				switch n := r.IntN(20); {
				case n < 10:
					var logs []*raft.Log
					for range 1 + r.IntN(20) {
						last++
						logs = append(logs, entry(last, r.IntN(300)))
					}
					check(t, s.StoreLogs(logs), model.StoreLogs(logs))
				case n < 12 && last >= first: // from the front
					to := first + uint64(r.IntN(int(last-first+1)))
					check(t, s.DeleteRange(first, to), model.DeleteRange(first, to))
					first = to + 1
				case n < 14 && last >= first: // from the end
					from := first + uint64(r.IntN(int(last-first+1)))
					check(t, s.DeleteRange(from, last), model.DeleteRange(from, last))
					last = from - 1
				case n == 14 && last >= first:
					check(t, s.DeleteRange(first, last), model.DeleteRange(first, last))
					last += 50
					first = last + 1
				case n < 17:
					k, v := []byte{byte(r.IntN(4))}, []byte(fmt.Sprint(r.Uint64()))
					check(t, s.Set(k, v), model.Set(k, v))
				case n == 17:
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s = open(t, dir, o)
				}
				if last >= first {
					i := first + uint64(r.IntN(int(last-first+1)))
					var a, b raft.Log
					check(t, s.GetLog(i, &a), model.GetLog(i, &b))
					same(t, &a, &b)
				}
			}
			for i := range last + 10 { // also those that were removed
				var a, b raft.Log
				err := model.GetLog(i, &b)
				large := err == nil && len(b.Data) >= o.LargeBytes
				if b.Data = nil; s.Head(i, &a) != large {
					t.Fatalf("entry %d is large: %v", i, large)
				} else if large {
					same(t, &a, &b)
				}
			}
			f, _ := s.FirstIndex()
			l, _ := s.LastIndex()
			if last >= first && (f != first || l != last) || last < first && (f != 0 || l != 0) {
				t.Fatalf("entries %d to %d instead of %d to %d", f, l, first, last)
			}
			for i := first; i <= last; i++ {
				var a, b raft.Log
				check(t, s.GetLog(i, &a), model.GetLog(i, &b))
				same(t, &a, &b)
			}
			for i := range byte(4) {
				a, aerr := s.Get([]byte{i})
				b, berr := model.Get([]byte{i})
				if (aerr == nil) != (berr == nil) || !bytes.Equal(a, b) {
					t.Fatalf("setting %d: %q %v, want %q %v", i, a, aerr, b, berr)
				}
			}
			segments, _ := filepath.Glob(filepath.Join(dir, "*.seg"))
			if last < first && len(segments) > 2 {
				t.Errorf("%d segments of an empty log", len(segments))
			}
		})
	}
}

func check(t *testing.T, got, want error) {
	t.Helper()
	if (got == nil) != (want == nil) {
		t.Fatalf("%v, want %v", got, want)
	}
}

func same(t *testing.T, a, b *raft.Log) {
	t.Helper()
	if !a.AppendedAt.Equal(b.AppendedAt) {
		t.Fatalf("entry %d was appended at %v, want %v", b.Index, a.AppendedAt, b.AppendedAt)
	}
	a.AppendedAt = b.AppendedAt
	if !reflect.DeepEqual(a, b) {
		t.Fatalf("%+v, want %+v", a, b)
	}
}

// The cases of the tests that raft-boltdb and raft-wal have for their stores. raft compares the text of raft-boltdb's error.

func TestEmpty(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	if i, err := s.FirstIndex(); i != 0 || err != nil {
		t.Error(i, err)
	}
	if i, err := s.LastIndex(); i != 0 || err != nil {
		t.Error(i, err)
	}
	if err := s.GetLog(1, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
		t.Error(err)
	}
	if _, err := s.Get([]byte("k")); err == nil || err.Error() != "not found" {
		t.Error(err)
	}
	if _, err := s.GetUint64([]byte("k")); err == nil || err.Error() != "not found" {
		t.Error(err)
	}
	if err := s.SetUint64([]byte("k"), 1<<60); err != nil {
		t.Error(err)
	}
	if v, err := s.GetUint64([]byte("k")); v != 1<<60 || err != nil {
		t.Error(v, err)
	}
	if err := s.DeleteRange(1, 10); err != nil {
		t.Error(err)
	}
}

func TestOrder(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	if err := s.StoreLogs([]*raft.Log{entry(5, 1), entry(7, 1)}); !errors.Is(err, ErrOrder) {
		t.Error(err)
	}
	if err := s.StoreLogs([]*raft.Log{entry(5, 1), entry(6, 1), entry(7, 1), entry(8, 1)}); err != nil {
		t.Error(err)
	}
	if err := s.StoreLog(entry(8, 1)); !errors.Is(err, ErrOrder) {
		t.Error(err)
	}
	if err := s.DeleteRange(6, 7); err == nil {
		t.Error("entries were removed from the middle")
	}
	// Entries behind a snapshot.
	if err := s.StoreLogs([]*raft.Log{entry(20, 1), entry(21, 1)}); err != nil {
		t.Error(err)
	}
	for range 2 {
		first, _ := s.FirstIndex()
		last, _ := s.LastIndex()
		var l raft.Log
		if err := s.GetLog(8, &l); first != 20 || last != 21 || err != raft.ErrLogNotFound {
			t.Errorf("the log has the entries %d to %d, want 20 to 21; entry 8: %v", first, last, err)
		}
		if err := s.GetLog(21, &l); err != nil || l.Index != 21 {
			t.Error(l.Index, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		s = open(t, dir, Options{})
	}
}

// TestEntryZero stores entry 0 first, as raft's benchmarks do.
func TestEntryZero(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	for i := range uint64(5) {
		if err := s.StoreLog(entry(i, 1)); err != nil {
			t.Fatal(err)
		}
	}
	for _, first := range []uint64{0, 0, 2} {
		if first > 0 {
			check(t, s.DeleteRange(0, first-1), nil)
		}
		check(t, s.Close(), nil)
		s = open(t, dir, Options{})
		f, _ := s.FirstIndex()
		l, _ := s.LastIndex()
		if f != first || l != 4 {
			t.Errorf("the log has the entries %d to %d, want %d to 4", f, l, first)
		}
		for i := first; i <= l; i++ {
			var got raft.Log
			check(t, s.GetLog(i, &got), nil)
			same(t, &got, entry(i, 1))
		}
	}
}

// TestOlderSnapshot sends a member a snapshot that is older than entries that it has
// acknowledged. It must keep them: the leader may have counted it when it committed them.
// Promise: replica/member-keeps-entries
func TestOlderSnapshot(t *testing.T) {
	for _, gap := range []bool{false, true} {
		t.Run(fmt.Sprint("gap=", gap), func(t *testing.T) {
			s := open(t, t.TempDir(), Options{Sync: appendlog.SyncNone})
			_, leader := raft.NewInmemTransportWithTimeout("leader", time.Minute)
			_, member := raft.NewInmemTransportWithTimeout("member", time.Minute)
			leader.Connect("member", member)
			c := raft.DefaultConfig()
			c.LocalID, c.Logger = "member", hclog.NewNullLogger()
			c.HeartbeatTimeout, c.ElectionTimeout = time.Hour, time.Hour // it stays a follower
			state := new(raft.MockFSM)
			r, err := raft.NewRaft(c, state, s, s, raft.NewInmemSnapshotStore(), member)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := r.Shutdown().Error(); err != nil {
					t.Error(err)
				}
			}()
			header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("leader"), Addr: []byte("leader")}
			members := raft.Configuration{Servers: []raft.Server{{ID: "leader", Address: "leader"}, {ID: "member", Address: "member"}}}
			send := func(from, to, commit uint64) {
				t.Helper()
				q := raft.AppendEntriesRequest{RPCHeader: header, Term: 1, PrevLogEntry: from - 1, LeaderCommitIndex: commit}
				if from > 1 {
					q.PrevLogTerm = 1
				}
				for i := from; i <= to; i++ {
					q.Entries = append(q.Entries, &raft.Log{Index: i, Term: 1, Type: raft.LogCommand, Data: []byte{byte(i)}})
				}
				var a raft.AppendEntriesResponse
				if err := leader.AppendEntries("member", "member", &q, &a); err != nil || !a.Success {
					t.Fatalf("entries %d to %d: %+v, %v", from, to, a, err)
				}
			}
			snapshot := func(index uint64) {
				t.Helper()
				p := []byte{0x90} // MessagePack for no entries, as MockFSM stores them
				q := raft.InstallSnapshotRequest{RPCHeader: header, SnapshotVersion: raft.SnapshotVersionMax, Term: 1,
					LastLogIndex: index, LastLogTerm: 1, Configuration: raft.EncodeConfiguration(members), ConfigurationIndex: 1, Size: int64(len(p))}
				var a raft.InstallSnapshotResponse
				if err := leader.InstallSnapshot("member", "member", &q, &a, bytes.NewReader(p)); err != nil || !a.Success {
					t.Fatalf("snapshot at %d: %+v, %v", index, a, err)
				}
			}
			send(1, 50, 50)
			last := uint64(50)
			if gap {
				last = 200
				snapshot(last)
			} else {
				snapshot(40)
				if n, err := s.LastIndex(); n != last || err != nil {
					t.Errorf("the last entry is %d, %v, want %d", n, err, last)
				}
			}
			send(last+1, last+5, last+5)
			if n := r.AppliedIndex(); n != last+5 {
				t.Errorf("applied up to %d, want %d", n, last+5)
			}
		})
	}
}

// TestTornTail truncates the newest segment at each byte of its last entry, which was being
// written: the entries before it are there, and the log continues.
// Promise: replica/raft-s-log
func TestTornTail(t *testing.T) {
	dir := t.TempDir()
	o := Options{SegmentSize: 1 << 20, Sync: appendlog.SyncNone}
	s := open(t, dir, o)
	image := make(map[string][]byte)
	for i := range uint64(6) {
		if i == 5 { // the durable entries before the last call
			image["end"], _ = os.ReadFile(filepath.Join(dir, "end"))
		}
		if err := s.StoreLog(entry(i+1, 40)); err != nil {
			t.Fatal(err)
		}
	}
	segments, _ := filepath.Glob(filepath.Join(dir, "*.seg"))
	if len(segments) != 1 || len(image["end"]) == 0 {
		t.Fatalf("%d segments, a mark of %d bytes", len(segments), len(image["end"]))
	}
	segment, _ := os.ReadFile(segments[0])
	end := len(bytes.TrimRight(segment, "\x00"))
	for cut := end - 60; cut < end; cut++ {
		torn := t.TempDir()
		p := slices.Clone(segment)
		clear(p[cut:])
		image[filepath.Base(segments[0])] = p
		for name, p := range image {
			if err := os.WriteFile(filepath.Join(torn, name), p, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := open(t, torn, o)
		last, _ := s.LastIndex()
		if last != 5 {
			t.Fatalf("cut %d bytes before the end: the last entry is %d", end-cut, last)
		}
		for i := uint64(1); i <= last; i++ {
			var l raft.Log
			if err := s.GetLog(i, &l); err != nil || !bytes.Equal(l.Data, entry(i, 40).Data) {
				t.Errorf("entry %d: %v", i, err)
			}
		}
		if err := s.StoreLog(entry(last+1, 9)); err != nil {
			t.Error(err)
		}
		s.Close()
	}
}

// TestGoesOnAfterFailure closes the log below the store, as a failed write does, and
// continues to write: the next call opens the log again.
// Promise: replica/raft-s-log
func TestGoesOnAfterFailure(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	if err := s.StoreLogs([]*raft.Log{entry(1, 10), entry(2, 10)}); err != nil {
		t.Fatal(err)
	}
	// An append that the store has not recorded, such as one that failed after its write.
	if _, err := s.log.Append(encode(entry(3, 11))); err != nil {
		t.Fatal(err)
	}
	s.fail(io.ErrShortWrite, 2, 2)
	if err := s.StoreLog(entry(3, 12)); err != nil {
		t.Fatal(err)
	}
	var l raft.Log
	if err := s.GetLog(3, &l); err != nil || len(l.Data) != 12 {
		t.Errorf("%d bytes, %v", len(l.Data), err)
	}
}

// TestReadsAfterFailure: raft reads before it writes. A read opens a log that could not be
// opened again at first.
// Promise: replica/raft-s-log
func TestReadsAfterFailure(t *testing.T) {
	s := open(t, t.TempDir(), Options{CacheBytes: 1})
	if err := s.StoreLogs([]*raft.Log{entry(1, 10), entry(2, 10)}); err != nil {
		t.Fatal(err)
	}
	s.fail(io.ErrShortWrite, 2, 2)
	if err := s.log.Close(); err != nil { // as writable does before it opens the log; that failed
		t.Fatal(err)
	}
	var l raft.Log
	if err := s.GetLog(1, &l); err != nil || len(l.Data) != 10 {
		t.Errorf("%d bytes, %v", len(l.Data), err)
	}
}

// TestKeepsWhatWasDurable: while opening the log again fails, the store keeps the number of
// acknowledged entries.
// Promise: replica/raft-s-log
func TestKeepsWhatWasDurable(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	for i := range uint64(3) {
		if err := s.StoreLog(entry(i+1, 10)); err != nil {
			t.Fatal(err)
		}
		if i == 0 { // an unreadable record in the middle
			if _, err := s.log.Append([]byte{kindEntry}); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.fail(io.ErrShortWrite, 3, 3)
	for range 3 {
		if err := s.StoreLog(entry(4, 10)); err == nil {
			t.Fatal("a log that cannot be read was opened")
		}
		if last, _ := s.LastIndex(); last != 3 || s.least != 3 || s.most != 3 {
			t.Fatalf("the log ends at %d; at least %d, at most %d", last, s.least, s.most)
		}
	}
}

// TestRemovalThatFailed: a removal of entries at the end whose write fails is repeated
// until it is durable, whether or not the failed write left it in the log.
// Promise: replica/raft-s-log
func TestRemovalThatFailed(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	failures := 0
	s := open(t, t.TempDir(), Options{Stop: stop, Written: func(appendlog.SegmentInfo) error {
		if failures > 0 {
			failures--
			return io.ErrShortWrite
		}
		return nil
	}})
	if err := s.StoreLogs([]*raft.Log{entry(1, 10), entry(2, 10), entry(3, 10)}); err != nil {
		t.Fatal(err)
	}
	failures = 2
	if err := s.DeleteRange(2, 3); err != nil {
		t.Fatal(err)
	}
	if last, _ := s.LastIndex(); last != 1 || failures != 1 {
		t.Errorf("the log ends at %d, %d failures are left", last, failures)
	}
	failures = 0
	if err := s.StoreLog(entry(2, 20)); err != nil {
		t.Error(err)
	}
}

// TestTerm: raft's term is stored again until that succeeds, because an error would end the
// process. After Stop, no message of a term that is not stored is accepted.
// Promise: replica/raft-s-log
func TestTerm(t *testing.T) {
	stop := make(chan struct{})
	fails := 3
	s, err := Open(t.TempDir(), Options{SegmentSize: 1 << 20, Stop: stop, Written: func(appendlog.SegmentInfo) error {
		if fails--; fails >= 0 {
			return errors.New("no room")
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.SetUint64([]byte(keyTerm), 7); err != nil {
		t.Fatal(err)
	}
	if v, err := s.GetUint64([]byte(keyTerm)); v != 7 || err != nil {
		t.Errorf("term %d, %v", v, err)
	}
	fails = 1
	if err := s.SetUint64([]byte("LastVoteTerm"), 7); err == nil {
		t.Error("another setting was repeated")
	}
	fails = 1 << 30
	close(stop)
	if err := s.SetUint64([]byte(keyTerm), 8); err != nil {
		t.Error(err)
	}
	fails = 0
	if err := s.StoreLog(&raft.Log{Index: 1, Term: 8}); err == nil {
		t.Error("an entry of a term that is not stored")
	}
	if v, _ := s.GetUint64([]byte(keyTerm)); v != 7 {
		t.Errorf("term %d", v)
	}
}

// TestFailedBatchLeavesNothing: raft stores the entries of a failed call again. Entries of the call that
// an earlier write has stored must not be in the way.
// Promise: replica/raft-s-log
func TestFailedBatchLeavesNothing(t *testing.T) {
	writes := 0
	s := open(t, t.TempDir(), Options{Written: func(appendlog.SegmentInfo) error {
		if writes++; writes == 3 {
			return io.ErrShortWrite
		}
		return nil
	}})
	if err := s.StoreLog(entry(1, 10)); err != nil {
		t.Fatal(err)
	}
	large := []*raft.Log{entry(2, batchBytes-1), entry(3, batchBytes-1), entry(4, 10)}
	if err := s.StoreLogs(large); err == nil || writes != 3 {
		t.Fatalf("%d writes, %v", writes, err)
	}
	if err := s.StoreLogs(large); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(4) {
		var l raft.Log
		if err := s.GetLog(i+1, &l); err != nil || l.Index != i+1 {
			t.Errorf("entry %d: %v", i+1, err)
		}
	}
}

// TestReplacementThatFailed: a follower removes entries of a deposed leader and cannot store those of
// the new one at once. Raft then takes the removed entries for its last ones, so the store
// may not return before it has the new ones.
// Promise: replica/raft-s-log
func TestReplacementThatFailed(t *testing.T) {
	stop := make(chan struct{})
	failing := false
	failures := 0
	s := open(t, t.TempDir(), Options{Stop: stop, Written: func(appendlog.SegmentInfo) error {
		if failing {
			if failures++; failures == 4 {
				failing = false
			}
			return io.ErrShortWrite
		}
		return nil
	}})
	defer close(stop)
	_, transport := raft.NewInmemTransportWithTimeout("follower", time.Minute)
	_, leader := raft.NewInmemTransportWithTimeout("leader", time.Minute)
	leader.Connect("follower", transport)
	c := raft.DefaultConfig()
	c.LocalID, c.LogOutput = "follower", io.Discard
	c.HeartbeatTimeout, c.ElectionTimeout = time.Minute, time.Minute
	snapshots := raft.NewInmemSnapshotStore()
	members := raft.Configuration{Servers: []raft.Server{{ID: "follower", Address: "follower"}, {ID: "leader", Address: "leader"}}}
	if err := raft.BootstrapCluster(c, s, s, snapshots, transport, members); err != nil {
		t.Fatal(err)
	}
	r, err := raft.NewRaft(c, &raft.MockFSM{}, s, s, snapshots, transport)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Shutdown().Error() }()
	appendEntries := func(term, previous, previousTerm uint64, indexes ...uint64) bool {
		args := &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("leader"), Addr: []byte("leader")},
			Term: term, PrevLogEntry: previous, PrevLogTerm: previousTerm}
		for _, i := range indexes {
			args.Entries = append(args.Entries, &raft.Log{Index: i, Term: term, Type: raft.LogCommand, Data: []byte{1}})
		}
		var resp raft.AppendEntriesResponse
		if err := leader.AppendEntries("follower", "follower", args, &resp); err != nil {
			t.Fatal(err)
		}
		return resp.Success
	}
	if !appendEntries(2, 1, 1, 2, 3, 4) {
		t.Fatal("the first entries were refused")
	}
	removed := false
	s.opts.Written = func(after func(appendlog.SegmentInfo) error) func(appendlog.SegmentInfo) error {
		return func(g appendlog.SegmentInfo) error {
			if last, _ := s.LastIndex(); !removed && last == 2 {
				removed, failing = true, true // the next write is that of the new entries
			}
			return after(g)
		}
	}(s.opts.Written)
	for range 3 {
		if appendEntries(3, 2, 2, 3) {
			break
		}
	}
	if !appendEntries(3, 3, 3, 4) || failures == 0 {
		t.Errorf("the follower does not take the entries of the new leader, after %d failures", failures)
	}
	if last := r.LastIndex(); last != 4 {
		t.Errorf("raft's last entry is %d", last)
	}
}

// TestRemovedWhileRead: entries that are removed while another goroutine reads them from the disk are not
// found later in the place of those that replace them.
// Promise: replica/raft-s-log
func TestRemovedWhileRead(t *testing.T) {
	s := open(t, t.TempDir(), Options{CacheBytes: 1})
	if err := s.StoreLogs([]*raft.Log{entry(1, 10), entry(2, 10), entry(3, 10)}); err != nil {
		t.Fatal(err)
	}
	var l raft.Log
	w, err := s.find(2, &l)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteRange(2, 3); err != nil {
		t.Fatal(err)
	}
	if err := s.StoreLogs([]*raft.Log{entry(2, 20), entry(3, 20)}); err != nil {
		t.Fatal(err)
	}
	if err := s.read(w, &l); err != nil {
		t.Log(err)
	}
	for i := range uint64(2) {
		if err := s.GetLog(i+2, &l); err != nil || len(l.Data) != 20 {
			t.Errorf("entry %d has %d bytes and not 20, %v", i+2, len(l.Data), err)
		}
	}
}
