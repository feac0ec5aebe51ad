// SPDX-License-Identifier: MIT

package uring_test

import (
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerSetup(uring.SetupIOPoll, row{since: "5.1", uses: []string{"Options.IOPoll"}, kernel: kernelSetupIOPoll})
	ledgerSetup(uring.SetupSQPoll, row{since: "5.1", uses: []string{"Options.SQPoll", "Options.SQPollIdle", "Ring.WaitSQ"}, kernel: kernelSetupSQPoll})
	ledgerSetup(uring.SetupSQAff, row{since: "5.1", uses: []string{"Options.SQPollPinned", "Options.SQPollCPU"}, kernel: kernelSetupSQAff})
	ledgerSetup(uring.SetupCQSize, row{since: "5.5", uses: []string{"Options.CQEntries"}, kernel: kernelSetupCQSize})
	ledgerSetup(uring.SetupClamp, row{since: "5.6", uses: []string{"Options.Clamp"}, kernel: kernelSetupClamp})
	ledgerSetup(uring.SetupAttachWQ, row{since: "5.6", uses: []string{"Options.AttachWQ"}, kernel: kernelSetupAttachWQ})
	ledgerSetup(uring.SetupDisabled, row{since: "5.10", uses: []string{"Options.Disabled", "Ring.Enable"}, kernel: kernelSetupDisabled})
	ledgerSetup(uring.SetupSubmitAll, row{since: "5.18", uses: []string{"Options.SubmitAll"}, kernel: kernelSetupSubmitAll})
	ledgerSetup(uring.SetupCoopTaskrun, row{since: "5.19", uses: []string{"Options.CoopTaskrun"}, kernel: kernelSetupCoopTaskrun})
	ledgerSetup(uring.SetupTaskrunFlag, row{since: "5.19", uses: []string{"Options.TaskrunFlag", "Ring.SQFlags"}, kernel: kernelSetupTaskrunFlag})
	ledgerSetup(uring.SetupSQE128, row{since: "5.19", uses: []string{"Options.SQE128", "Ring.BigSQE"}, kernel: kernelSetupSQE128})
	ledgerSetup(uring.SetupCQE32, row{since: "5.19", uses: []string{"Options.CQE32", "Ring.ReapBig"}, kernel: kernelSetupCQE32})
	ledgerSetup(uring.SetupSingleIssuer, row{since: "6.0", uses: []string{"Options.SingleIssuer"}, kernel: kernelSetupSingleIssuer})
	ledgerSetup(uring.SetupDeferTaskrun, row{since: "6.1", uses: []string{"Options.DeferTaskrun"}, kernel: kernelSetupDeferTaskrun})
	ledgerSetup(uring.SetupNoMmap, row{since: "6.5", uses: []string{"Options.NoMmap", "Options.HugePages"}, kernel: kernelSetupNoMmap})
	ledgerSetup(uring.SetupRegisteredFDOnly, row{since: "6.5", uses: []string{"Options.RegisteredFDOnly"}, kernel: kernelSetupRegisteredFDOnly})
	ledgerSetup(uring.SetupNoSQArray, row{since: "6.6", uses: []string{"Options.NoSQArray"}, kernel: kernelSetupNoSQArray})
	ledgerSetup(uring.SetupHybridIOPoll, row{since: "6.13", uses: []string{"Options.HybridIOPoll"}, kernel: kernelSetupHybridIOPoll})
	ledgerSetup(uring.SetupCQEMixed, row{since: "6.18", uses: []string{"Options.CQEMixed", "Ring.ReapBig"}, kernel: kernelSetupCQEMixed})
}

func kernelSetupDisabled(t *testing.T) {
	ringtest.NeedKernel(t, "R_DISABLED", "5.10")
	for _, o := range []uring.Options{{}, {SQPoll: true}} {
		o.Disabled = true
		r := ctlRing(t, o)
		ctlNext(t, r).Nop().SetUserData(1)
		_, err := r.Submit()
		ctlErrno(t, "submit", err, ctlEBADFD)
		_, err = r.SubmitAndWait(1)
		ctlErrno(t, "submit and wait", err, ctlEBADFD)
		if r.SetupFlags()&uring.SetupDisabled == 0 || r.Pending() != 1 {
			t.Errorf("flags %#x, %d entries pending", r.SetupFlags(), r.Pending())
		}
		ctlOK(t, "enable", r.Enable())
		if c := ringtest.Await(t, r, 1)[0]; c.UserData != 1 {
			t.Errorf("completion %+v", c)
		}
		if r.SetupFlags()&uring.SetupDisabled != 0 {
			t.Error("an enabled ring shows R_DISABLED")
		}
		ctlErrno(t, "enable twice", r.Enable(), ctlEBADFD)
	}
}

// kernelSetupSubmitAll submits an entry that the kernel rejects, followed by one that it
// accepts.
func kernelSetupSubmitAll(t *testing.T) {
	ringtest.NeedKernel(t, "SUBMIT_ALL", "5.18")
	for _, all := range []bool{false, true} {
		r := ctlRing(t, uring.Options{SubmitAll: all})
		bad := ctlNext(t, r).Nop().SetUserData(1)
		bad.Raw().Opcode = 0xff
		ctlNext(t, r).Nop().SetUserData(2)
		n, err := r.Submit()
		if want := map[bool]int{false: 1, true: 2}[all]; n != want || err != nil || r.Pending() != 2-want {
			t.Fatalf("SubmitAll %v: submitted %d, %v, %d pending; want %d", all, n, err, r.Pending(), want)
		}
		got := ringtest.Await(t, r, 2)
		if got[0].UserData != 1 || got[0].Errno() != syscall.EINVAL || got[1].UserData != 2 || got[1].Res != 0 {
			t.Errorf("SubmitAll %v: completions %+v", all, got)
		}
	}
}

func TestSetupFlagsErrors(t *testing.T) {
	for name, o := range map[string]uring.Options{
		"pinned without SQPoll":      {SQPollPinned: true},
		"SQPoll and CoopTaskrun":     {SQPoll: true, CoopTaskrun: true},
		"SQPoll and DeferTaskrun":    {SQPoll: true, DeferTaskrun: true},
		"SQPoll and TaskrunFlag":     {SQPoll: true, TaskrunFlag: true},
		"TaskrunFlag alone":          {TaskrunFlag: true},
		"both sizes of completions":  {CQE32: true, CQEMixed: true},
		"CQ smaller than SQ":         {Entries: 16, CQEntries: 8},
		"CQ smaller than default SQ": {CQEntries: 8},
		"negative idle time":         {SQPoll: true, SQPollIdle: -1},
		"attached to no descriptor":  {AttachWQ: new(uring.Ring)},
	} {
		if _, err := o.SetupFlags(); err == nil {
			t.Errorf("%s: accepted", name)
		} else if _, open := uring.Open(o); open == nil || open.Error() != err.Error() {
			t.Errorf("%s: Open returns %v, SetupFlags %v", name, open, err)
		}
	}
}

func TestSetupFlagsDerived(t *testing.T) {
	for _, test := range []struct {
		o    uring.Options
		want uring.SetupFlags
	}{
		{uring.Options{}, 0},
		{uring.Options{HybridIOPoll: true}, uring.SetupHybridIOPoll | uring.SetupIOPoll},
		{uring.Options{DeferTaskrun: true}, uring.SetupDeferTaskrun | uring.SetupSingleIssuer | uring.SetupTaskrunFlag},
		{uring.Options{HugePages: true}, uring.SetupNoMmap},
		{uring.Options{RegisteredFDOnly: true}, uring.SetupRegisteredFDOnly | uring.SetupNoMmap},
		{uring.Options{CQEntries: 256}, uring.SetupCQSize},
		{uring.Options{Entries: 5, CQEntries: 7}, uring.SetupCQSize}, // both round up to 8
	} {
		if got, err := test.o.SetupFlags(); got != test.want || err != nil {
			t.Errorf("%+v: flags %#x, %v; want %#x", test.o, got, err, test.want)
		}
	}
}
