// SPDX-License-Identifier: MIT

package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ErrTaken is the error of a Backup after another one has begun to write to its target. It stores and removes nothing more.
// The other Backup makes snapshots of the databases whose state is not that of the target.
var ErrTaken = errors.New("backup: another Backup writes to the target: close one of them, or give each its own directory or prefix")

// ownerPrefix begins the names of the objects by which Backups know of each other.
const ownerPrefix = ".ringside-backup/"

// ownerCheck is how often a Backup looks whether it is the owner of its target still. It costs a request.
const ownerCheck = 5 * time.Second

// owner is the right to write to the target. Each Backup creates an object with a higher number than those before it, and
// the one with the highest number is the owner. Its first request waits until the former one has noticed,
// unless that was closed, or was a process of this machine that has ended.
type owner struct {
	check  time.Duration
	mu     sync.Mutex
	number uint64    // of the object; 0: there is none yet
	at     time.Time // when it was the highest
	lock   io.Closer // of the directory, while this process lives; nil: another process has it
	err    error     // ErrTaken
}

// own returns an error if the Backup may not write to the target.
func (b *Backup) own(ctx context.Context) error {
	o := &b.owner
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil || o.number != 0 && time.Since(o.at) < o.check {
		return o.err
	}
	began := time.Now()
	b.counts.requests.Add(1)
	others, err := b.target.List(ctx, ownerPrefix)
	if err != nil {
		return &targetError{error: err}
	}
	highest, object := newestOwner(others)
	if b.source != nil && o.at.IsZero() {
		err = b.mark(ctx)
	}
	switch {
	case err != nil:
	case o.number == 0:
		err = b.take(ctx, highest, object, others)
	case highest > o.number:
		o.err = fmt.Errorf("%w (%s)", ErrTaken, object)
		err = o.err
		level := slog.LevelError
		if b.source != nil {
			level = slog.LevelInfo // the process that leads now stores it
		}
		b.log.Log(ctx, level, "backup: nothing more is stored", "error", err)
	case highest < o.number:
		err = b.takeTerm(ctx, others)
	}
	if err == nil {
		o.at = began
	}
	return err
}

// doubt has the next call of own look at the target.
func (o *owner) doubt() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.at = time.Time{}
}

func newestOwner(all []Object) (highest uint64, name string) {
	for _, a := range all {
		if n, err := strconv.ParseUint(path.Base(a.Name), 10, 64); err == nil && n > highest {
			highest, name = n, a.Name
		}
	}
	return highest, name
}

// take makes the Backup the owner after the one with a number, 0 if there is none. The caller holds the mutex.
func (b *Backup) take(ctx context.Context, former uint64, object string, others []Object) error {
	o := &b.owner
	if o.lock == nil {
		o.lock, _ = lockFile(b.dir)
	}
	if d, ok := b.target.(Dir); ok {
		d.tidy()
	}
	id := b.identity()
	ended := former == 0
	if !ended && o.lock != nil {
		was, err := b.read(ctx, object)
		if err != nil {
			return err
		}
		ended = string(was) == id
	}
	b.counts.requests.Add(1)
	name := fmt.Sprintf("%s%020d", ownerPrefix, former+1)
	if err := b.target.Put(ctx, name, io.NewSectionReader(strings.NewReader(id), 0, int64(len(id))), time.Now()); err != nil {
		return &targetError{error: err}
	}
	if !ended {
		b.log.Warn("backup: waits until another Backup of the target has noticed", "former", object, "wait", 2*o.check)
		select {
		case <-time.After(2 * o.check):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	o.number = former + 1
	if len(others) > 0 {
		names := make([]string, len(others))
		for i, a := range others {
			names[i] = a.Name
		}
		b.counts.requests.Add(1)
		_ = b.target.Delete(ctx, names...) // the next owner tries again
	}
	return nil
}

// takeTerm makes the Backup of a source the owner. The number is that of the source's term. The former one need not notice at once: what
// it still stores is what this one would store. The caller holds the mutex.
func (b *Backup) takeTerm(ctx context.Context, others []Object) error {
	b.counts.requests.Add(1)
	name := fmt.Sprintf("%s%020d", ownerPrefix, b.owner.number)
	err := b.target.Put(ctx, name, io.NewSectionReader(strings.NewReader(b.cluster), 0, int64(len(b.cluster))), time.Now())
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return &targetError{error: err}
	}
	for _, a := range others {
		b.counts.requests.Add(1)
		_ = b.target.Delete(ctx, a.Name) // the next owner tries again
	}
	return nil
}

// clusterObject has the identity of the cluster whose databases the target has.
const clusterObject = ".ringside-replica/cluster"

// mark compares the cluster of the target with that of the source. A target without one gets it.
func (b *Backup) mark(ctx context.Context) error {
	has, err := b.read(ctx, clusterObject)
	if errors.Is(err, fs.ErrNotExist) {
		b.counts.requests.Add(1)
		err = b.target.Put(ctx, clusterObject, io.NewSectionReader(strings.NewReader(b.cluster), 0, int64(len(b.cluster))), time.Now())
		if err == nil {
			return nil
		} else if errors.Is(err, fs.ErrExist) {
			has, err = b.read(ctx, clusterObject)
		}
	}
	if err != nil {
		return &targetError{error: err}
	}
	if string(has) != b.cluster {
		return fmt.Errorf("%w: it is of the cluster %s, and this is %s", errCluster, has, b.cluster)
	}
	return nil
}

var errCluster = errors.New("backup: the target has the backup of another cluster: give each its own directory or prefix")

// identity tells a directory of a machine from others.
func (b *Backup) identity() string {
	host, _ := os.Hostname()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return fmt.Sprintf("%s %s %s", host, bytes.TrimSpace(boot), b.dir)
}

// resign removes the object of the owner, so that the next one need not wait.
func (b *Backup) resign() {
	o := &b.owner
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.number != 0 && o.err == nil && b.source == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = b.target.Delete(ctx, fmt.Sprintf("%s%020d", ownerPrefix, o.number))
	}
	if o.lock != nil {
		o.lock.Close()
	}
}

// read returns an object of the target.
func (b *Backup) read(ctx context.Context, name string) ([]byte, error) {
	b.counts.requests.Add(1)
	r, err := get(ctx, b.target, name, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// has reports whether the target has an object with this content: a Put whose answer was lost.
func (b *Backup) has(ctx context.Context, name string, body *io.SectionReader) (bool, error) {
	b.counts.requests.Add(1)
	r, err := get(ctx, b.target, name, 0, -1)
	if err != nil {
		return false, err
	}
	defer r.Close()
	return equal(r, io.NewSectionReader(body, 0, body.Size()))
}

// equal reports whether two readers have the same bytes.
func equal(a, b io.Reader) (bool, error) {
	p, q := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(a, p)
		m, err2 := io.ReadFull(b, q)
		for _, err := range []error{err, err2} {
			if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
				return false, err
			}
		}
		if same := bytes.Equal(p[:n], q[:m]); !same || n < len(p) {
			return same, nil
		}
	}
}
