// SPDX-License-Identifier: MIT

package stress

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/unet"
	"github.com/ringside-io/ringside/unet/event"
)

var soakFlag = flag.Duration("soak", 0, "how long TestSoak lasts, in rounds of at most half a minute; 0: three short rounds")

// soaker runs all packages at the same time, in rounds. At the end of a round everything is
// closed, and no descriptor and no goroutine may remain. Over the rounds memory may not grow.
type soaker struct {
	seed       uint64
	before     resources
	memory     []int64 // heap at the end of each round
	extra      func()  // a seeded bug
	spoil      func(p []byte)
	patience   time.Duration // for what remains at the end of a round
	operations atomic.Int64

	mu       sync.Mutex
	problems []string
}

// resources are those of the process.
type resources struct {
	descriptors, goroutines int
	heap                    int64
}

// TestSoak runs for as long as the flag -soak says:
//
//	go test ./internal/testing/stress -run 'TestSoak$' -soak 1h -timeout 0 -v
func TestSoak(t *testing.T) {
	ringtest.NeedKernel(t, "DEFER_TASKRUN", "6.1")
	rounds, length := 3, 100*time.Millisecond
	if *soakFlag > 0 {
		rounds = 12
		if length = *soakFlag / 12; length > 30*time.Second {
			rounds, length = int(*soakFlag/(30*time.Second)), 30*time.Second
		}
	}
	s := &soaker{seed: max(*fromFlag, 1), patience: ringtest.Patience}
	for i := range rounds {
		if s.round(t.TempDir(), i, length); len(s.problems) > 0 {
			t.Fatal(strings.Join(s.problems, "\n"))
		}
		t.Logf("round %d: %d operations, %+v", i+1, s.operations.Load(), look())
	}
}

// problem records a failure.
func (s *soaker) problem(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.problems) < mostProblems {
		s.problems = append(s.problems, fmt.Sprintf(format, args...))
	}
}

// round runs everything for a time, and judges what remains.
func (s *soaker) round(dir string, number int, length time.Duration) {
	if number == 0 {
		s.before = rest()
	}
	ctx, stop := context.WithTimeout(context.Background(), length)
	defer stop()
	over := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return ctx.Err() != nil || len(s.problems) > 0
	}
	var all sync.WaitGroup
	for i := range 2 * runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for k := uint64(1); !over(); k++ {
				s.scenario(dir, s.seed<<32|uint64(number)<<24|uint64(i)<<16|k)
			}
		})
	}
	for i, mode := range []event.Mode{event.ModeRing, event.ModeEpoll} {
		all.Go(func() { s.echo(mode, over, rand.New(rand.NewPCG(s.seed, uint64(number*2+i)))) })
	}
	all.Go(func() { s.http(over) })
	all.Wait()
	if s.extra != nil {
		s.extra()
	}
	s.judgeLeft(number)
}

// scenario runs one scenario.
func (s *soaker) scenario(dir string, seed uint64) {
	sc := Generate("kernel", seed, Size{40, 20}, func(rng *rand.Rand) Settings {
		set := KernelSettings(rng)
		set[Beside], set["tcp"] = 1, 1
		return set
	})
	dir, err := os.MkdirTemp(dir, "")
	if err != nil {
		s.problem("%v", err)
		return
	}
	defer os.RemoveAll(dir)
	w, err := NewKernelEnv(sc, dir)
	if err != nil {
		s.problem("scenario %d: %v", seed, err)
		return
	}
	r := Run(w, sc)
	s.operations.Add(r.Operations)
	if r.Failed() {
		s.problem("scenario %d: %s\n%s\nreplay: %s", seed, strings.Join(r.Problems, "\n"), r.Hung, sc)
	}
}

// echo runs a server of package event, and eight clients of package unet.
func (s *soaker) echo(mode event.Mode, over func() bool, random *rand.Rand) {
	server, err := event.Listen("tcp", "127.0.0.1:0", event.Handler{OnData: func(c *event.Conn, p []byte) {
		if s.spoil != nil {
			s.spoil(p)
		}
		_, _ = c.Write(p) // the client detects a failure
	}}, event.Options{Mode: mode})
	if err != nil {
		s.problem("event: %v", err)
		return
	}
	var clients sync.WaitGroup
	for range 8 {
		random := rand.New(rand.NewPCG(random.Uint64(), 0))
		clients.Go(func() {
			for !over() {
				if err := s.echoClient(server.Addr().String(), over, random); err != nil {
					s.problem("echo of event: %v", err)
				}
			}
		})
	}
	clients.Wait()
	ctx, stop := context.WithTimeout(context.Background(), ringtest.Patience)
	defer stop()
	if err := server.Shutdown(ctx); err != nil {
		s.problem("shutdown of event: %v", err)
	}
}

// echoClient runs one connection: numbered bytes in messages of any length.
func (s *soaker) echoClient(addr string, over func() bool, random *rand.Rand) (err error) {
	c, err := unet.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	_ = c.SetDeadline(time.Now().Add(2 * ringtest.Patience))
	buf := make([]byte, 48<<10)
	next := random.Uint64() >> 1
	for range 1 + random.IntN(200) {
		if over() {
			return nil
		}
		p := buf[:1+random.IntN(len(buf)>>random.IntN(10))]
		Bytes(p, next)
		if _, err := c.Write(p); err != nil {
			return err
		}
		if n, err := io.ReadFull(c, p); err != nil {
			return fmt.Errorf("%d of %d bytes came back: %w", n, len(p), err)
		}
		if at, wrong := differs(p, next); wrong {
			return fmt.Errorf("wrong byte: number %d", at)
		}
		next += uint64(len(p))
		s.operations.Add(1)
	}
	return nil
}

// http runs net/http on package unet, server and clients.
func (s *soaker) http(over func() bool) {
	listener, err := unet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.problem("%v", err)
		return
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		p, _ := io.ReadAll(q.Body)
		_, _ = w.Write(p) // the client detects a failure
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	transport := &http.Transport{DialContext: (&unet.Dialer{}).DialContext, MaxIdleConnsPerHost: 4}
	client := &http.Client{Transport: transport, Timeout: 2 * ringtest.Patience}
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() {
			for n := 1; !over(); n = n*3%(64<<10-1) + 1 {
				if err := request(client, "http://"+listener.Addr().String(), uint64(i)<<40, n); err != nil {
					s.problem("net/http: %v", err)
				}
				s.operations.Add(1)
			}
		})
	}
	clients.Wait()
	transport.CloseIdleConnections()
	if err := server.Shutdown(context.Background()); err != nil {
		s.problem("shutdown of net/http: %v", err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		s.problem("net/http: %v", err)
	}
}

// request posts n numbered bytes, and checks those that come back.
func request(client *http.Client, url string, first uint64, n int) error {
	p := make([]byte, n)
	Bytes(p, first)
	res, err := client.Post(url, "application/octet-stream", bytes.NewReader(p))
	if err != nil {
		return err
	}
	got, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return err
	}
	if !bytes.Equal(got, p) {
		return fmt.Errorf("%d bytes came back for %d, or others", len(got), n)
	}
	return nil
}

// look counts the resources of the process.
func look() resources {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	n, _ := descriptors() // it cannot fail where the scenarios work
	return resources{n, runtime.NumGoroutine(), int64(m.HeapInuse)}
}

// linger is more than the time for which idle rings of ufile and unet stay open.
const linger = 1500 * time.Millisecond

// rest returns the resources when they have not changed for a while: idle rings have been closed.
func rest() resources {
	was, since := look(), time.Now()
	for begin := since; time.Since(since) < linger && time.Since(begin) < ringtest.Patience; time.Sleep(50 * time.Millisecond) {
		runtime.GC()
		if now := look(); now.descriptors != was.descriptors || now.goroutines != was.goroutines {
			was, since = now, time.Now()
		}
	}
	return was
}

// judgeLeft waits for resources to be released, and judges those that are not.
func (s *soaker) judgeLeft(number int) {
	left := look()
	for end, wait := time.Now().Add(s.patience), time.Millisecond; ; time.Sleep(wait) {
		wait = min(2*wait, 100*time.Millisecond)
		runtime.GC() // closes files without a reference, and empties pools
		left = look()
		if left.descriptors <= s.before.descriptors && left.goroutines <= s.before.goroutines || time.Now().After(end) {
			break
		}
	}
	if n := left.descriptors - s.before.descriptors; n > 0 {
		s.problem("leak: %d descriptors in round %d", n, number+1)
	}
	if n := left.goroutines - s.before.goroutines; n > 0 {
		stacks := make([]byte, 1<<20)
		s.problem("leak: %d goroutines in round %d\n%s", n, number+1, stacks[:runtime.Stack(stacks, true)])
	}
	debug.FreeOSMemory()
	s.memory = append(s.memory, look().heap)
	if first, last, grown := growth(s.memory); grown {
		s.problem("leak: the heap has grown from %d to %d bytes in %d rounds", first, last, number+1)
	}
}

// growth compares the most bytes in the last third of the rounds with the most in the first third,
// after a warm-up of a sixth. A quarter and 4 MiB more are accepted.
func growth(rounds []int64) (first, last int64, grown bool) {
	const fewest = 6
	if len(rounds) > 0 {
		rounds = rounds[max(1, len(rounds)/6):]
	}
	if len(rounds) < fewest {
		return 0, 0, false
	}
	third := len(rounds) / 3
	first, last = slices.Max(rounds[:third]), slices.Max(rounds[len(rounds)-third:])
	return first, last, last > first+first/4+4<<20
}

// Promise: cli/soak-fails-wrong
func TestGrowth(t *testing.T) {
	for _, tc := range []struct {
		name  string
		n     int
		at    func(i int) int64
		grown bool
	}{
		{"nothing", 0, nil, false},
		{"too few", 6, func(i int) int64 { return int64(100 * i) }, false},
		{"flat", 20, func(int) int64 { return 50 }, false},
		{"saw", 20, func(i int) int64 { return 50 + int64(i%4)*3 }, false},
		{"warm-up", 24, func(i int) int64 { return min(100, int64(i)*30) }, false},
		{"steady", 20, func(i int) int64 { return 50 + int64(i)*4 }, true},
		{"late", 20, func(i int) int64 { return 50 + int64(i)/17*60 }, true},
	} {
		var rounds []int64
		for i := range tc.n {
			rounds = append(rounds, tc.at(i)<<20)
		}
		if first, last, grown := growth(rounds); grown != tc.grown {
			t.Errorf("%s: %d to %d, grown %v", tc.name, first, last, grown)
		}
	}
}

// TestSoakFindsSeededBugs checks that a round finds each seeded bug.
// Promise: cli/soak-fails-wrong
func TestSoakFindsSeededBugs(t *testing.T) {
	ringtest.NeedKernel(t, "DEFER_TASKRUN", "6.1")
	hang := make(chan struct{})
	var grown []byte
	small := slices.Repeat([]int64{4 << 20}, 8) // of earlier rounds
	for _, tc := range []struct {
		says   string
		length time.Duration
		s      *soaker
	}{
		{"wrong byte", ringtest.Patience, &soaker{spoil: func(p []byte) { p[len(p)/2]++ }}},
		{"leak: 1 descriptors in round 1\nleak: 1 goroutines", 20 * time.Millisecond, &soaker{extra: func() {
			go func() { <-hang }()
			fd, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Close(fd) })
		}}},
		{"leak: the heap has grown", 20 * time.Millisecond, &soaker{memory: small, extra: func() { grown = make([]byte, 64<<20) }}},
	} {
		tc.s.seed, tc.s.patience = 7, 2*linger
		tc.s.round(t.TempDir(), 0, tc.length)
		if !strings.Contains(strings.Join(tc.s.problems, "\n"), tc.says) {
			t.Errorf("no %q in %q", tc.says, tc.s.problems)
		}
	}
	close(hang)
	runtime.KeepAlive(grown)
}
