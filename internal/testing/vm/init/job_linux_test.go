// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

const envRole = "RINGSIDE_TEST_INIT"

// TestMain turns the test binary into a program that ends in the requested way.
func TestMain(m *testing.M) {
	switch os.Getenv(envRole) {
	case "":
		os.Exit(m.Run())
	case "fail":
		os.Exit(3)
	case "kill":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Hour)
	case "hang":
		time.Sleep(time.Hour)
	}
}

func TestWait(t *testing.T) {
	for _, tt := range []struct {
		role    string
		timeout time.Duration
		exit    int
		note    string
	}{
		{"succeed", time.Minute, 0, ""},
		{"fail", time.Minute, 3, ""},
		{"kill", time.Minute, -1, "signal: killed"},
		{"hang", 100 * time.Millisecond, -1, "timed out after 100ms"},
	} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), envRole+"="+tt.role)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if exit, note := wait(cmd, tt.timeout); exit != tt.exit || note != tt.note {
			t.Errorf("%s: got %d, %q, want %d, %q", tt.role, exit, note, tt.exit, tt.note)
		}
	}
}

func TestGate(t *testing.T) {
	var out bytes.Buffer
	g := &gate{out: &out}
	g.Write([]byte("in time"))
	g.close()
	if n, err := g.Write([]byte("late")); n != 4 || err != nil {
		t.Errorf("a late write returned %d, %v", n, err)
	}
	if out.String() != "in time" {
		t.Errorf("passed on %q", &out)
	}
}

func TestLinkUp(t *testing.T) {
	messages, err := syscall.ParseNetlinkMessage(linkUp(7))
	if err != nil || len(messages) != 1 {
		t.Fatalf("%d messages, %v", len(messages), err)
	}
	m := messages[0]
	if m.Header.Type != syscall.RTM_NEWLINK || m.Header.Flags != syscall.NLM_F_REQUEST|syscall.NLM_F_ACK {
		t.Errorf("header %+v", m.Header)
	}
	if len(m.Data) != syscall.SizeofIfInfomsg {
		t.Errorf("%d bytes follow the header", len(m.Data))
	}
}

func TestNetlinkError(t *testing.T) {
	ack := func(code byte) []byte {
		b := make([]byte, 20)
		b[0], b[4], b[16] = 20, syscall.NLMSG_ERROR, code
		if code != 0 {
			copy(b[16:], []byte{code, 0xff, 0xff, 0xff})
		}
		return b
	}
	if err := netlinkError(ack(0)); err != nil {
		t.Errorf("an acknowledgement gives %v", err)
	}
	if err := netlinkError(ack(0xff)); err != syscall.EPERM {
		t.Errorf("-1 gives %v", err)
	}
	if err := netlinkError(nil); err == nil {
		t.Error("want an error without an answer")
	}
}

func TestUtsString(t *testing.T) {
	if got := utsString([]int8{'6', '.', '1', 0, 'x'}); got != "6.1" {
		t.Errorf("got %q", got)
	}
}

func TestGuestNotes(t *testing.T) {
	var g guest
	g.note("nothing", nil)
	g.note("mount", syscall.EPERM)
	if len(g.notes) != 1 || !strings.HasPrefix(g.notes[0], "mount: ") {
		t.Errorf("notes %q", g.notes)
	}
}

func TestDirectWorks(t *testing.T) {
	if directWorks(t.TempDir() + "/nothing") {
		t.Error("O_DIRECT in a directory that does not exist")
	}
	if directWorks("/proc/self") {
		t.Error("O_DIRECT on proc")
	}
}
