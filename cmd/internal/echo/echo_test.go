// SPDX-License-Identifier: MIT

package echo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/loadgen"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// roleEnv makes the test binary act as one of the processes of a round.
const roleEnv = "RINGSIDE_ECHO_ROLE"

func TestMain(m *testing.M) {
	role, engine, _ := strings.Cut(os.Getenv(roleEnv), " ")
	var err error
	switch role {
	case "":
		os.Exit(m.Run())
	case "server":
		var setup Setup
		if err = json.Unmarshal([]byte(engine), &setup); err == nil {
			err = Serve(setup, os.Stdin, os.Stdout)
		}
	case "load":
		err = ServeLoad(context.Background(), os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// needProgram skips the test if the program is not installed, as on Windows and in virtual machines
// that only have the tests.
func needProgram(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("needs %s(1): %v", name, err)
	}
}

// asRole starts the test binary in a role.
func asRole(t *testing.T, role string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	needProgram(t, "env")
	// With the race detector each exit would take a second.
	return []string{"env", roleEnv + "=" + role, "GORACE=atexit_sleep_ms=0", self}
}

func engines(t *testing.T) []string {
	names := []string{NameStd, NameEvent, NameConn}
	if runtime.GOOS == "linux" {
		names = append(names, NamePlain, NameEpoll)
	}
	return names
}

func datagramEngines() []string {
	names := []string{NameStd, NameConn, NamePlain, NameEvent, NameEpoll, NameBatch}
	if starters[NameXNet] != nil { // with -tags peers
		names = append(names, NameXNet)
	}
	return names
}

func TestEnginesEcho(t *testing.T) {
	for _, name := range engines(t) {
		t.Run(name, func(t *testing.T) {
			s, err := Start(Setup{Engine: name})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			c, err := net.Dial("tcp", s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(ringtest.Patience))
			p := bytes.Repeat([]byte("0123456789"), 2000)
			if _, err := c.Write(p); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(p))
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, p) {
				t.Errorf("came back changed, or not: %v", err)
			}
			if backend, _ := s.Backend(); backend == "" {
				t.Error("no backend")
			}
		})
	}
	if _, err := Start(Setup{Engine: "abacus"}); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown engine: %v", err)
	}
	if _, err := Start(Setup{Engine: NameBatch}); err == nil {
		t.Error("an engine of datagrams was started for streams")
	}
}

// runner runs the test binary as both processes.
func runner(t *testing.T) Runner {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs the load generator, which needs epoll")
	}
	return Runner{
		Server: func(s Setup) []string {
			b, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			return asRole(t, "server "+string(b))
		},
		Load: asRole(t, "load"),
	}
}

func TestRound(t *testing.T) {
	r := runner(t)
	job := loadgen.Job{Connections: 3, Size: 100, Warm: 5 * time.Millisecond, Measure: 40 * time.Millisecond}
	for _, name := range engines(t) {
		longEnough(t, r, Setup{Engine: name}, job, func(s Sample) bool {
			entered := name != NameEvent || s.Backend != "io_uring" || s.Enters > 0
			return s.Ops > 0 && s.CPU > 0 && s.Go && s.Backend != "" && entered
		})
	}
	if _, err := r.Round(t.Context(), Setup{Engine: "abacus"}, job); err == nil || !strings.Contains(err.Error(), "abacus") {
		t.Errorf("unknown engine: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	job.Measure = time.Minute
	if _, err := r.Round(ctx, Setup{Engine: NameStd}, job); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a cancelled context: %v", err)
	}
}

// longEnough doubles the window, in which little happens on a busy machine, until the round
// succeeds.
func longEnough(t *testing.T, r Runner, setup Setup, job loadgen.Job, ok func(Sample) bool) {
	t.Helper()
	for ; ; job.Measure *= 2 {
		s, err := r.Round(t.Context(), setup, job)
		switch {
		case err != nil:
			t.Fatalf("%s: %v", setup.Engine, err)
		case ok(s):
			return
		case job.Measure > 5*time.Second:
			t.Fatalf("%s: %+v", setup.Engine, s)
		}
	}
}

func TestRoundsOfGoServers(t *testing.T) {
	r := runner(t)
	job := loadgen.Job{Connections: 3, Size: 100, Warm: 5 * time.Millisecond, Measure: 40 * time.Millisecond}
	web := job
	web.HTTP = true
	for _, name := range []string{NameStd, NameConn} {
		longEnough(t, r, Setup{Engine: name, HTTP: 500}, web, func(s Sample) bool { return s.Ops > 0 })
		longEnough(t, r, Setup{Engine: name, Procs: 1, Work: Work{Sleep: time.Millisecond}}, job, func(s Sample) bool {
			return s.Ops > 0 && s.P50 >= time.Millisecond
		})
	}
	if _, err := r.Round(t.Context(), Setup{Engine: NameEvent, HTTP: 500}, web); err == nil {
		t.Error("an engine without a net.Listener was accepted for HTTP")
	}
}

func TestProcsOfTheServer(t *testing.T) {
	needProgram(t, "sh")
	c, err := startChild(t.Context(), []string{"sh", "-c", "echo $GOMAXPROCS"}, 3, false, true)
	if err != nil {
		t.Fatal(err)
	}
	var got int
	if err := c.out.Decode(&got); err != nil || got != 3 {
		t.Errorf("%d, %v", got, err)
	}
	if err := c.end(false); err != nil {
		t.Error(err)
	}
}

func TestRoundWith(t *testing.T) {
	r := runner(t)
	s, err := r.RoundWith(t.Context(), Setup{Engine: NameStd}, func(addr string) (loadgen.Result, error) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return loadgen.Result{}, err
		}
		_, err = io.WriteString(c, "x")
		_, readErr := c.Read(make([]byte, 1))
		return loadgen.Result{Ops: 7}, errors.Join(err, readErr, c.Close())
	})
	if err != nil || s.Ops != 7 || s.CPU <= 0 || s.Backend != "net" {
		t.Errorf("%+v, %v", s, err)
	}
	broken := errors.New("broken")
	if _, err := r.RoundWith(t.Context(), Setup{Engine: NameStd}, func(string) (loadgen.Result, error) {
		return loadgen.Result{}, broken
	}); !errors.Is(err, broken) {
		t.Errorf("a client that fails: %v", err)
	}
}

func TestIdle(t *testing.T) {
	r := runner(t)
	job := IdleJob{Connections: 100, Window: 20 * time.Millisecond, Settle: time.Millisecond}
	for _, name := range []string{NameStd, NameConn, NameEvent} {
		s, err := r.Idle(t.Context(), Setup{Engine: name, Buffer: 8 << 10}, job)
		if err != nil || !s.Go || s.Elapsed < job.Window || s.Sleeps < 0 || s.Backend == "" {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if name == NameStd && (s.Live < 8<<10 || s.Live > 64<<10) {
			t.Errorf("%s: %.0f bytes for a connection with a buffer of 8 KiB", name, s.Live)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	job.Window = time.Minute
	if _, err := r.Idle(ctx, Setup{Engine: NameStd}, job); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a cancelled context: %v", err)
	}
}

func TestWork(t *testing.T) {
	if n := SpinsPerMicrosecond(); n < 1 || n > 1e5 {
		t.Errorf("%.0f steps in a microsecond", n)
	}
	begin := time.Now()
	Work{Spins: 10, Sleep: time.Millisecond}.do()
	if time.Since(begin) < time.Millisecond {
		t.Error("Sleep returned at once")
	}
}

// TestRoundsOfFurtherLoads measures each engine with every kind of load that it serves.
func TestRoundsOfFurtherLoads(t *testing.T) {
	r := runner(t)
	base := loadgen.Job{Connections: 3, Size: 100, Warm: 5 * time.Millisecond, Measure: 40 * time.Millisecond}
	some := func(s Sample) bool { return s.Ops > 0 && s.CPU > 0 }
	for _, name := range engines(t) {
		longEnough(t, r, Setup{Engine: name, Network: "unix"}, base, some)
		for _, set := range []func(*loadgen.Job){
			func(j *loadgen.Job) { j.Pipeline = 16 },
			func(j *loadgen.Job) { j.Churn = true },
		} {
			job := base
			set(&job)
			longEnough(t, r, Setup{Engine: name}, job, some)
		}
	}
	for _, name := range datagramEngines() {
		longEnough(t, r, Setup{Engine: name, Network: "udp"}, base, some)
		large := base
		large.Connections, large.Size = 1, 65_507
		longEnough(t, r, Setup{Engine: name, Network: "udp", Buffer: 64 << 10}, large, some)
		bulk := base
		bulk.Reply, bulk.Burst = 1200, 64
		longEnough(t, r, Setup{Engine: name, Network: "udp", Give: 1200, Burst: 64}, bulk, some)
	}
	for _, name := range []string{NameStd, NameConn, NamePlain, NameEvent} {
		job := base
		job.TLS = true
		longEnough(t, r, Setup{Engine: name, TLS: true}, job, some)
	}
	for _, name := range []string{NameStd, NameConn, NameEvent} {
		in, out := base, base
		in.Size, in.Reply = 200_000, 1
		longEnough(t, r, Setup{Engine: name, Take: in.Size, Give: 1}, in, some)
		out.Size, out.Reply, out.Discard = 1, 200_000, true
		longEnough(t, r, Setup{Engine: name, Take: 1, Give: out.Reply}, out, some)
	}
	for _, name := range []string{NameStd, NameConn, NamePlain, NameEvent, NameEpoll} {
		longEnough(t, r, Setup{Engine: name, Computing: 2}, base, func(s Sample) bool { return some(s) && s.Units > 0 && s.At > 0 })
	}
	for _, name := range []string{NameStd, NameConn, NamePlain} {
		longEnough(t, r, Setup{Engine: name, Dial: base.Size}, base, some)
	}
	if runtime.NumCPU() > 1 {
		longEnough(t, r, Setup{Engine: NameStd, Pin: true}, base, func(s Sample) bool { return some(s) && s.Busy > 0 })
	}
}
