// SPDX-License-Identifier: MIT

package suite

import (
	"context"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/echo"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/fastdev"
	"github.com/ringside-io/ringside/cmd/internal/fio"
	"github.com/ringside-io/ringside/cmd/internal/hostinfo"
	"github.com/ringside-io/ringside/cmd/internal/loadgen"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/peers/clone"
	"github.com/ringside-io/ringside/cmd/internal/peers/generator"
	"github.com/ringside-io/ringside/cmd/internal/peers/liburing"
	"github.com/ringside-io/ringside/cmd/internal/peers/ycsb"
	"github.com/ringside-io/ringside/cmd/internal/procstat"
	"github.com/ringside-io/ringside/cmd/internal/progress"
	"github.com/ringside-io/ringside/cmd/internal/sqlitebench"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

// Env is what a suite runs with: what measures, on which machine.
type Env struct {
	// Workers run the jobs of all suites but "net", Servers those of "net".
	Workers Workers
	Servers Servers
	// Progress may be nil.
	Progress *progress.Bar

	machine
}

// NewEnv returns an Env of this machine.
func NewEnv(w Workers, s Servers, p *progress.Bar) Env { return Env{w, s, p, thisMachine()} }

// Workers runs jobs, each in a process of its own.
type Workers struct {
	// Round runs a job.
	Round func(context.Context, workload.Job) (measure.Sample, error)
	// Open starts a job that takes turns. If it is nil, every cell is measured in rounds.
	Open func(context.Context, workload.Job) (measure.Player, error)
}

// opener returns the function that starts the job of an engine for turns, or nil if no job takes turns.
func (w Workers) opener(job func(name string, pair int) (workload.Job, error)) func(context.Context, string, int) (measure.Player, error) {
	if w.Open == nil {
		return nil
	}
	return func(ctx context.Context, name string, pair int) (measure.Player, error) {
		j, err := job(name, pair)
		if err != nil {
			return nil, err
		}
		j.Turning = true
		return w.Open(ctx, j)
	}
}

// Servers runs servers with a load, in processes of their own. The peer is the program of a foreign
// engine, and nil for the others.
type Servers struct {
	// Round runs one round with our load generator. Client runs one with a load generator by others.
	// Idle runs one without load.
	Round func(context.Context, echo.Setup, NetPeer, loadgen.Job) (echo.Sample, error)
	// Open starts an engine that takes turns, with our load generator. If it is nil, every cell is
	// measured in rounds.
	Open   func(context.Context, echo.Setup, NetPeer, loadgen.Job) (measure.Player, error)
	Client func(context.Context, echo.Setup, Driver) (echo.Sample, error)
	Idle   func(context.Context, echo.Setup, NetPeer, echo.IdleJob) (echo.IdleSample, error)
}

// machine is what a run finds out about the machine and makes on it. Tests replace parts of it.
type machine struct {
	maker datafile.Maker
	// probeDirect returns an error if the file cannot be read with O_DIRECT. probeEvict returns one
	// that matches [datafile.ErrCached] if it cannot be evicted from the page cache.
	probeDirect, probeEvict func(path string) error
	// probeRing, probeWatch and probeSQLite return an error if a setup of a ring or an engine cannot
	// be used here.
	probeRing, probeWatch, probeSQLite func(name string) error
	sqliteVersion                      func(engine string) string
	// availableMemory returns the bytes that buffers and cache may use, descriptors the limit of
	// descriptors per process, ports the limit of connections to one server; 0 if unknown.
	availableMemory    func() int64
	descriptors, ports func() int
	// spins returns the number of steps of a handler's work that a processor computes in a microsecond.
	spins func() float64
	// fastDevice creates a storage in memory for size bytes. If that is not possible, the error
	// matches [fastdev.ErrUnavailable].
	fastDevice func(ctx context.Context, size int64) (FastDevice, error)
	// findFio returns the program's path. fio runs a round with it; the sample's backend is the
	// program's version.
	findFio func() (string, error)
	fio     func(ctx context.Context, program string, job fio.RandRead) (measure.Sample, error)
	// findClient returns the path of a load generator by others and the version that it reports.
	findClient func(ctx context.Context, client string) (path, version string, err error)
	// buildRing builds the program in C of the suite "ring", buildServer that of a foreign engine of
	// the suite "net". clone is the directory of its sources; the engine in C does not need it.
	buildRing   func(context.Context) (Peer, error)
	buildServer func(ctx context.Context, engine, clone string) (NetPeer, error)
	// pebble and fastHTTP report whether this build has them.
	pebble, fastHTTP bool
}

// FastDevice is a mounted file system in memory.
type FastDevice interface {
	// Dir returns the root directory. Filesystem returns the name of the file system, and Note the
	// reason if it is not the usual one.
	Dir() string
	Filesystem() string
	Note() string
	// Close removes the storage.
	Close() error
}

func thisMachine() machine {
	return machine{
		probeDirect:     func(path string) error { return workload.ProbeDirect(engine.OS{}, path) },
		probeEvict:      datafile.ProbeEvict,
		probeRing:       workload.ProbeRing,
		probeWatch:      workload.ProbeWatch,
		probeSQLite:     sqlitebench.Probe,
		sqliteVersion:   sqlitebench.Version,
		availableMemory: hostinfo.AvailableMemory,
		descriptors:     procstat.Descriptors,
		ports:           procstat.Ports,
		spins:           echo.SpinsPerMicrosecond,
		fastDevice: func(ctx context.Context, size int64) (FastDevice, error) {
			return orNil[FastDevice](fastdev.Make(ctx, size))
		},
		findFio: fio.Find,
		fio: func(ctx context.Context, program string, job fio.RandRead) (measure.Sample, error) {
			s, err := job.Run(ctx, program)
			if err == nil {
				s.Backend, err = fio.Version(ctx, program)
			}
			return s, err
		},
		findClient: func(ctx context.Context, client string) (path, version string, err error) {
			if path, err = generator.Find(client); err == nil {
				version, err = generator.Version(ctx, client, path)
			}
			return path, version, err
		},
		buildRing: func(ctx context.Context) (Peer, error) { return orNil[Peer](liburing.Build(ctx)) },
		buildServer: func(ctx context.Context, engine, dir string) (NetPeer, error) {
			if clone.Is(engine) {
				return orNil[NetPeer](clone.Build(ctx, engine, dir))
			}
			return orNil[NetPeer](liburing.BuildEcho(ctx))
		},
		pebble:   ycsb.Known(),
		fastHTTP: echo.HasFastHTTP(),
	}
}

// orNil returns v, or a nil interface after an error instead of a nil pointer in an interface.
func orNil[I any](v any, err error) (I, error) {
	if err != nil {
		var none I
		return none, err
	}
	return v.(I), nil
}
