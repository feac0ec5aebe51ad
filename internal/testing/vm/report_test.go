// SPDX-License-Identifier: MIT

package vm

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/vm/wire"
)

func testConfig(t *testing.T, jobs int) Config {
	t.Helper()
	cfg := Config{Kernel: "kernel"}
	for range jobs {
		cfg.Jobs = append(cfg.Jobs, wire.Job{Path: "/x", Timeout: time.Second})
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestCollector(t *testing.T) {
	c := newCollector(testConfig(t, 3))
	booted := 0
	c.begin(func() { booted++ })
	if err := c.err(); err == nil {
		t.Error("no error before the boot")
	}
	c.output([]byte("noise"))
	c.event(wire.Event{Kind: wire.Boot, Guest: &wire.Guest{Release: "6.1"}})
	c.event(wire.Event{Kind: wire.Start, Job: 0})
	c.output([]byte("a\n"))
	c.output([]byte("b\n"))
	c.event(wire.Event{Kind: wire.End, Job: 0, Exit: 1, Took: time.Second})
	c.output([]byte("noise"))
	c.event(wire.Event{Kind: wire.Start, Job: 1})
	c.output([]byte("half"))
	if err := c.err(); err == nil {
		t.Error("no error in the middle")
	}

	// The machine fails here and is started again for the other jobs.
	c.begin(func() { booted++ })
	if c.next != 1 {
		t.Errorf("would continue at job %d", c.next)
	}
	c.event(wire.Event{Kind: wire.Boot})
	c.event(wire.Event{Kind: wire.Start, Job: 1})
	c.output([]byte("whole"))
	c.event(wire.Event{Kind: wire.End, Job: 1})
	c.event(wire.Event{Kind: wire.End, Job: 99})
	c.event(wire.Event{Kind: wire.Start, Job: -1})
	c.event(wire.Event{Kind: wire.Done})
	if err := c.err(); err != nil {
		t.Error(err)
	}

	r := c.report
	if booted != 2 || r.Boots != 2 || r.Guest.Release != "6.1" {
		t.Errorf("%d calls, %+v", booted, r)
	}
	if x := r.Results[0]; x.OK() || x.Exit != 1 || x.Note != "" || string(x.Output) != "a\nb\n" || x.Took != time.Second {
		t.Errorf("first job: %+v", x)
	}
	if x := r.Results[1]; !x.OK() || string(x.Output) != "whole" {
		t.Errorf("second job: %+v", x)
	}
	if x := r.Results[2]; x.OK() || x.Note != "not run" {
		t.Errorf("third job: %+v", x)
	}
}

func TestCollectorFatal(t *testing.T) {
	c := newCollector(testConfig(t, 1))
	c.begin(func() {})
	c.event(wire.Event{Kind: wire.Boot})
	c.event(wire.Event{Kind: wire.Fatal, Note: "port gone"})
	if err := c.err(); err == nil || !strings.Contains(err.Error(), "port gone") {
		t.Errorf("got %v", err)
	}
}

func TestCollectorBounds(t *testing.T) {
	c := newCollector(testConfig(t, 1))
	c.begin(func() {})
	c.event(wire.Event{Kind: wire.Start})
	piece := make([]byte, maxOutput/2+1)
	for range 4 {
		c.output(piece)
	}
	out := c.report.Results[0].Output
	if len(out) > maxOutput+100 || !bytes.HasSuffix(out, []byte("[output cut here]\n")) {
		t.Errorf("%d bytes kept", len(out))
	}
}

func TestConfigRejects(t *testing.T) {
	for name, cfg := range map[string]Config{
		"nothing to run": {},
		"no timeout":     {Jobs: []wire.Job{{Path: "/x"}}},
	} {
		if _, err := cfg.withDefaults(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestEmulatorRace(t *testing.T) {
	if !emulatorRace([]byte("[ 1.2] Oops: int3: 0000 [#1] PREEMPT SMP\n")) || !emulatorRace([]byte("[ 1.2] int3: 0000 [#1] PREEMPT SMP\n")) {
		t.Error("the race of the emulator was not recognised")
	}
	if emulatorRace([]byte("[ 1.2] Oops: general protection fault: 0000 [#1]\n")) {
		t.Error("another oops was taken for the race")
	}
}
