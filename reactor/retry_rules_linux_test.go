// SPDX-License-Identifier: MIT

package reactor

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/uring"
)

// answering is a ring, and its parker, whose operations end at once, with the result of
// answer. It has no thread and no kernel.
type answering struct {
	sqes     []uring.SQE
	mu       sync.Mutex                                  // of cqes
	cqes     []uring.CQE                                 // results that have not been reaped
	readable func()                                      // what the parker calls
	alone    bool                                        // one goroutine submits and reaps, without the parker
	answer   func(e *uring.RawSQE) (res int32, now bool) // now is false: the operation ends later, by end
	held     []uint64                                    // user data of operations without a result
	exited   func() (exited, sure bool)
	never    bool // the files never return ECANCELED themselves
	submits  int
	depth    int // the deepest stack of a submission
}

func (a *answering) SQE() *uring.SQE {
	a.sqes = append(a.sqes, uring.SQE{})
	return &a.sqes[len(a.sqes)-1]
}

func (a *answering) SQSpace() int { return cap(a.sqes) - len(a.sqes) }

func (a *answering) Submit() (int, error) {
	a.submits++
	var frames [1 << 12]uintptr
	a.depth = max(a.depth, runtime.Callers(0, frames[:]))
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.sqes {
		e := a.sqes[i].Raw()
		if res, now := a.answer(e); now {
			a.cqes = append(a.cqes, uring.CQE{UserData: e.UserData, Res: res})
		} else {
			a.held = append(a.held, e.UserData)
		}
	}
	n := len(a.sqes)
	a.sqes = a.sqes[:0]
	if !a.alone {
		go a.readable() // another goroutine may have reaped too early
	}
	return n, nil
}

// end completes the held operations. answer calls it: a submission holds mu.
func (a *answering) end(res int32) {
	for _, ud := range a.held {
		a.cqes = append(a.cqes, uring.CQE{UserData: ud, Res: res})
	}
	a.held = nil
}

func (a *answering) Reap(dst []uring.CQE) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := copy(dst, a.cqes)
	a.cqes = a.cqes[n:]
	return n
}

func (a *answering) SubmitNoWait() (int, error)     { return a.Submit() }
func (a *answering) CQOverflow() uint32             { return 0 }
func (a *answering) Close() error                   { return nil }
func (a *answering) Submitter() int                 { return 1 }
func (a *answering) Exited(int) (exited, sure bool) { return a.exited() }

func (a *answering) AnswersCancelled(int) bool { return !a.never }

func (a *answering) Start(readable func(), _ func(error)) error {
	a.readable = readable
	return nil
}

func (a *answering) Stop() error { return nil }

// onAnswering returns a reactor that uses a.
func onAnswering(t *testing.T, a *answering) *Reactor {
	t.Helper()
	a.sqes = make([]uring.SQE, 0, 64)
	r, err := New(Options{Loops: 1, Entries: 64, Logger: slog.New(slog.DiscardHandler),
		open: func(*Options, ring) (ring, parker, error) { return a, a, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// wantRules lists for every opcode after which results it may be submitted again, and why.
var wantRules = map[uring.Op]struct {
	rule retryRule
	why  string
}{
	uring.OpNop:            {retryStopped, "does nothing"},
	uring.OpReadv:          {retryStopped, "takes data only if it succeeds"},
	uring.OpWritev:         {retryCancelled, "a part that was written is a count"},
	uring.OpFsync:          {retryStopped, "once more is as good as once"},
	uring.OpReadFixed:      {retryStopped, "takes data only if it succeeds"},
	uring.OpWriteFixed:     {retryCancelled, "a part that was written is a count"},
	uring.OpPollAdd:        {retryStopped, "only looks"},
	uring.OpPollRemove:     {retryNever, "another poll may use the user data by then"},
	uring.OpSyncFileRange:  {retryStopped, "once more is as good as once"},
	uring.OpSendMsg:        {retryCancelled, "a part that was sent is a count"},
	uring.OpRecvMsg:        {retryStopped, "takes data only if it succeeds"},
	uring.OpTimeout:        {retryStopped, "fires later"},
	uring.OpTimeoutRemove:  {retryNever, "another timeout may use the user data by then"},
	uring.OpAccept:         {retryStopped, "takes a connection only if it succeeds"},
	uring.OpAsyncCancel:    {retryNever, "another operation may use the user data by then"},
	uring.OpLinkTimeout:    {retryNever, "belongs to another entry"},
	uring.OpConnect:        {retryNever, "continues after an interruption"},
	uring.OpFallocate:      {retryNever, "changes the file"},
	uring.OpOpenAt:         {retryNever, "may create or truncate"},
	uring.OpClose:          {retryNever, "the number may be another's"},
	uring.OpFilesUpdate:    {retryNever, "changes the table"},
	uring.OpStatx:          {retryNever, "depends on the thread"},
	uring.OpRead:           {retryStopped, "takes data only if it succeeds"},
	uring.OpWrite:          {retryCancelled, "a part that was written is a count"},
	uring.OpFadvise:        {retryStopped, "advice"},
	uring.OpMadvise:        {retryNever, "MADV_DONTNEED and similar advice drop data"},
	uring.OpSend:           {retryCancelled, "a part that was sent is a count"},
	uring.OpRecv:           {retryStopped, "takes data only if it succeeds"},
	uring.OpOpenAt2:        {retryNever, "may create or truncate"},
	uring.OpEpollCtl:       {retryNever, "changes the interest list"},
	uring.OpSplice:         {retryNever, "moves data between two files"},
	uring.OpProvideBuffers: {retryNever, "would provide the buffers twice"},
	uring.OpRemoveBuffers:  {retryNever, "would remove other buffers"},
	uring.OpTee:            {retryNever, "copies data into a pipe"},
	uring.OpShutdown:       {retryNever, "changes the socket"},
	uring.OpRenameAt:       {retryNever, "changes names"},
	uring.OpUnlinkAt:       {retryNever, "changes names"},
	uring.OpMkdirAt:        {retryNever, "changes names"},
	uring.OpSymlinkAt:      {retryNever, "changes names"},
	uring.OpLinkAt:         {retryNever, "changes names"},
	uring.OpMsgRing:        {retryNever, "the message may have arrived"},
	uring.OpFsetxattr:      {retryNever, "changes the file"},
	uring.OpSetxattr:       {retryNever, "changes the file"},
	uring.OpFgetxattr:      {retryStopped, "only looks"},
	uring.OpGetxattr:       {retryNever, "depends on the thread"},
	uring.OpSocket:         {retryNever, "creates a descriptor"},
	uring.OpUringCmd:       {retryNever, "a device's command"},
	uring.OpSendZC:         {retryNever, "the kernel may still read its memory"},
	uring.OpSendMsgZC:      {retryNever, "the kernel may still read its memory"},
	uring.OpReadMultishot:  {retryStopped, "takes data only if it succeeds"},
	uring.OpWaitID:         {retryStopped, "takes a child's end only if it succeeds"},
	uring.OpFutexWait:      {retryStopped, "looks at the word again"},
	uring.OpFutexWake:      {retryNever, "would wake other waiters"},
	uring.OpFutexWaitv:     {retryStopped, "looks at the words again"},
	uring.OpFixedFDInstall: {retryNever, "creates a descriptor"},
	uring.OpFtruncate:      {retryNever, "changes the file"},
	uring.OpBind:           {retryNever, "changes the socket"},
	uring.OpListen:         {retryNever, "changes the socket"},
	uring.OpRecvZC:         {retryNever, "its stream has its own buffers"},
	uring.OpEpollWait:      {retryStopped, "takes events only if it succeeds"},
	uring.OpReadvFixed:     {retryStopped, "takes data only if it succeeds"},
	uring.OpWritevFixed:    {retryCancelled, "a part that was written is a count"},
	uring.OpPipe:           {retryNever, "creates descriptors"},
}

// TestRetryRules ends each operation early, in each way and situation. An operation that
// may not be submitted again has that errno as its result; every other operation succeeds.
// Promise: reactor/operation-submitted-again
func TestRetryRules(t *testing.T) {
	const restart = 512 // ERESTARTSYS, which Linux 6.1 returns
	states := map[string]struct{ exited, never bool }{
		"the thread runs":   {},
		"the thread exited": {exited: true},
		"the thread runs, and no file returns ECANCELED itself": {never: true},
	}
	noFile := []uring.Op{uring.OpNop, uring.OpStatx, uring.OpGetxattr, uring.OpTimeout, uring.OpFutexWait, uring.OpFutexWaitv, uring.OpWaitID}
	for op := range uring.Op(uring.OpCount) {
		want, ok := wantRules[op]
		if !ok {
			t.Errorf("%v has no row", op)
			continue
		}
		for _, answer := range []int32{int32(syscall.ECANCELED), int32(syscall.EINTR), restart} {
			for state, is := range states {
				name := fmt.Sprintf("%v (%s), answer %d, %s", op, want.why, answer, state)
				started := 0
				exited := func() (bool, bool) { return is.exited, true }
				a := &answering{exited: exited, never: is.never, answer: func(e *uring.RawSQE) (int32, bool) {
					if started++; started == 1 {
						return -answer, true
					}
					return 7, true
				}}
				entry := new(Op)
				entry.SQE.Nop().Raw().Opcode = uint8(op)
				res := onAnswering(t, a).Do(entry)
				again := want.rule == retryStopped && answer != int32(syscall.ECANCELED) ||
					want.rule != retryNever && answer == int32(syscall.ECANCELED) &&
						(is.exited || is.never && !slices.Contains(noFile, op))
				wantRes, wantStarted := min(answer, int32(syscall.ECANCELED)), 1
				if answer == restart {
					wantRes = int32(syscall.EINTR)
				}
				if wantRes = -wantRes; again {
					wantRes, wantStarted = 7, 2
				}
				if res.Cause != nil || res.Res != wantRes || started != wantStarted {
					t.Errorf("%s: started %d times, result %+v; want %d times and %d", name, started, res, wantStarted, wantRes)
				}
			}
		}
	}
}

// TestRetriesAreBounded starts an operation that is always interrupted: it ends with the
// error, and the stack does not grow.
// Promise: reactor/operation-submitted-again
func TestRetriesAreBounded(t *testing.T) {
	depth := 0
	a := &answering{alone: true, exited: func() (bool, bool) { return true, true }}
	a.answer = func(*uring.RawSQE) (int32, bool) {
		if a.submits == 3 {
			depth = a.depth // of the second retry: the first may be submitted from elsewhere
		}
		return -int32(syscall.EINTR), true
	}
	r := onAnswering(t, a)
	if res := r.Do(readOp(0, make([]byte, 1), 0)); res.Errno() != syscall.EINTR || a.submits != 1+maxRetries {
		t.Errorf("%+v after %d submissions, want EINTR after %d", res, a.submits, 1+maxRetries)
	}
	if a.depth > depth {
		t.Errorf("the stack grew from %d to %d frames", depth, a.depth)
	}
	if n := r.Stats().Retried; n != maxRetries {
		t.Errorf("%d retries are counted, want %d", n, maxRetries)
	}
}

// TestEntriesThatCancelAreObeyed submits an entry that cancels an operation in flight whose
// thread has exited: the end of the operation counts as requested.
// Promise: reactor/operation-submitted-again
func TestEntriesThatCancelAreObeyed(t *testing.T) {
	for name, build := range map[string]func(e *uring.SQE){
		"by FD":         func(e *uring.SQE) { e.CancelWith(uring.CancelOptions{ByFD: true, FD: uring.Fd(5), All: true}) },
		"any":           func(e *uring.SQE) { e.CancelWith(uring.CancelOptions{Any: true, All: true}) },
		"PollRemove":    func(e *uring.SQE) { e.PollRemove(1) },
		"TimeoutRemove": func(e *uring.SQE) { e.TimeoutRemove(1) },
	} {
		for _, errno := range []syscall.Errno{syscall.ECANCELED, syscall.EINTR} {
			a := &answering{exited: func() (bool, bool) { return true, true }}
			a.answer = func(e *uring.RawSQE) (int32, bool) {
				if e.Opcode == uint8(uring.OpRead) {
					return 0, false
				}
				a.end(-int32(errno))
				return 1, true
			}
			r := onAnswering(t, a)
			ended := make(chan Result, 1)
			if _, err := r.Queue(readOp(5, make([]byte, 1), 0), func(res Result) { ended <- res }); err != nil {
				t.Fatal(err)
			}
			op := new(Op)
			build(&op.SQE)
			if res := r.Do(op); res.Res != 1 {
				t.Errorf("%s: %+v", name, res)
			}
			if res := <-ended; res.Errno() != errno {
				t.Errorf("%s: the read ends with %+v, want %v", name, res, errno)
			}
		}
	}
}

// TestThreadThatIsAboutToExit reports several times that the thread still runs. The
// operation waits for the decision, and may be cancelled meanwhile.
// Promise: reactor/operation-submitted-again
func TestThreadThatIsAboutToExit(t *testing.T) {
	const never = 1 << 20
	for _, looks := range []int{0, 1, maxRechecks, never} {
		n, started := 0, 0
		a := &answering{
			exited: func() (bool, bool) { n++; return n > looks, n > looks },
			answer: func(*uring.RawSQE) (int32, bool) {
				if started++; started == 1 {
					return -int32(syscall.ECANCELED), true
				}
				return 3, true
			},
		}
		want := int32(3)
		if looks == never {
			want = -int32(syscall.ECANCELED)
		}
		if res := onAnswering(t, a).Do(readOp(0, make([]byte, 4), 0)); res.Res != want || res.Cause != nil {
			t.Errorf("after %d checks: %+v, want %d", looks, res, want)
		}
	}
	a := &answering{exited: func() (bool, bool) { return false, false }, answer: func(e *uring.RawSQE) (int32, bool) {
		if e.Opcode == uint8(uring.OpAsyncCancel) {
			return -int32(syscall.ENOENT), true
		}
		return -int32(syscall.ECANCELED), true
	}}
	r := onAnswering(t, a)
	ended := make(chan Result, 1)
	id, err := r.Queue(readOp(0, make([]byte, 4), 0), func(res Result) { ended <- res })
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	_ = r.Cancel(id) // it may have ended already
	if res := <-ended; res.Errno() != syscall.ECANCELED {
		t.Errorf("cancelled while the thread is checked: %+v after %v", res, time.Since(begin))
	}
}
