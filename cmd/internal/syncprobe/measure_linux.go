// SPDX-License-Identifier: MIT

package syncprobe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/cmd/internal/hostinfo"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/uring"
)

// length is that of a file, which is written beforehand: a write inside of it changes no metadata.
const length = 1 << 20

// Measure measures all ways in the directory, in files that are gone when it returns: some hundred
// syncs, a tenth of a second on most disks.
func Measure(ctx context.Context, dir string) (r Report, err error) {
	host := hostinfo.Collect(dir)
	r = Report{Dir: dir, Device: host.Device, Filesystem: host.Filesystem}
	p, err := newProber(dir)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	ways := p.ways()
	times := make([][]float64, len(ways))
	failed := make([]error, len(ways))
	for round := range Rounds {
		for i, w := range ways {
			if ctx.Err() != nil {
				return r, ctx.Err()
			}
			if failed[i] != nil {
				continue
			}
			began := time.Now()
			failed[i] = w.do(int64(round) * Size)
			times[i] = append(times[i], float64(time.Since(began).Nanoseconds())/1e3)
		}
	}
	for i, w := range ways {
		way := Way{Name: w.name, Files: w.files}
		if failed[i] != nil {
			way.Reason = failed[i].Error()
		} else {
			s := measure.Summarize(times[i])
			way.Median, way.Min, way.Max = s.Median, s.Min, s.Max
		}
		r.Ways = append(r.Ways, way)
	}
	return r, nil
}

// prober holds the files and, where there is io_uring, a ring.
type prober struct {
	files  []*os.File
	page   []byte
	ring   *uring.Ring
	noRing error
}

func newProber(dir string) (*prober, error) {
	p := &prober{page: make([]byte, Size)}
	for range Together {
		f, err := os.CreateTemp(dir, ".ringside-sync-")
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
		p.files = append(p.files, f)
		if err := os.Remove(f.Name()); err != nil { // it lives until it is closed
			return nil, errors.Join(err, p.close())
		}
		if _, err := f.Write(make([]byte, length)); err != nil {
			return nil, errors.Join(err, p.close())
		}
		if err := f.Sync(); err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	if p.noRing = features.HaveIOURing(); p.noRing == nil {
		p.ring, p.noRing = uring.Open(uring.Options{Entries: 2})
	}
	return p, nil
}

func (p *prober) close() error {
	var err error
	for _, f := range p.files {
		err = errors.Join(err, f.Close())
	}
	if p.ring != nil {
		err = errors.Join(err, p.ring.Close())
	}
	return err
}

type way struct {
	name  string
	files int
	do    func(off int64) error
}

func (p *prober) ways() []way {
	return []way{
		{"write and fdatasync", 1, func(off int64) error { return p.writeAndSync(p.files[0], off) }},
		{"pwritev2 with RWF_DSYNC", 1, p.writeDSync},
		{"ring: write with RWF_DSYNC", 1, p.ringDSync},
		{"ring: write linked to fdatasync", 1, p.ringLinked},
		{fmt.Sprintf("%d files: write and fdatasync each", Together), Together, p.syncEach},
		{fmt.Sprintf("%d files: writes and one syncfs", Together), Together, p.syncAll},
	}
}

func (p *prober) writeAndSync(f *os.File, off int64) error {
	if _, err := f.WriteAt(p.page, off); err != nil {
		return err
	}
	return os.NewSyscallError("fdatasync", unix.Fdatasync(int(f.Fd())))
}

func (p *prober) writeDSync(off int64) error {
	_, err := unix.Pwritev2(int(p.files[0].Fd()), [][]byte{p.page}, off, unix.RWF_DSYNC)
	return os.NewSyscallError("pwritev2", err)
}

func (p *prober) ringDSync(off int64) error {
	if p.ring == nil {
		return p.noRing
	}
	p.ring.SQE().Write(uring.Fd(int(p.files[0].Fd())), p.page, off).SetRWFlags(uring.RWDSync)
	return p.complete(1)
}

func (p *prober) ringLinked(off int64) error {
	if p.ring == nil {
		return p.noRing
	}
	fd := uring.Fd(int(p.files[0].Fd()))
	p.ring.SQE().Write(fd, p.page, off).SetFlags(uring.SQELink)
	p.ring.SQE().Fsync(fd, true)
	return p.complete(2)
}

// complete submits n SQEs and waits for their completions. One goroutine uses the ring.
func (p *prober) complete(n int) error {
	var err error
	for n > 0 {
		if _, e := p.ring.SubmitAndWait(n); e != nil {
			return e
		}
		var done [2]uring.CQE
		for _, c := range done[:p.ring.Reap(done[:])] {
			err = errors.Join(err, os.NewSyscallError("io_uring", c.Err()))
			n--
		}
	}
	return err
}

func (p *prober) syncEach(off int64) error {
	for _, f := range p.files {
		if err := p.writeAndSync(f, off); err != nil {
			return err
		}
	}
	return nil
}

func (p *prober) syncAll(off int64) error {
	for _, f := range p.files {
		if _, err := f.WriteAt(p.page, off); err != nil {
			return err
		}
	}
	return os.NewSyscallError("syncfs", unix.Syncfs(int(p.files[0].Fd())))
}
