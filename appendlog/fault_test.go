// SPDX-License-Identifier: MIT

package appendlog

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/powercut"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// faultKind is one way in which a store fails.
type faultKind struct {
	name  string
	op    string
	fault memFault
	want  error
	// harmless operations may fail without consequences.
	harmless bool
}

var faultKinds = []faultKind{
	{"write EIO", "write", memFault{err: syscall.EIO}, syscall.EIO, false},
	{"write EIO after a part", "write", memFault{err: syscall.EIO, written: 700}, syscall.EIO, false},
	{"disk full", "write", memFault{err: syscall.ENOSPC, written: 100}, syscall.ENOSPC, true}, // of the zeros that are written ahead
	{"short write", "write", memFault{written: 5}, io.ErrShortWrite, false},
	{"sync EIO", "sync", memFault{err: syscall.EIO}, syscall.EIO, false},
	{"sync EIO that forgets", "sync", memFault{err: syscall.EIO, lost: true}, syscall.EIO, false},
	{"sync ENOSPC", "sync", memFault{err: syscall.ENOSPC}, syscall.ENOSPC, false},
	{"create", "create", memFault{err: syscall.EMFILE}, syscall.EMFILE, false},
	{"rename", "rename", memFault{err: syscall.EIO}, syscall.EIO, false},
	{"directory sync", "dirsync", memFault{err: syscall.EIO}, syscall.EIO, false},
	{"reopening", "open", memFault{err: syscall.EMFILE}, syscall.EMFILE, false},
	{"truncate", "truncate", memFault{err: syscall.EIO}, syscall.EIO, true},
	{"close", "close", memFault{err: syscall.EIO}, syscall.EIO, true},
	{"write of the mark", "mark write", memFault{err: syscall.EIO}, syscall.EIO, true}, // the mark then claims less
	{"sync of the mark", "mark sync", memFault{err: syscall.EIO, lost: true}, syscall.EIO, true},
}

// TestFaults lets the nth call of every kind fail, once and permanently, under load with
// rotations. Every append returns an error after the failure, the failure stays, and after
// a restart or a power cut no acknowledged record is missing.
// Promise: appendlog/acknowledged-record-found
func TestFaults(t *testing.T) {
	ringtest.AsksNoKernel(t)
	for _, k := range faultKinds {
		for _, once := range []bool{true, false} {
			name := k.name + " for good"
			if once {
				name = k.name + " once"
			}
			t.Run(name, func(t *testing.T) {
				for n := range ringtest.Rounds(12, 3) {
					faultRun(t, k, n, once, uint64(n))
				}
			})
		}
	}
}

// ledger records the results that appending goroutines got.
type ledger struct {
	mu     sync.Mutex
	acked  map[string]Position
	failed map[string]error
}

func newLedger() *ledger {
	return &ledger{acked: map[string]Position{}, failed: map[string]error{}}
}

// load appends from several goroutines until each was refused or is done.
func (l *ledger) load(t *testing.T, a *Log, goroutines, each int) {
	t.Helper()
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			refused := false
			for i := range each {
				d := fmt.Sprintf("%d/%d %s", g, i, strings.Repeat("x", g*37))
				pos, err := a.Append([]byte(d))
				l.note(d, pos, err)
				if refused && err == nil {
					t.Error("an append succeeded after one that failed")
				}
				refused = refused || err != nil
			}
		})
	}
	wg.Wait()
}

func (l *ledger) note(d string, pos Position, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed[d] = err
	} else {
		l.acked[d] = pos
	}
}

// check fails the test when judge finds something.
func (l *ledger) check(t *testing.T, a *Log) {
	t.Helper()
	if err := l.judge(a); err != nil {
		t.Fatal(err)
	}
}

// judge compares the log with the results: each acknowledged record is there, at its
// position, and there is no record that was never appended.
func (l *ledger) judge(a *Log) error {
	found := map[string]Position{}
	for r, err := range a.Records(Position{}) {
		if err != nil {
			return err
		}
		found[string(r.Data)] = r.Position
		if _, failed := l.failed[string(r.Data)]; !failed && l.acked[string(r.Data)] == (Position{}) {
			return fmt.Errorf("%q was never appended", r.Data)
		}
	}
	for d := range found {
		if rest, ok := strings.CutPrefix(d, "first "); ok && found["second "+rest] == (Position{}) {
			return fmt.Errorf("only %q of a batch was found", d)
		}
	}
	for d, pos := range l.acked {
		if found[d] != pos {
			return fmt.Errorf("%q was acknowledged at %+v and found at %+v", d, pos, found[d])
		}
	}
	return nil
}

func faultRun(t *testing.T, k faultKind, n int, once bool, seed uint64) {
	t.Helper()
	s := newMemStore()
	logger, await := ringtest.Logger(t)
	o := Options{SegmentSize: 4096, Ahead: 16 << 10, Logger: logger}
	a := openMem(t, s, o)
	s.mu.Lock()
	clear(s.calls)
	s.fault = func(c memCall) memFault {
		if c.op == k.op && (c.n == n || c.n > n && !once) {
			return k.fault
		}
		return memFault{}
	}
	s.mu.Unlock()
	l := newLedger()
	l.load(t, a, 8, 40)
	for d, err := range l.failed {
		if !errors.Is(err, k.want) {
			t.Fatalf("%q: %v, want %v", d, err, k.want)
		}
	}
	err := a.Close()
	s.mu.Lock()
	hit := s.calls[k.op] > n
	s.fault = nil
	s.mu.Unlock()
	switch {
	case k.harmless:
	case hit && (len(l.failed) == 0 || !errors.Is(err, k.want) || !errors.Is(a.Err(), k.want)):
		t.Fatalf("call %d failed: %d appends failed, Close = %v, Err = %v", n, len(l.failed), err, a.Err())
	case hit:
		await("appendlog: the log failed; close it and open it again")
	case !hit && (len(l.failed) != 0 || err != nil):
		t.Fatalf("no call failed: %d appends failed, Close = %v", len(l.failed), err)
	}
	for _, after := range []*memStore{s.restart(), s.crash(rand.New(rand.NewPCG(seed, 1))), s.crash(rand.New(rand.NewPCG(seed, 2)))} {
		b := openMem(t, after, o)
		l.check(t, b)
		put(t, b, "afterwards")
		mustClose(t, b)
	}
}

// TestFailureReachesEveryWaiter lets the sync of a group of several appends fail.
func TestFailureReachesEveryWaiter(t *testing.T) {
	s := newMemStore()
	a := openMem(t, s, Options{})
	entered, pass := gate(s)
	const n = 10
	results := make(chan error, n)
	for i := range n {
		go func() {
			_, err := a.Append([]byte("record"))
			results <- err
		}()
		if i == 0 {
			<-entered
		} else {
			waitQueued(a, i)
		}
	}
	pass <- struct{}{}
	<-entered
	s.mu.Lock()
	s.gateErr = syscall.EIO
	s.mu.Unlock()
	pass <- struct{}{}
	failed := 0
	for range n {
		if err := <-results; errors.Is(err, syscall.EIO) {
			failed++
		} else if err != nil {
			t.Errorf("an unexpected error: %v", err)
		}
	}
	if failed != n-1 {
		t.Errorf("%d appends returned the failure, want %d", failed, n-1)
	}
	s.mu.Lock()
	s.fault = nil
	writes := s.calls["write"]
	s.mu.Unlock()
	_, err := a.Append([]byte("too late"))
	if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "failed before") {
		t.Errorf("a later append: %v", err)
	}
	if _, err := a.AppendContext(t.Context(), nil); !errors.Is(err, syscall.EIO) {
		t.Errorf("a later append with a context: %v", err)
	}
	for what, err := range map[string]error{"Sync": a.Sync(), "Rotate": a.Rotate(), "Err": a.Err(), "Close": a.Close()} {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("%s after the failure: %v", what, err)
		}
	}
	if s.calls["write"] != writes {
		t.Error("the log wrote after the failure")
	}
	if err := a.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a second Close: %v", err)
	}
}

// TestPowerCuts ends each run of a log at a random call, by a power cut or by a kill, many
// times. Each time every acknowledged record is found, and every record that was found
// before, and the log continues to work.
// Promise: appendlog/acknowledged-record-found
func TestPowerCuts(t *testing.T) {
	ringtest.AsksNoKernel(t)
	for seed := range uint64(ringtest.Rounds(120, 20)) {
		powerCuts(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestEveryPowerCut cuts the power after each write, and opens every state that the disk
// may then have: the records that were acknowledged to each goroutine are there, in order.
// Promise: appendlog/acknowledged-record-found
func TestEveryPowerCut(t *testing.T) {
	ringtest.AsksNoKernel(t)
	const goroutines, each = 3, 14
	o := Options{SegmentSize: 4096, Ahead: 4096}
	s := newMemStore()
	for life := range 2 {
		a := openMem(t, s, o)
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				for i := range each {
					n := life*each + i
					if _, err := a.Append(fmt.Appendf(nil, "%d %d %s", g, n, strings.Repeat("z", n*53%700))); err != nil {
						t.Error(err)
					}
					s.mu.Lock()
					s.ask(powercut.Op{Kind: powercut.Ack, Name: strconv.Itoa(g), Off: int64(n + 1)})
					s.mu.Unlock()
				}
			})
		}
		wg.Wait()
		if life == 1 {
			mustClose(t, a) // a kill ends the first run
		}
	}
	res, err := s.disk.Run(powercut.Explore{Seed: 1, States: ringtest.Rounds(4000, 500), Check: func(st *powercut.State, _ string) error {
		a, err := tryMem(after(st), o)
		if err != nil {
			return err
		}
		defer a.Close()
		next := map[string]int{}
		for r, err := range a.Records(Position{}) {
			if err != nil {
				return err
			}
			f := strings.Fields(string(r.Data))
			if f[1] != strconv.Itoa(next[f[0]]) {
				return fmt.Errorf("goroutine %s: got record %s after %d", f[0], f[1], next[f[0]]-1)
			}
			next[f[0]]++
		}
		for g, n := range st.Acked {
			if next[g] < n {
				return fmt.Errorf("goroutine %s: %d records were acknowledged, %d are there", g, n, next[g])
			}
		}
		return nil
	}})
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d power cuts, %d states", res.Cuts, res.States)
}

// TestKillThenPowerCut kills a log at each of its calls, opens it again, and cuts the power
// after each write of either run. The page cache of the first run is all that the second
// run finds, and some of it is not on the disk: every state that the disk may then have
// opens and has the acknowledged records.
// Promise: appendlog/acknowledged-record-found
func TestKillThenPowerCut(t *testing.T) {
	ringtest.AsksNoKernel(t)
	o := Options{SegmentSize: 4096, Ahead: 4096, Logger: slog.New(slog.DiscardHandler)}
	for calls, killed := 0, true; killed; calls++ {
		s := newMemStore()
		left := calls
		s.fault = func(memCall) memFault {
			if left--; left >= 0 {
				return memFault{}
			}
			return memFault{err: errPowerCut}
		}
		killed = !counting(s, o, 0)
		if killed {
			s = s.restart()
			if !counting(s, o, 100) {
				t.Fatalf("killed after %d calls, the log cannot be used", calls)
			}
		}
		e := powercut.Explore{Seed: uint64(calls), States: ringtest.Rounds(2000, 300), Check: hasAcked(o), Every: ringtest.Rounds(1, 3)}
		_, err := s.disk.Run(e)
		if err != nil {
			t.Errorf("killed after %d calls: %v", calls, err)
		}
	}
}

// TestFailedDisk lets each write and each sync fail once, before a merge one in three, as after an
// error of the disk: the kernel counts the pages as written. The log is closed or its process dies, it is opened
// again, more records are acknowledged, and then the power is cut, at any moment. Every
// record that was acknowledged, before or after the failure, is there.
// Promise: appendlog/failed-disk-reopened
func TestFailedDisk(t *testing.T) {
	ringtest.AsksNoKernel(t)
	for _, mode := range []SyncMode{SyncData, SyncNone} {
		for _, closes := range []bool{true, false} {
			name := mode.String() + map[bool]string{true: "-closed", false: "-killed"}[closes]
			t.Run(name, func(t *testing.T) {
				failed, step := map[string]int{}, ringtest.Rounds(1, 3)
				for nth, hit := rand.IntN(step), "?"; hit != "" && !t.Failed(); nth += step {
					hit = failedDisk(t, mode, closes, nth)
					failed[hit]++
				}
				t.Log(failed)
			})
		}
	}
}

// failedDisk runs four lives of a log, in which one call fails. It returns the operation of
// that call, "" if there are not so many.
func failedDisk(t *testing.T, mode SyncMode, closes bool, nth int) (hit string) {
	t.Helper()
	o := Options{SegmentSize: 4096, Ahead: 4096, Sync: mode, Logger: slog.New(slog.DiscardHandler)}
	s := newMemStore()
	fault := func(c memCall) memFault {
		switch c.op {
		case "write", "mark write", "sync", "mark sync", "dirsync", "truncate":
		default:
			return memFault{}
		}
		if nth--; nth != -1 {
			return memFault{}
		}
		hit = c.op
		if c.op == "mark write" { // inside a sector: all of it or nothing
			c.data = 0
		}
		return memFault{err: syscall.EIO, written: c.data / 2, lost: true}
	}
	from := 0
	for life := range 4 {
		s.fault = fault
		failedLife(t, s, o, life, closes)
		if hit != "" && from == 0 {
			from = len(s.disk.Ops)
		}
		s = s.restart()
	}
	if hit == "" {
		return ""
	}
	e := powercut.Explore{Seed: rand.Uint64(), States: ringtest.Rounds(100, 25), From: from, Check: hasAcked(o), Every: ringtest.Rounds(1, 8)}
	if _, err := s.disk.Run(e); err != nil {
		t.Errorf("a %s failed: %v", hit, err)
	}
	return hit
}

// failedLife opens a log and appends until an append fails.
func failedLife(t *testing.T, s *memStore, o Options, life int, closes bool) {
	t.Helper()
	a, err := tryMem(s, o)
	for i := 0; err == nil && i < 4; i++ {
		d := fmt.Sprint(life, " ", i)
		if _, err = a.Append([]byte(d)); err == nil && o.Sync == SyncNone {
			err = a.Sync()
		}
		if err == nil {
			s.ask(powercut.Op{Kind: powercut.Ack, Name: d, Off: 1})
		}
		if err == nil && i == 1 {
			err = a.Rotate()
		}
	}
	if err != nil && !errors.Is(err, syscall.EIO) {
		t.Errorf("life %d: %v", life, err)
	}
	if a != nil && closes {
		a.Close()
	}
}

// hasAcked returns a check that opens a log: it has the records that were acknowledged.
func hasAcked(o Options) func(*powercut.State, string) error {
	return func(st *powercut.State, _ string) error {
		a, err := tryMem(after(st), o)
		if err != nil {
			return err
		}
		defer a.Close()
		found := map[string]bool{}
		for r, err := range a.Records(Position{}) {
			if err != nil {
				return err
			}
			found[string(r.Data)] = true
		}
		for d := range st.Acked {
			if !found[d] {
				return fmt.Errorf("%s was acknowledged and is not there", d)
			}
		}
		return nil
	}
}

// counting opens a log, appends numbers with a few rotations, and closes it. It reports
// whether all of that succeeded.
func counting(s *memStore, o Options, first int) bool {
	a, err := tryMem(s, o)
	if err != nil {
		return false
	}
	for i := range 5 {
		d := strconv.Itoa(first + i)
		if _, err = a.Append([]byte(d)); err != nil {
			break
		}
		s.ask(powercut.Op{Kind: powercut.Ack, Name: d, Off: 1})
		if i%2 == 1 && a.Rotate() != nil {
			break
		}
	}
	return a.Close() == nil
}

var errPowerCut = errors.New("the power is off")

func powerCuts(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	o := Options{SegmentSize: 4096 + rng.Int64N(8192), Ahead: -1 + rng.IntN(2)*9000, Sync: SyncMode(rng.IntN(2))}
	s := newMemStore()
	l := newLedger()
	for life := range 5 {
		left := rng.IntN(120)
		s.fault = func(c memCall) memFault {
			if left--; left > 0 {
				return memFault{}
			}
			f := memFault{err: errPowerCut}
			if c.data > 0 && left == 0 {
				f.written = rng.IntN(c.data + 1)
			}
			if c.op == "mark write" { // inside a sector: all of it or nothing
				f.written -= f.written % c.data
			}
			return f
		}
		a, err := tryMem(s, o)
		if err == nil {
			l.recovered(a)
			l.life(t, a, life, rng.IntN(3) > 0)
			if err = a.Close(); err == nil && left <= 0 {
				t.Errorf("run %d: Close succeeded without power", life)
			}
		} else if !errors.Is(err, errPowerCut) {
			t.Fatalf("run %d: %v", life, err)
		}
		if rng.IntN(3) == 0 {
			s = s.restart()
		} else {
			s = s.crash(rng)
		}
		b := openMem(t, s.restart(), o) // a copy: the next run recovers by itself
		l.check(t, b)
		mustClose(t, b)
	}
}

// recovered records the content of an opened log, which must stay.
func (l *ledger) recovered(a *Log) {
	for r, err := range a.Records(Position{}) {
		if err != nil {
			return
		}
		l.note(string(r.Data), r.Position, nil)
	}
}

// life appends records and batches from a few goroutines until the power fails.
func (l *ledger) life(t *testing.T, a *Log, life int, batches bool) {
	t.Helper()
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			for i := range 30 {
				d := []byte(fmt.Sprintf("%d/%d/%d %s", life, g, i, strings.Repeat("y", (i*61)%900)))
				if batches && i%5 == 0 {
					l.batch(a, d)
					continue
				}
				pos, err := a.Append(d)
				l.note(string(d), pos, err)
			}
		})
	}
	wg.Wait()
}

// batch appends two records as one.
func (l *ledger) batch(a *Log, d []byte) {
	two := [][]byte{append([]byte("first "), d...), append([]byte("second "), d...)}
	pos, err := a.AppendBatch(two)
	l.note(string(two[0]), pos, err)
	if err == nil {
		pos.Offset += recordSize(len(two[0]))
		pos.Seq++
	}
	l.note(string(two[1]), pos, err)
}
