// SPDX-License-Identifier: MIT

package features

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/uring"
)

// patience limits a trial: if its completion has not arrived by then, the trial is
// inconclusive.
const patience = 5 * time.Second

// trial is a throw-away ring on which a feature is tried. All its operations have
// ended when the trial is over.
type trial struct {
	ring    *uring.Ring
	until   time.Time
	live    map[uint64]bool // operations whose last completion has not come
	waiting []uring.CQE     // completions that no caller has asked for yet
	held    []any           // memory that the kernel may still use
	files   files           // descriptors to close at the end
	results map[uint64]bool // operations whose results are descriptors
}

// lackingError is a trial's result that the kernel lacks the feature.
type lackingError struct {
	reason string
	cause  error
}

func (e *lackingError) Error() string { return e.reason }

func lacking(format string, args ...any) error {
	return &lackingError{reason: fmt.Sprintf(format, args...)}
}

// answer classifies the kernel's error for the feature under trial: the kernel
// lacks it, a policy forbids it, or something else went wrong. Pass only errors of
// the operation that is tried.
func answer(call string, err error) error {
	errno, ok := errors.AsType[syscall.Errno](err)
	switch {
	case err == nil:
		return nil
	case !ok:
		return err
	case errno == syscall.EINVAL, errors.Is(errno, errors.ErrUnsupported):
		return &lackingError{reason: fmt.Sprintf("the kernel answers %s with %q", call, errno.Error()), cause: err}
	case errors.Is(errno, syscall.EPERM), errors.Is(errno, syscall.EACCES):
		return &deniedError{call, err}
	}
	return err
}

// deniedError is a trial's result that the kernel knows the feature and refuses it.
type deniedError struct {
	call  string
	cause error
}

func (e *deniedError) Error() string { return fmt.Sprintf("%s: %v", e.call, e.cause) }

// withTrial opens a ring and runs try with it, on one thread.
func (h *host) withTrial(o *uring.Options, try func(*trial) error) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ring, err := h.open(o)
	if err != nil {
		return err
	}
	t := &trial{ring: ring, until: time.Now().Add(patience), live: map[uint64]bool{}, results: map[uint64]bool{}}
	defer func() {
		err = firstError(err, t.end())
		h.closed.Store(time.Now().UnixNano())
	}()
	return try(t)
}

// hold keeps x reachable until everything on the ring has ended.
func (t *trial) hold(x any) { t.held = append(t.held, x) }

// start submits one entry under the given user data.
func (t *trial) start(id uint64, build func(*uring.SQE)) error {
	e := t.ring.SQE()
	if e == nil {
		return uring.ErrSQFull
	}
	build(e)
	e.SetUserData(id)
	n, err := t.ring.Submit()
	if err == nil && n == 0 && t.ring.SetupFlags()&uring.SetupSQPoll == 0 {
		err = errors.New("the kernel accepted no SQE")
	}
	t.live[id] = true
	return err
}

// do submits one entry and waits for its first completion.
func (t *trial) do(build func(*uring.SQE)) (uring.CQE, error) {
	const id = 1 << 32
	if err := t.start(id, build); err != nil {
		return uring.CQE{}, err
	}
	return t.await(id)
}

// await returns the next completion of an operation.
func (t *trial) await(id uint64) (uring.CQE, error) {
	for {
		for i, c := range t.waiting {
			if c.UserData == id {
				t.waiting = append(t.waiting[:i], t.waiting[i+1:]...)
				return c, nil
			}
		}
		if err := t.reap(); err != nil {
			return uring.CQE{}, err
		}
	}
}

// reap waits for completions and files them.
func (t *trial) reap() error {
	var buf [8]uring.CQE
	for {
		n := t.ring.Reap(buf[:])
		for _, c := range buf[:n] {
			t.file(c)
		}
		if n > 0 {
			return nil
		}
		left := time.Until(t.until)
		if left <= 0 {
			return fmt.Errorf("no completion after %v", patience)
		}
		if _, err := t.ring.SubmitAndWaitTimeout(1, left); err != nil {
			return err
		}
	}
}

func (t *trial) file(c uring.CQE) {
	if !c.Has(uring.CQEMore) {
		delete(t.live, c.UserData)
	}
	if t.results[c.UserData] && c.Res >= 0 {
		t.files.add(int(c.Res))
	}
	t.waiting = append(t.waiting, c)
}

// idCancel begins the user data of cancellations.
const idCancel = 1 << 33

// end cancels the operations in flight, waits for them and frees everything.
func (t *trial) end() error {
	var stuck error
	t.until = time.Now().Add(patience)
	for id := range t.live {
		if stuck == nil {
			stuck = t.start(idCancel|id, func(e *uring.SQE) { e.Cancel(id) })
		}
	}
	for len(t.live) > 0 && stuck == nil {
		stuck = t.reap()
	}
	if stuck != nil {
		abandon(t.held)
	}
	t.files.close()
	return firstError(t.ring.Close(), stuck)
}

// abandoned is memory that operations still used when their trial was given up.
var abandoned struct {
	sync.Mutex
	held []any
}

func abandon(held []any) {
	abandoned.Lock()
	defer abandoned.Unlock()
	abandoned.held = append(abandoned.held, held...)
}
