// SPDX-License-Identifier: MIT

package appendlog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestConcurrent makes many appends over small segments: the records of each goroutine are
// in order, at the positions that their appends returned, which grow.
func TestConcurrent(t *testing.T) {
	const goroutines = 64
	each := ringtest.Rounds(1000, 150)
	dir := t.TempDir()
	o := Options{SegmentSize: 256 << 10}
	a, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	var told [goroutines][]Position
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			p := make([]byte, 16+g)
			told[g] = make([]Position, each)
			for i := range each {
				binary.LittleEndian.PutUint64(p, uint64(g))
				binary.LittleEndian.PutUint64(p[8:], uint64(i))
				pos, err := a.Append(p)
				if err != nil {
					t.Error(err)
					return
				}
				if end := a.End(); end.Compare(pos) <= 0 {
					t.Errorf("record at %+v was acknowledged while the log ends at %+v", pos, end)
				}
				told[g][i] = pos
			}
		})
	}
	wg.Wait()
	st := a.Stats()
	if st.Records != uint64(goroutines*each) || st.Groups >= st.Records || st.LargestGroup < 2 || st.Rotations == 0 {
		t.Errorf("stats %+v", st)
	}
	mustClose(t, a)
	a, err = Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, a)
	var next [goroutines]int
	var last Position
	for r, err := range a.Records(Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		g := binary.LittleEndian.Uint64(r.Data)
		i := int(binary.LittleEndian.Uint64(r.Data[8:]))
		if i != next[g] || told[g][i] != r.Position || len(r.Data) != 16+int(g) {
			t.Fatalf("goroutine %d: record %d at %+v, want %d at %+v", g, i, r.Position, next[g], told[g][i])
		}
		if last.Compare(r.Position) >= 0 {
			t.Fatalf("%+v follows %+v", r.Position, last)
		}
		last = r.Position
		next[g]++
	}
	for g, n := range next {
		if n != each {
			t.Errorf("goroutine %d: %d records", g, n)
		}
	}
}

// gate makes the syncs of a store wait until they are released.
func gate(s *memStore) (entered, pass chan struct{}) {
	entered, pass = make(chan struct{}), make(chan struct{})
	s.fault = func(c memCall) memFault {
		if c.op == "sync" {
			s.mu.Unlock()
			entered <- struct{}{}
			<-pass
			s.mu.Lock()
			return memFault{err: s.gateErr}
		}
		return memFault{}
	}
	return entered, pass
}

// waitQueued waits until n appends are in the queue.
func waitQueued(a *Log, n int) {
	for a.Stats().Waiting != n {
		runtime.Gosched()
	}
}

// TestOneSyncServesAll holds a leader in its sync while other appends arrive: they form one
// group, in the order in which they arrived.
func TestOneSyncServesAll(t *testing.T) {
	s := newMemStore()
	a := openMem(t, s, Options{})
	entered, pass := gate(s)
	var wg sync.WaitGroup
	want := numbered("record", 10)
	for i, d := range want {
		wg.Go(func() {
			if _, err := a.Append([]byte(d)); err != nil {
				t.Error(err)
			}
		})
		if i == 0 {
			<-entered
		} else {
			waitQueued(a, i)
		}
	}
	pass <- struct{}{}
	<-entered
	pass <- struct{}{}
	wg.Wait()
	s.fault = nil
	if st := a.Stats(); st.Groups != 2 || st.Syncs != 2 || st.LargestGroup != len(want)-1 {
		t.Errorf("stats %+v, want 2 groups", st)
	}
	if got := contents(t, a); !slices.Equal(got, want) {
		t.Errorf("records %q", got)
	}
	mustClose(t, a)
}

func TestAppendContext(t *testing.T) {
	s := newMemStore()
	a := openMem(t, s, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	put(t, a, "before")
	entered, pass := gate(s)
	results := make([]chan error, 4)
	do := func(i int, ctx context.Context, d string) {
		results[i] = make(chan error, 1)
		go func() {
			_, err := a.AppendContext(ctx, []byte(d))
			results[i] <- err
		}()
	}
	do(0, ctx, "taken")
	<-entered
	do(1, ctx, "withdrawn")
	waitQueued(a, 1)
	do(2, t.Context(), "kept")
	waitQueued(a, 2)
	cancel()
	if err := <-results[1]; !errors.Is(err, context.Canceled) {
		t.Errorf("an append in the queue: %v, want Canceled", err)
	}
	do(3, ctx, "never")
	if err := <-results[3]; !errors.Is(err, context.Canceled) {
		t.Errorf("an append with a cancelled context: %v, want Canceled", err)
	}
	pass <- struct{}{}
	if err := <-results[0]; err != nil {
		t.Errorf("an append that a leader had taken: %v", err)
	}
	<-entered
	pass <- struct{}{}
	if err := <-results[2]; err != nil {
		t.Error(err)
	}
	s.fault = nil
	if got := contents(t, a); !slices.Equal(got, []string{"before", "taken", "kept"}) {
		t.Errorf("records %q", got)
	}
	mustClose(t, a)
}

// TestWithdrawFromGroup withdraws some of the calls of a group, among them the one that was
// to lead it, with payloads inside and outside of the group's buffer. The others have the
// positions at which their records are read.
func TestWithdrawFromGroup(t *testing.T) {
	sizes := []int{0, 1, maxInline, maxInline + 1, 3 * maxInline, 7}
	for seed := range uint64(ringtest.Rounds(60, 20)) {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := newMemStore()
		a := openMem(t, s, Options{})
		entered, pass := gate(s)
		ctx, cancel := context.WithCancel(t.Context())
		type result struct {
			pos     Position
			records [][]byte
			err     error
		}
		const calls = 9
		results := make([]chan result, calls)
		ended := make([]bool, calls)
		for i := range calls {
			results[i] = make(chan result, 1)
			ended[i] = i > 0 && rng.IntN(2) == 0
			own := t.Context()
			if ended[i] {
				own = ctx
			}
			var records [][]byte
			for k := range 1 + rng.IntN(3) {
				p := bytes.Repeat([]byte{byte(1 + i*8 + k)}, sizes[rng.IntN(len(sizes))])
				records = append(records, p)
			}
			go func() {
				pos, err := a.AppendBatchContext(own, records)
				results[i] <- result{pos, records, err}
			}()
			if i == 0 {
				<-entered
			} else {
				waitQueued(a, i)
			}
		}
		cancel()
		for i, gone := range ended {
			if gone {
				r := <-results[i]
				if !errors.Is(r.err, context.Canceled) {
					t.Fatalf("seed %d: call %d: %v, want Canceled", seed, i, r.err)
				}
				for _, p := range r.records {
					clear(p) // the caller's again
				}
			}
		}
		s.mu.Lock()
		s.fault = nil
		s.mu.Unlock()
		pass <- struct{}{}
		want := map[Position][]byte{}
		for i, gone := range ended {
			if gone {
				continue
			}
			r := <-results[i]
			if r.err != nil {
				t.Fatal(r.err)
			}
			pos := r.pos
			for _, p := range r.records {
				want[pos] = p
				pos.Offset += recordSize(len(p))
				pos.Seq++
			}
		}
		found := 0
		for r, err := range a.Records(Position{}) {
			if err != nil {
				t.Fatal(err)
			}
			if p, ok := want[r.Position]; !ok || !bytes.Equal(p, r.Data) {
				t.Fatalf("seed %d: %d bytes at %+v, want %d (%v)", seed, len(r.Data), r.Position, len(p), ok)
			}
			found++
		}
		if st := a.Stats(); found != len(want) || st.Records != uint64(found) || st.Waiting != 0 {
			t.Errorf("seed %d: %d records, want %d; stats %+v", seed, found, len(want), st)
		}
		mustClose(t, a)
	}
}

// TestWithdrawnGroupsLeave withdraws, in random order, all calls of groups that wait for a stalled
// leader: the queue keeps neither the groups nor goroutines. A group of which a call is left stays.
func TestWithdrawnGroupsLeave(t *testing.T) {
	for seed := range uint64(ringtest.Rounds(40, 10)) {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := newMemStore()
		a := openMem(t, s, Options{})
		entered, pass := gate(s)
		first, kept := make(chan error, 1), make(chan error, 1)
		go func() { _, err := a.Append([]byte("first")); first <- err }()
		<-entered
		const calls = 24
		stays := int(seed%2) * (1 + rng.IntN(calls)) // 0: all calls are withdrawn
		ends, ended := make([]context.CancelFunc, calls), make(chan error, calls)
		for i := range calls {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ends[i] = cancel
			result := ended
			if i+1 == stays {
				result = kept
			}
			go func() { _, err := a.AppendContext(ctx, make([]byte, maxGroup/3)); result <- err }()
			waitQueued(a, i+1)
		}
		goroutines := runtime.NumGoroutine()
		for _, i := range rng.Perm(calls) {
			if i+1 != stays {
				ends[i]()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Fatalf("seed %d: %v, want Canceled", seed, err)
				}
			}
		}
		want := min(stays, 1)
		a.mu.Lock()
		groups := 0
		for g, before := a.queue.first, (*group)(nil); g != nil; g, before = g.next, g {
			if groups++; g.before != before {
				t.Errorf("seed %d: the queue's links do not agree", seed)
			}
		}
		a.mu.Unlock()
		if n := a.Stats().Waiting; groups != want || n != want {
			t.Fatalf("seed %d: %d calls in %d groups wait, want %d", seed, n, groups, want)
		}
		for runtime.NumGoroutine() > goroutines-calls+want {
			runtime.Gosched()
		}
		s.mu.Lock()
		s.fault = nil
		s.mu.Unlock()
		pass <- struct{}{}
		if err := <-first; err != nil {
			t.Error(err)
		}
		if stays > 0 {
			if err := <-kept; err != nil {
				t.Error(err)
			}
		}
		if st := a.Stats(); st.Records != uint64(1+want) || st.Waiting != 0 {
			t.Errorf("seed %d: stats %+v", seed, st)
		}
		put(t, a, "no append leads")
		mustClose(t, a)
	}
}

// TestWithdrawTheLead cancels all appends at random moments, among them those that were
// just chosen to lead. There must always be a leader, and a record is in the log exactly
// when its append succeeded.
func TestWithdrawTheLead(t *testing.T) {
	ringtest.AsksNoKernel(t)
	const goroutines, each = 16, 300
	a := openMem(t, newMemStore(), Options{Ahead: -1})
	var acked [goroutines]map[string]bool
	var wg sync.WaitGroup
	for g := range goroutines {
		acked[g] = map[string]bool{}
		wg.Go(func() {
			for i := range each {
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					for range (g + i) % 7 {
						runtime.Gosched()
					}
					cancel()
				}()
				d := fmt.Sprintf("%d/%d", g, i)
				_, err := a.AppendContext(ctx, []byte(d))
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				acked[g][d] = err == nil
				cancel()
			}
		})
	}
	wg.Wait()
	found := map[string]bool{}
	for _, d := range contents(t, a) {
		found[d] = true
	}
	for g := range acked {
		for d, ok := range acked[g] {
			if found[d] != ok {
				t.Errorf("%s: acknowledged %v, found %v", d, ok, found[d])
			}
		}
	}
	put(t, a, "no append leads")
	mustClose(t, a)
}

// TestCloseRacesAppend closes the log under load: each append is durable or refused.
func TestCloseRacesAppend(t *testing.T) {
	ringtest.AsksNoKernel(t)
	for round := range 50 {
		s := newMemStore()
		a := openMem(t, s, Options{Ahead: -1})
		var mu sync.Mutex
		var acked []string
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := 0; ; i++ {
					d := fmt.Sprintf("%d/%d", g, i)
					_, err := a.Append([]byte(d))
					if errors.Is(err, os.ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					acked = append(acked, d)
					mu.Unlock()
				}
			})
		}
		for a.Stats().Records < uint64(round) {
			runtime.Gosched()
		}
		mustClose(t, a)
		if err := a.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("a second Close: %v", err)
		}
		wg.Wait()
		b := openMem(t, s, Options{Ahead: -1})
		found := contents(t, b)
		slices.Sort(found)
		slices.Sort(acked)
		if !slices.Equal(found, acked) {
			t.Fatalf("%d records acknowledged, %d found", len(acked), len(found))
		}
		mustClose(t, b)
	}
}

func TestClosed(t *testing.T) {
	a := openMem(t, newMemStore(), Options{Ahead: -1})
	put(t, a, "one")
	mustClose(t, a)
	_, appendErr := a.Append(nil)
	_, batchErr := a.AppendBatch([][]byte{nil})
	var readErr error
	for _, readErr = range a.Records(Position{}) {
	}
	for what, err := range map[string]error{"Append": appendErr, "AppendBatch": batchErr, "Sync": a.Sync(),
		"Rotate": a.Rotate(), "Records": readErr, "Trim": a.Trim(Position{}), "Close": a.Close()} {
		var path *fs.PathError
		if !errors.Is(err, os.ErrClosed) || !errors.As(err, &path) {
			t.Errorf("%s of a closed log: %v", what, err)
		}
	}
}

func TestAppendLimits(t *testing.T) {
	a := openMem(t, newMemStore(), Options{SegmentSize: 4096, MaxRecord: 1000})
	defer mustClose(t, a)
	if _, err := a.Append(make([]byte, 1000)); err != nil {
		t.Error(err)
	}
	if _, err := a.Append(make([]byte, 1001)); !errors.Is(err, ErrRecordTooLarge) {
		t.Errorf("a record over the limit: %v", err)
	}
	if _, err := a.AppendBatch([][]byte{nil, make([]byte, 1001)}); !errors.Is(err, ErrRecordTooLarge) {
		t.Errorf("a batch with a record over the limit: %v", err)
	}
	big := slices.Repeat([][]byte{make([]byte, 1000)}, 4)
	if _, err := a.AppendBatch(big); !errors.Is(err, ErrRecordTooLarge) {
		t.Errorf("a batch larger than a segment: %v", err)
	}
	if _, err := a.AppendBatch(big[:3]); err != nil {
		t.Errorf("a batch that fits a new segment: %v", err)
	}
	if pos, err := a.AppendBatch(nil); err != nil || pos != a.End() {
		t.Errorf("an empty batch: %+v, %v", pos, err)
	}
	for _, o := range []Options{{SegmentSize: 1}, {SegmentSize: 2 << 30}, {MaxRecord: -1},
		{SegmentSize: 4096, MaxRecord: 4096}, {Prefix: "a/b"}, {Sync: 7}} {
		if _, err := Open(t.TempDir(), o); err == nil {
			t.Errorf("Open accepted the options %+v", o)
		}
	}
}

// TestSyncNone counts the syncs, and cuts the power before and after one.
func TestSyncNone(t *testing.T) {
	s := newMemStore()
	a := openMem(t, s, Options{Sync: SyncNone})
	syncs := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.calls["sync"]
	}
	begin := syncs()
	put(t, a, numbered("record", 5)...)
	if n := syncs(); n != begin {
		t.Errorf("appends made %d syncs, want 0", n-begin)
	}
	if err := errors.Join(a.Sync(), a.Sync()); err != nil || syncs() != begin+1 {
		t.Errorf("Sync: %v, %d syncs, want one", err, syncs()-begin)
	}
	put(t, a, "in doubt")
	b := openMem(t, after(s.disk.Least()), Options{})
	if got := contents(t, b); !slices.Equal(got, numbered("record", 5)) {
		t.Errorf("records %q", got)
	}
	begin = syncs()
	mustClose(t, a)
	if syncs() != begin+1 {
		t.Error("Close did not sync")
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	a, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, a)
	p := []byte(strings.Repeat("p", 100))
	batch := [][]byte{p, p, p}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls := map[string]func() error{
		"Append":        func() error { _, err := a.Append(p); return err },
		"AppendContext": func() error { _, err := a.AppendContext(ctx, p); return err },
		"AppendBatch":   func() error { _, err := a.AppendBatch(batch); return err },
	}
	for name, call := range calls {
		n := ringtest.Allocations(50, func() {
			if err := call(); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestManyAppendsAllocateGroups counts the allocations of 64 goroutines once their waiters
// exist: two for each group. The few allocations of the runtime for goroutines that park are
// permitted.
func TestManyAppendsAllocateGroups(t *testing.T) {
	const goroutines, each = 64, 100
	a, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, a)
	round := func() (mallocs uint64) {
		start := make(chan struct{})
		var ready, done sync.WaitGroup
		for range goroutines {
			ready.Add(1)
			done.Go(func() {
				p := make([]byte, 50)
				ready.Done()
				<-start
				for range each {
					if _, err := a.Append(p); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		ready.Wait()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		close(start)
		done.Wait()
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	round()
	before := a.Stats().Groups
	n := round()
	if groups := a.Stats().Groups - before; n > 2*groups+goroutines*each/20 {
		t.Errorf("%d allocations in %d groups of %d appends", n, groups, goroutines*each)
	}
}

// TestAheadIsWrittenOnce counts the writes: zeros are written ahead when the records reach
// the end of the earlier zeros, not with every record.
func TestAheadIsWrittenOnce(t *testing.T) {
	for _, c := range []struct{ ahead, writes int }{{-1, 20}, {len(zeros), 21}} {
		s := newMemStore()
		a := openMem(t, s, Options{Ahead: c.ahead})
		before := s.calls["write"]
		put(t, a, numbered("record", 20)...)
		if n := s.calls["write"] - before; n != c.writes {
			t.Errorf("ahead %d: %d writes, want %d", c.ahead, n, c.writes)
		}
		big := strings.Repeat("b", 100<<10)
		before = s.calls["write"]
		put(t, a, big, big)
		if n := s.calls["write"] - before; n != 2 {
			t.Errorf("ahead %d: %d writes for two large records", c.ahead, n)
		}
		mustClose(t, a)
	}
}

// TestDiskFullAhead fills the disk while zeros are written ahead: the log continues without
// them.
// Promise: appendlog/acknowledged-record-found
func TestDiskFullAhead(t *testing.T) {
	s := newMemStore()
	a := openMem(t, s, Options{Ahead: 4 * len(zeros)})
	s.fault = func(c memCall) memFault {
		if c.op == "write" && c.data == len(zeros) {
			return memFault{err: syscall.ENOSPC, written: 4096}
		}
		return memFault{}
	}
	want := numbered("record", 5)
	put(t, a, want...)
	f := s.only(t)
	if end := a.End().Offset; int64(len(f.data)) != end {
		t.Errorf("the segment has %d bytes, want %d: the zeros must be cut off", len(f.data), end)
	}
	if got := contents(t, a); !slices.Equal(got, want) {
		t.Errorf("records %q", got)
	}
	mustClose(t, a)
}
