// SPDX-License-Identifier: MIT

package vm

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/ringside-io/ringside/internal/testing/vm/wire"
)

// maxBoots bounds how often a machine is started after the emulator crashed it.
const maxBoots = 4

// Run boots a machine, runs the jobs and powers it off. A job that fails is
// not an error but a Result. With an error, for a machine that hung or died,
// the Report has the results until then; it is nil if nothing was started.
// Cancelling the context kills the machine.
//
// When the emulator crashes the kernel, see emulatorRace, the machine is
// started again for the jobs that have not ended, the interrupted one from its
// beginning.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := newCollector(cfg)
	for {
		console, err := bootOnce(ctx, c)
		c.report.Console = console
		if err == nil || c.report.Boots == maxBoots || ctx.Err() != nil || !emulatorRace(console) {
			if c.report.Boots == 0 {
				return nil, err
			}
			return c.report, err
		}
	}
}

// emulatorRace reports whether a kernel crashed because of an error of the emulator.
// The kernel patches its own code by way of a breakpoint instruction. While one
// emulated processor does so, qemu (seen in 7.2, in one or two of a hundred boots of
// 6.12) can let another run into the breakpoint after the kernel has ceased to
// expect it. Running all processors in one thread of qemu avoids that, but
// makes tests that spin many times slower.
func emulatorRace(console []byte) bool {
	return bytes.Contains(console, []byte("int3: 0000 [#1]"))
}

// bootOnce starts the machine in a separate directory for the remaining jobs, and
// returns the kernel's log.
func bootOnce(ctx context.Context, c *collector) ([]byte, error) {
	dir, err := os.MkdirTemp("", "ringside-vm-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	m := machine{cfg: c.cfg, dir: dir}
	if err := m.prepare(ctx, c.next); err != nil {
		return nil, err
	}
	err = m.boot(ctx, c)
	console, _ := os.ReadFile(m.path("console"))
	return bytes.ReplaceAll(console, []byte("\r\n"), []byte("\n")), err
}

// machine is one boot; its files are in dir.
type machine struct {
	cfg     Config
	dir     string
	nonce   string
	scratch bool
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

func (m *machine) prepare(ctx context.Context, first int) error {
	m.nonce = rand.Text()
	plan := wire.Plan{Nonce: m.nonce, Port: archs[m.cfg.Arch].port, Sysctls: m.cfg.Sysctls, Jobs: m.cfg.Jobs, First: first}
	files := slices.Clone(m.cfg.Files)
	for i, host := range m.cfg.Modules {
		guest := path.Join("/lib/modules", strconv.Itoa(i)+"-"+filepath.Base(host))
		files = append(files, File{Host: host, Guest: guest})
		plan.Modules = append(plan.Modules, guest)
	}
	if m.cfg.Tools.Mkfs != "" {
		if err := makeScratch(ctx, m.cfg.Tools.Mkfs, m.path("scratch.img")); err != nil {
			return err
		}
		m.scratch = true
		plan.ScratchDevice = scratchDevice
	}
	return makeInitramfs(m.path("initramfs.gz"), m.cfg.Init, plan, files)
}

// args returns qemu's command line, which is run in m.dir: commas have a meaning in
// qemu's options, so the options contain no paths.
func (m *machine) args() []string {
	a := archs[m.cfg.Arch]
	args := append(slices.Clone(a.machine),
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-accel", m.cfg.Accel,
		"-smp", strconv.Itoa(m.cfg.CPUs), "-m", strconv.Itoa(m.cfg.MemoryMiB),
		"-kernel", m.cfg.Kernel, "-initrd", "initramfs.gz",
		// panic=-1 reboots at once, which -no-reboot turns into an exit; an
		// oops must not leave a damaged kernel running. Poll queues let
		// IOPOLL rings work on the scratch disk.
		"-append", a.append+" loglevel=5 panic=-1 oops=panic nvme.poll_queues=1",
		"-serial", "file:console")
	args = append(args, a.portArgs...)
	if m.scratch {
		args = append(args,
			"-drive", "if=none,id=scratch,format=raw,cache=unsafe,file=scratch.img",
			"-device", "nvme,drive=scratch,serial=ringside")
	}
	return args
}

var (
	errNoBoot = errors.New("nothing heard from the guest")
	errHung   = errors.New("the guest hangs")
)

func (m *machine) boot(ctx context.Context, c *collector) error {
	ctx, cancel := context.WithTimeoutCause(ctx, m.cfg.deadline(), errHung)
	defer cancel()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	bootTimer := time.AfterFunc(m.cfg.BootTimeout, func() { abort(errNoBoot) })
	defer bootTimer.Stop()
	c.begin(func() { bootTimer.Stop() })
	parser := wire.NewParser(m.nonce, c.event, c.output)

	cmd := exec.CommandContext(ctx, m.cfg.Tools.QEMU, m.args()...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = m.dir, parser, &stderr
	cmd.WaitDelay = 10 * time.Second
	exit := cmd.Run()
	parser.Close()

	err := c.err()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", err, context.Cause(ctx))
	case exit != nil:
		return fmt.Errorf("%w: %w%s", err, exit, tail(stderr.String(), 3))
	}
	return err
}
