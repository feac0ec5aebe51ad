// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"

	"github.com/ringside-io/ringside/internal/testing/vm/wire"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init: only as the first process of a machine")
		os.Exit(2)
	}
	if err := serve(); err != nil {
		// Without the port errors can be reported on the kernel's console only.
		fmt.Fprintln(os.Stderr, "init:", err)
	}
	syscall.Sync()
	err := syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
	fmt.Fprintln(os.Stderr, "init: power off:", err)
}

// serve does all work between boot and power off. It closes the port, which waits
// until the last byte is sent.
func serve() error {
	var g guest
	g.mountAll()
	plan, err := readPlan()
	if err != nil {
		return err
	}
	out, err := openPort(plan.Port)
	if err != nil {
		return err
	}
	defer out.Close()
	w := wire.NewWriter(out, plan.Nonce)
	if err := g.prepare(plan); err != nil {
		return w.Event(wire.Event{Kind: wire.Fatal, Note: err.Error()})
	}
	info := g.describe()
	if err := w.Event(wire.Event{Kind: wire.Boot, Guest: &info}); err != nil {
		return err
	}
	for i := plan.First; i < len(plan.Jobs); i++ {
		if err := g.runJob(w, i, plan.Jobs[i]); err != nil {
			return w.Event(wire.Event{Kind: wire.Fatal, Note: err.Error()})
		}
	}
	return w.Event(wire.Event{Kind: wire.Done})
}

// openPort opens the line to the host. The kernel may find the device in the
// background of booting.
func openPort(path string) (*os.File, error) {
	if err := await(path); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|syscall.O_NOCTTY, 0)
}

func readPlan() (wire.Plan, error) {
	var plan wire.Plan
	data, err := os.ReadFile(wire.PlanPath)
	if err != nil {
		return plan, err
	}
	return plan, json.Unmarshal(data, &plan)
}
