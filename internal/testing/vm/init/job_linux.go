// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/testing/vm/wire"
)

// The time that a program has to end after a signal.
const (
	quitGrace = 10 * time.Second
	killGrace = 5 * time.Second
)

// pipeGrace is how long a program's output is read after its end, for a
// grandchild that holds it open.
const pipeGrace = 2 * time.Second

// runJob runs one program and reports the result. An error means that a marker could
// not be sent, not that the program failed.
func (g *guest) runJob(w *wire.Writer, index int, job wire.Job) error {
	if err := w.Event(wire.Event{Kind: wire.Start, Job: index}); err != nil {
		return err
	}
	out := &gate{out: w}
	began := time.Now()
	end := wire.Event{Kind: wire.End, Job: index}
	end.Exit, end.Note = g.execute(job, out)
	end.Took = time.Since(began)
	out.close()
	reapAll()
	return w.Event(end)
}

// execute returns the exit status, or -1 and the reason why there is none.
func (g *guest) execute(job wire.Job, out io.Writer) (int, string) {
	if err := os.MkdirAll(job.Dir, 0o755); err != nil {
		return -1, err.Error()
	}
	cmd := exec.Command(job.Path, job.Args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = job.Dir, out, out
	cmd.Env = append([]string{
		"PATH=/bin:/usr/bin", "HOME=/root", "USER=root",
		"TMPDIR=" + g.tempDir(),
	}, job.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if job.UID != 0 || job.GID != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: job.UID, Gid: job.GID}
	}
	cmd.WaitDelay = pipeGrace
	if err := cmd.Start(); err != nil {
		return -1, err.Error()
	}
	return wait(cmd, job.Timeout)
}

func wait(cmd *exec.Cmd, timeout time.Duration) (int, string) {
	// A program stuck in the kernel survives SIGKILL; then the goroutine
	// stays behind.
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	steps := []struct {
		after  time.Duration
		signal syscall.Signal
	}{{timeout, syscall.SIGQUIT}, {quitGrace, syscall.SIGKILL}}
	var late string
	for _, step := range steps {
		timer := time.NewTimer(step.after)
		select {
		case err := <-ended:
			timer.Stop()
			return status(err, late)
		case <-timer.C:
			late = fmt.Sprintf("timed out after %v", timeout)
			syscall.Kill(-cmd.Process.Pid, step.signal)
		}
	}
	select {
	case err := <-ended:
		return status(err, late)
	case <-time.After(killGrace + cmd.WaitDelay):
		return -1, late + " and survived SIGKILL: stuck in the kernel"
	}
}

func status(err error, late string) (int, string) {
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return 0, late
	case !errors.As(err, &exit):
		return -1, err.Error()
	case late != "":
		return -1, late
	case exit.ExitCode() < 0:
		return -1, exit.String()
	}
	return exit.ExitCode(), ""
}

// reapAll ends the processes that a job left running, so that they cannot disturb the
// next one. Only the first process of a machine, the parent of all orphans, may call it:
// it signals all processes.
func reapAll() {
	if os.Getpid() != 1 {
		return
	}
	syscall.Kill(-1, syscall.SIGKILL)
	deadline := time.Now().Add(killGrace)
	for time.Now().Before(deadline) {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.ECHILD {
			return
		}
		if pid <= 0 {
			time.Sleep(time.Millisecond)
		}
	}
}

// gate passes output on until it is closed: a process that is left over must not
// write into the output of the next job.
type gate struct {
	mu     sync.Mutex
	out    io.Writer
	closed bool
}

func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return len(p), nil
	}
	return g.out.Write(p)
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}
