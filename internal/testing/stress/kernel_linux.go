// SPDX-License-Identifier: MIT

package stress

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/appendlog"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/ufile"
	"github.com/ringside-io/ringside/unet"
	"github.com/ringside-io/ringside/watch"
)

// KernelEnv is an environment on the running kernel: files, pipes, connections and
// rings are real. With the setting "short" the process may lack descriptors and memory:
// code with a fallback may use it, and accepting continues when there are descriptors
// again.
type KernelEnv struct {
	s        *Scenario
	dir      string
	r        *reactor.Reactor
	files    *ufile.System
	raw      *os.File
	log      *appendlog.Log
	net      *unet.System
	listener net.Listener
	loop     *watch.Loop
	ran      chan error // the end of the loop's Run

	registry registry // the loop, or a test's wrapper of it

	batching sync.Once
	batch    *ufile.Batch
	batchErr error
	serving  sync.WaitGroup

	descriptors, goroutines int // before anything was opened

	mu    sync.Mutex
	wrong []string
}

// KernelSettings draws the settings of an environment on the kernel.
func KernelSettings(rng *rand.Rand) Settings {
	return Settings{
		"rings": pick(rng, 1.0, 1, 2, 3), "entries": pick(rng, 1.0, 8, 16, 64),
		"inflight":  pick(rng, 8.0, 64, 4096),
		"file-mode": float64(rng.IntN(3)), "plain-sockets": float64(rng.IntN(3) / 2), "tcp": float64(rng.IntN(2)),
		"epoll": float64(rng.IntN(2)), "batch": pick(rng, 0.0, 1, 2, 8),
	}
}

// NewKernelEnv opens the environment of a scenario, with its files in a directory.
func NewKernelEnv(s *Scenario, dir string) (w *KernelEnv, err error) {
	w = &KernelEnv{s: s, dir: dir, ran: make(chan error, 1)}
	if w.descriptors, err = descriptors(); err != nil {
		return nil, err
	}
	w.goroutines = runtime.NumGoroutine()
	// The engine comes first: it has no fallback.
	for _, open := range []func() error{w.openEngine, w.openFiles, w.openSockets, w.openLoop} {
		if err := open(); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *KernelEnv) openFiles() (err error) {
	zeros := make([]byte, BlockCount(w.s)*Block)
	for i := range FileCount(w.s) {
		if err := os.WriteFile(w.path(strconv.Itoa(i)), zeros, 0o600); err != nil {
			return err
		}
	}
	mode := []ufile.Mode{ufile.ModeAuto, ufile.ModeRing, ufile.ModePlain}[w.s.Settings.Int("file-mode")%3]
	if w.short() {
		mode = ufile.ModeAuto
	}
	if w.files, err = ufile.NewSystem(ufile.Options{Mode: mode, Reactor: reactorOptions(w.s.Settings)}); err != nil {
		return err
	}
	if w.log, err = appendlog.Open(w.path("log"), appendlog.Options{SegmentSize: 1 << 20}); err != nil {
		return err
	}
	if err = os.WriteFile(w.path("raw"), zeros, 0o600); err != nil {
		return err
	}
	w.raw, err = os.OpenFile(w.path("raw"), os.O_RDWR, 0)
	return err
}

func (w *KernelEnv) short() bool { return w.s.Settings.Has("short") }

func (w *KernelEnv) path(name string) string { return filepath.Join(w.dir, name) }

func (w *KernelEnv) openEngine() (err error) {
	if w.s.Settings.Has(NoRings) {
		return nil
	}
	w.r, err = reactor.New(reactorOptions(w.s.Settings))
	return err
}

// reactorOptions returns the options of reactors.
func reactorOptions(s Settings) reactor.Options {
	return reactor.Options{
		Loops: max(s.Int("rings"), 1), Entries: s.Int("entries"),
		InFlight: s.Int("inflight"), Logger: slog.New(slog.DiscardHandler),
	}
}

// openSockets opens the listener of an echo server.
func (w *KernelEnv) openSockets() (err error) {
	mode := unet.ModeRing
	if w.short() {
		mode = unet.ModeAuto
	}
	if w.s.Settings.Has("plain-sockets") {
		mode = unet.ModePlain
	}
	if w.net, err = unet.NewSystem(unet.Options{Mode: mode}); err != nil {
		return err
	}
	network, address := "unix", w.path("socket")
	if w.s.Settings.Has("tcp") {
		network, address = "tcp", "127.0.0.1:0"
	}
	if w.listener, err = w.net.Listen(network, address); err != nil {
		return err
	}
	w.serving.Go(w.serve)
	return nil
}

func (w *KernelEnv) serve() {
	for {
		c, err := w.listener.Accept()
		if w.short() && errors.Is(err, syscall.EMFILE) {
			time.Sleep(time.Millisecond) // as net/http does
			continue
		}
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				w.problem("accept: %v", err)
			}
			return
		}
		w.serving.Go(func() { sendBack(c) })
	}
}

// sendBack echoes a connection until its client leaves. The client checks the bytes.
func sendBack(c net.Conn) {
	defer c.Close()
	p := make([]byte, 1500)
	for {
		n, err := c.Read(p)
		if err != nil {
			return
		}
		if _, err := c.Write(p[:n]); err != nil {
			return
		}
	}
}

func (w *KernelEnv) problem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.wrong) < mostProblems {
		w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
	}
}

// Engine returns the reactor.
func (w *KernelEnv) Engine() Engine { return w.r }

// OpenFile opens a file.
func (w *KernelEnv) OpenFile(number int) (File, error) {
	return w.files.OpenFile(w.path(strconv.Itoa(number)), os.O_RDWR, 0)
}

// Batch moves ranges of files.
func (w *KernelEnv) Batch(write bool, ranges []ufile.Range) error {
	w.batching.Do(func() { w.batch, w.batchErr = w.files.NewBatch(ufile.BatchOptions{Depth: 32}) })
	switch {
	case w.batchErr != nil:
		return w.batchErr
	case write:
		return w.batch.Write(ranges)
	}
	return w.batch.Read(ranges)
}

// Append appends a record, durably.
func (w *KernelEnv) Append(p []byte) error {
	_, err := w.log.Append(p)
	return err
}

// Raw returns the descriptor of the engine's file.
func (w *KernelEnv) Raw() int { return int(w.raw.Fd()) }

// Dial connects to the echo server.
func (w *KernelEnv) Dial(uint64) (Conn, error) {
	c, err := w.net.Dial(w.listener.Addr().Network(), w.listener.Addr().String())
	if err != nil {
		return nil, err
	}
	return c.(Conn), nil
}

// Tolerates allows no errors.
func (w *KernelEnv) Tolerates(error) bool { return false }

// Broken allows no failures.
func (w *KernelEnv) Broken(error) bool { return false }

// Patience is how long a scenario may last.
func (w *KernelEnv) Patience() time.Duration { return 2 * time.Minute }

// Mend does nothing.
func (w *KernelEnv) Mend() {}

// Trace returns the engine's counters.
func (w *KernelEnv) Trace() string {
	if w.r == nil {
		return "there is no engine"
	}
	return w.r.String()
}

// Finish closes everything.
func (w *KernelEnv) Finish() []string {
	check := func(what string, err error) {
		if err != nil {
			w.problem("close %s: %v", what, err)
		}
	}
	if w.r != nil {
		if n := settled(func() int { return w.r.Stats().InFlight }); n != 0 {
			w.problem("the engine has %d operations in flight", n)
		}
		check("the engine", w.r.Close())
	}
	if n := w.files.Stats().Reactor.InFlight; n != 0 {
		w.problem("the files have %d operations in flight", n)
	}
	if w.batch != nil {
		check("the batch", w.batch.Close())
	}
	check("the engine's file", w.raw.Close())
	check("the log", w.log.Close())
	check("the listener", w.listener.Close())
	w.serving.Wait()
	w.closeLoop()
	if !w.s.Settings.Has(Beside) {
		w.countLeft()
	}
	return w.wrong
}

// countLeft counts descriptors and goroutines that the process did not have before.
func (w *KernelEnv) countLeft() {
	if n := settled(func() int { return w.more(descriptors, w.descriptors) }); n != 0 {
		w.problem("%d descriptors are left", n)
	}
	// The goroutines of the runner and its watchdog come and go.
	if n := settled(func() int { return max(runtime.NumGoroutine()-w.goroutines-1, 0) }); n != 0 {
		w.problem("%d goroutines are left", n)
	}
}

// more returns by how much a count exceeds its earlier value.
func (w *KernelEnv) more(count func() (int, error), was int) int {
	n, err := count()
	if err != nil {
		w.problem("%v", err)
		return 0
	}
	return max(n-was, 0)
}

// settled waits for a number to become 0, and returns its last value.
func settled(n func() int) int {
	for range 5000 {
		if n() == 0 {
			return 0
		}
		time.Sleep(time.Millisecond)
	}
	return n()
}

// descriptors counts the descriptors of the process. When it returns, Go's netpoller has
// opened its own descriptors.
func descriptors() (int, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	_, _ = r.Close(), w.Close()
	all, err := os.ReadDir("/proc/self/fd")
	return len(all), err
}

// Contents returns the content of a file.
func (w *KernelEnv) Contents(number int) ([]byte, error) {
	return os.ReadFile(w.path(strconv.Itoa(number)))
}

// RawContents returns the content of the engine's file.
func (w *KernelEnv) RawContents() ([]byte, error) { return os.ReadFile(w.path("raw")) }

// Records reads the log.
func (w *KernelEnv) Records(yield func(p []byte)) error {
	for r, err := range appendlog.Read(w.path("log"), appendlog.ReadOptions{}) {
		if err != nil {
			return err
		}
		yield(r.Data)
	}
	return nil
}

// Pipe makes a pipe of the kernel.
func (w *KernelEnv) Pipe(first uint64) (Pipe, error) {
	p, err := newPipe(first, 0)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// kernelPipe is a pipe whose bytes are numbered.
type kernelPipe struct {
	in, out int
	next    uint64
}

// rename gives the reading end another number, whose file is closed.
func (p *kernelPipe) rename(fd int) error {
	if err := syscall.Dup3(p.out, fd, syscall.O_CLOEXEC); err != nil {
		return os.NewSyscallError("dup3", err)
	}
	was := p.out
	p.out = fd
	return syscall.Close(was)
}

func newPipe(first uint64, flags int) (*kernelPipe, error) {
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC|flags); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	return &kernelPipe{in: fds[1], out: fds[0], next: first}, nil
}

func (p *kernelPipe) FD() int { return p.out }

// Feed writes bytes, for which there is room.
func (p *kernelPipe) Feed(n int) error {
	b := make([]byte, n)
	Bytes(b, p.next)
	p.next += uint64(n)
	if n, err := syscall.Write(p.in, b); err != nil || n < len(b) {
		return fmt.Errorf("%d bytes into a pipe, of %d: %w", n, len(b), err)
	}
	return nil
}

func (p *kernelPipe) Close() error { return errors.Join(syscall.Close(p.in), syscall.Close(p.out)) }
