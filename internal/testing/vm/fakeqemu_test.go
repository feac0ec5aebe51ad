// SPDX-License-Identifier: MIT

package vm

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/vm/wire"
)

// envQEMU turns the test binary into an emulator; its value is the behaviour.
const envQEMU = "RINGSIDE_TEST_QEMU"

func TestMain(m *testing.M) {
	behaviour := os.Getenv(envQEMU)
	if behaviour == "" {
		os.Exit(m.Run())
	}
	if err := fakeQEMU(behaviour); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func fakeQEMU(behaviour string) error {
	plan, err := planOf("initramfs.gz")
	if err != nil {
		return err
	}
	w := wire.NewWriter(os.Stdout, plan.Nonce)
	switch behaviour {
	case "refuse":
		return errors.New("no such accelerator")
	case "silent":
		time.Sleep(time.Hour)
	case "crash":
		return dieOfRace()
	case "crash once":
		w.Event(wire.Event{Kind: wire.Boot})
		if plan.First == 0 {
			runJob(w, 0)
			w.Event(wire.Event{Kind: wire.Start, Job: 1})
			fmt.Fprint(w, "half")
			return dieOfRace()
		}
	}
	for i := plan.First; i < len(plan.Jobs); i++ {
		runJob(w, i)
	}
	return w.Event(wire.Event{Kind: wire.Done})
}

func runJob(w *wire.Writer, i int) {
	w.Event(wire.Event{Kind: wire.Start, Job: i})
	fmt.Fprint(w, "whole")
	w.Event(wire.Event{Kind: wire.End, Job: i})
}

func dieOfRace() error {
	return os.WriteFile("console", []byte("Oops: int3: 0000 [#1] SMP\r\n"), 0o644)
}

// planOf finds the plan in an initramfs.
func planOf(path string) (wire.Plan, error) {
	var plan wire.Plan
	f, err := os.Open(path)
	if err != nil {
		return plan, err
	}
	defer f.Close()
	unzip, err := gzip.NewReader(f)
	if err != nil {
		return plan, err
	}
	archive, err := io.ReadAll(unzip)
	if err != nil {
		return plan, err
	}
	start := bytes.Index(archive, []byte(`{"Nonce"`))
	if start < 0 {
		return plan, errors.New("no plan in the initramfs")
	}
	return plan, json.NewDecoder(bytes.NewReader(archive[start:])).Decode(&plan)
}

// runFake runs three jobs on the fake emulator.
func runFake(t *testing.T, behaviour string, bootTimeout time.Duration) (*Report, error) {
	t.Helper()
	t.Setenv(envQEMU, behaviour)
	cfg := testConfig(t, 3)
	cfg.Tools.QEMU, cfg.BootTimeout = os.Args[0], bootTimeout
	cfg.Init = filepath.Join(t.TempDir(), "init")
	if err := os.WriteFile(cfg.Init, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	return Run(t.Context(), cfg)
}

func TestRunAfterRace(t *testing.T) {
	report, err := runFake(t, "crash once", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if report.Boots != 2 || len(report.Console) != 0 {
		t.Errorf("%d boots, log of the last %q", report.Boots, report.Console)
	}
	for i, r := range report.Results {
		if !r.OK() || string(r.Output) != "whole\n" {
			t.Errorf("job %d: %+v", i, r)
		}
	}
}

func TestRunGivesUp(t *testing.T) {
	report, err := runFake(t, "crash", time.Minute)
	if err == nil || report == nil {
		t.Fatalf("got %+v, %v", report, err)
	}
	if report.Boots != maxBoots || string(report.Console) != "Oops: int3: 0000 [#1] SMP\n" {
		t.Errorf("%d boots, console %q", report.Boots, report.Console)
	}
}

func TestRunRefused(t *testing.T) {
	report, err := runFake(t, "refuse", time.Minute)
	if err == nil || !strings.Contains(err.Error(), "no such accelerator") || report.Boots != 1 {
		t.Errorf("got %+v, %v", report, err)
	}
}

func TestRunSilent(t *testing.T) {
	_, err := runFake(t, "silent", 200*time.Millisecond)
	if !errors.Is(err, errNoBoot) {
		t.Errorf("got %v", err)
	}
}
