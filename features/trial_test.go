// SPDX-License-Identifier: MIT

package features

import (
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/probe"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// The kernel's query and the trials must find the same features. Where the kernel does not
// support the query, only TestTableClaims checks the trials.
func TestQueryAndTrialsAgree(t *testing.T) {
	ringtest.NeedKernel(t, "REGISTER_QUERY", "6.18")
	asked, tried := newHost(), newHost()
	if asked.queried() == nil {
		t.Fatal("needs a kernel with IORING_REGISTER_QUERY")
	}
	tried.query = func() (uring.KernelInfo, error) { return uring.KernelInfo{}, os.ErrInvalid }
	a, b := asked.collect(), tried.collect()
	for _, table := range []struct {
		name string
		a, b []probe.Entry
	}{
		{"features", a.Features, b.Features}, {"ops", a.Ops, b.Ops}, {"setup", a.Setup, b.Setup},
		{"register", a.Register, b.Register}, {"enter", a.Enter, b.Enter},
	} {
		for i := range table.a {
			if table.a[i].Answer != table.b[i].Answer {
				t.Errorf("%s: the query found %+v, the trial %+v", table.name, table.a[i], table.b[i])
			}
		}
	}
	// Features that neither the kernel nor package uring knows yet.
	for _, h := range []*host{asked, tried} {
		for name, err := range map[string]error{
			"op": h.haveOp(250), "setup": h.haveSetup(1 << 31), "register": h.haveRegister(1000),
			"enter": h.haveEnter(1 << 31), "feature": h.haveFeature(1 << 31),
		} {
			if got, _, _ := describe(err); got != probe.Unsupported {
				t.Errorf("an unknown %s: %v", name, err)
			}
		}
	}
}

// Trials leave no descriptor open and no memory in use.
func TestTrialsLeaveNothing(t *testing.T) {
	ringtest.NeedRing(t)
	newHost().collect() // files that are opened once are opened now
	before := ringtest.Descriptors(t, "")
	for range 3 {
		newHost().collect()
	}
	if after := ringtest.Descriptors(t, ""); !reflect.DeepEqual(before, after) {
		t.Errorf("descriptors before %v, after %v", before, after)
	}
	abandoned.Lock()
	defer abandoned.Unlock()
	if n := len(abandoned.held); n > 0 {
		t.Errorf("%d buffers were given up", n)
	}
}

// A trial stops waiting for a completion that does not come, and cancels what it started.
func TestTrialCancels(t *testing.T) {
	ringtest.NeedRing(t)
	err := newHost().withTrial(plain(), func(tr *trial) error {
		a, _, err := tr.files.pair()
		if err != nil {
			return err
		}
		buf := make([]byte, 8)
		tr.hold(buf)
		if err := tr.start(1, func(e *uring.SQE) { e.Recv(uring.Fd(a), buf, 0) }); err != nil {
			return err
		}
		if len(tr.live) != 1 {
			t.Errorf("%d operations in flight, want 1", len(tr.live))
		}
		tr.until = time.Now().Add(time.Millisecond)
		if cqe, err := tr.await(1); err == nil {
			t.Errorf("a receive without data completed: %+v", cqe)
		}
		if err := tr.end(); err != nil {
			return err
		}
		if len(tr.live) != 0 {
			t.Errorf("%d operations are left", len(tr.live))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func BenchmarkHaveOp(b *testing.B) {
	ringtest.NeedRing(b)
	for b.Loop() {
		_ = HaveOp(uring.OpRead)
	}
}
