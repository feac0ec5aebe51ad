// SPDX-License-Identifier: MIT

package stress

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringside-io/ringside/internal/ringhook"
	"github.com/ringside-io/ringside/internal/testing/kernelsim"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/ufile"
)

// simEnv is an environment with simulated rings and simulated time: delays cost nothing.
// Its pipes and connections belong to the simulated kernel. Its files are real, and the
// simulated rings transfer their bytes.
type simEnv struct {
	s      *Scenario
	dir    string
	inject injected
	faults kernelsim.Faults
	k      *kernelsim.Kernel
	r      *reactor.Reactor
	polls  *reactor.Reactor // rings of the watches, which hold their slots
	engine Engine
	files  *ufile.System
	raw    int
	broken breakage
	keeper *ufile.File // keeps the files' rings open: the clock stands still while other goroutines wait to open them

	batching sync.Once
	batch    *ufile.Batch
	batchErr error
}

// injected is what a test breaks in an environment, to check that it is found.
type injected struct {
	ring   func(*kernelsim.Ring) ringhook.Ring
	parker func(*kernelsim.Parker) ringhook.Parker
	engine func(*simEnv, Engine) Engine
	file   func(*ufile.File) File
	bugs   kernelsim.Bugs
}

// simFirstFD is far above the descriptors of the process.
const simFirstFD = 1 << 20

func newSim(s *Scenario, dir string, p injected) (*simEnv, error) {
	w := &simEnv{s: s, dir: dir, inject: p, faults: simFaults(s.Settings)}
	if err := makeFiles(s, dir); err != nil {
		return nil, err
	}
	w.k = kernelsim.New(kernelsim.Options{
		Seed: s.Seed, Faults: w.faults, Bugs: p.bugs, BusyOnOverflow: s.Settings.Has("busy"),
		Host: kernelsim.Files{}, FirstFD: simFirstFD,
	})
	w.raw = w.k.File(make([]byte, BlockCount(s)*Block))
	opts := reactorOptions(s.Settings)
	ringhook.Put(&opts, w.open)
	var err error
	if w.r, err = reactor.New(opts); err != nil {
		return nil, err
	}
	many := opts
	many.InFlight = 1 << 15
	if w.polls, err = reactor.New(many); err != nil {
		return nil, err
	}
	w.engine = w.r
	if w.mayBreak() {
		w.engine = &witness{Engine: w.r, w: w}
		w.broken.watch(w)
	}
	if p.engine != nil {
		w.engine = p.engine(w, w.r)
	}
	mode := ufile.ModeRing
	if s.Settings.Has("files-auto") {
		mode = ufile.ModeAuto
	}
	if w.files, err = ufile.NewSystem(ufile.Options{Mode: mode, Reactor: opts}); err == nil && w.mayBreak() {
		w.keeper, err = w.files.OpenFile(filepath.Join(dir, "0"), os.O_RDWR, 0)
	}
	return w, err
}

// makeFiles makes the files of a scenario, filled with zeros.
func makeFiles(s *Scenario, dir string) error {
	for i := range FileCount(s) {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), make([]byte, BlockCount(s)*Block), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// open opens a simulated ring, with the seeded bug.
func (w *simEnv) open(o ringhook.Options) (ringhook.Ring, ringhook.Parker, error) {
	r := w.k.Open(kernelsim.RingOptions{Entries: o.Entries, CQEntries: max(w.s.Settings.Int("cq"), o.Entries)})
	var ring ringhook.Ring = r
	if w.inject.ring != nil {
		ring = w.inject.ring(r)
	}
	if w.inject.parker != nil {
		return ring, w.inject.parker(r.Parker()), nil
	}
	return ring, r.Parker(), nil
}

// simFaults returns the faults that the settings name.
func simFaults(s Settings) kernelsim.Faults {
	return kernelsim.Faults{
		Delay: s["delay"], Late: s["late"], Short: s["short"],
		Interrupted: s["eintr"], Again: s["eagain"], Broken: s["eio"], NoSpace: s["enospc"],
		Exit: s["ecanceled"], LostCancel: s["lostcancel"], Disturbed: s["disturbed"],
		Refuse: s["refuse"], Partial: s["partial"], Fatal: s["fatal"], Unparked: s["unparked"],
		Return: s["return"], LateWake: s["latewake"], Spurious: s["spurious"], Stale: s["stale"],
	}
}

// simFaultsMost are the highest probabilities of the faults, by setting.
var simFaultsMost = []struct {
	name string
	most float64
}{
	// So few operations end unrequested that none does so 64 times, when the reactor gives
	// up.
	{"delay", 1}, {"late", 1}, {"short", 0.5}, {"eintr", 0.2}, {"eagain", 0.2}, {"eio", 0.2}, {"enospc", 0.2},
	{"ecanceled", 0.3}, {"lostcancel", 0.7}, {"disturbed", 0.5},
	{"refuse", 0.5}, {"partial", 1}, {"return", 0.5}, {"latewake", 1}, {"spurious", 0.3}, {"stale", 0.5},
}

// simSettings draws the settings of a simulated environment; most seeds have few faults.
func simSettings(rng *rand.Rand) Settings {
	s := Settings{
		"rings":   pick(rng, 1.0, 1, 2, 3),
		"entries": pick(rng, 1.0, 8, 16, 64), "inflight": pick(rng, 8.0, 64, 4096),
		"cq": pick(rng, 1.0, 8, 64, 4096), "busy": float64(rng.IntN(4) / 3),
		"without-append": 1, // no ring is involved
	}
	company := rng.Float64()
	for _, f := range simFaultsMost {
		if rng.Float64() < company {
			s[f.name] = f.most * pick(rng, 0.05, 0.2, 1)
		}
	}
	return s
}

func (w *simEnv) Engine() Engine { return w.engine }

func (w *simEnv) OpenFile(number int) (File, error) {
	f, err := w.files.OpenFile(filepath.Join(w.dir, strconv.Itoa(number)), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if w.inject.file != nil {
		return w.inject.file(f), nil
	}
	return f, nil
}

// Batch uses a ring of the real kernel, which package ufile opens.
func (w *simEnv) Batch(write bool, ranges []ufile.Range) error {
	w.batching.Do(func() { w.batch, w.batchErr = w.files.NewBatch(ufile.BatchOptions{Depth: 32}) })
	switch {
	case w.batchErr != nil:
		return w.batchErr
	case write:
		return w.batch.Write(ranges)
	}
	return w.batch.Read(ranges)
}

func (w *simEnv) Append([]byte) error { return nil }

func (w *simEnv) Raw() int { return w.raw }

func (w *simEnv) Pipe(first uint64) (Pipe, error) {
	return simPipe{w.k, w.k.PipeFrom(first)}, nil
}

// simPipe is a pipe of the simulated kernel.
type simPipe struct {
	k  *kernelsim.Kernel
	fd int
}

func (p simPipe) FD() int { return p.fd }

func (p simPipe) Feed(n int) error {
	p.k.Feed(p.fd, n)
	return nil
}

func (p simPipe) Close() error { return nil }

// Tolerates permits the errors that the faults cause.
func (w *simEnv) Tolerates(err error) bool {
	for _, f := range []struct {
		p     float64
		errno syscall.Errno
	}{{w.faults.Broken, syscall.EIO}, {w.faults.Again, syscall.EAGAIN}, {w.faults.NoSpace, syscall.ENOSPC}} {
		if f.p > 0 && isErrno(err, f.errno) && !errors.Is(err, reactor.ErrFailed) {
			return true
		}
	}
	return false
}

func (w *simEnv) Patience() time.Duration { return 5 * time.Minute } // simulated time

func (w *simEnv) Mend() { w.k.Mend() }

func (w *simEnv) Trace() string { return w.k.Trace() }

// Finish closes the environment.
func (w *simEnv) Finish() (wrong []string) {
	wrongIf := func(what string, err error) {
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", what, err))
		}
	}
	if w.batch != nil {
		wrongIf("close the batch", w.batch.Close())
	}
	w.broken.stop()
	if w.keeper != nil {
		if err := w.keeper.Close(); !w.Broken(err) {
			wrongIf("close a file", err)
		}
	}
	failed := w.k.Failed() // memory that the kernel still has then is kept for ever
	for _, r := range []*reactor.Reactor{w.r, w.polls} {
		if n := settled(func() int { return r.Stats().InFlight }); n != 0 && !failed {
			wrong = append(wrong, fmt.Sprintf("the engine has %d operations in flight", n))
		}
		if err := r.Close(); !w.Broken(err) {
			wrongIf("close the engine", err)
		}
	}
	if w.mayBreak() {
		time.Sleep(time.Second) // every late completion has come by then
	}
	wrong = append(wrong, w.broken.wrong...)
	if st := w.files.Stats(); st.Reactor.InFlight != 0 && !failed {
		wrong = append(wrong, fmt.Sprintf("the files have operations in flight: %+v", st))
	}
	for _, v := range w.k.Violations() {
		wrong = append(wrong, "violation: "+v)
	}
	w.k.Mend()
	w.k.Close()
	return wrong
}

func (w *simEnv) Contents(number int) ([]byte, error) {
	return os.ReadFile(filepath.Join(w.dir, strconv.Itoa(number)))
}

func (w *simEnv) RawContents() ([]byte, error) { return bytes.Clone(w.k.Content(w.raw)), nil }

func (w *simEnv) Records(func([]byte)) error { return nil }

// runSim runs a scenario with simulated rings.
func runSim(t *testing.T, s *Scenario, p injected) (r *Report) {
	t.Helper()
	dog := time.AfterFunc(5*time.Minute, func() { panic(fmt.Sprintf("scenario: seed %d does not end", s.Seed)) })
	defer dog.Stop()
	synctest.Test(t, func(t *testing.T) {
		w, err := newSim(s, memoryDir(t), p)
		if err != nil {
			t.Fatal(err)
		}
		r = Run(w, s)
	})
	return r
}
