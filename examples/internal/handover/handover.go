// SPDX-License-Identifier: MIT

// Package handover replaces the process of a server without closing its listeners.
//
// The new process inherits the listeners, reports when it is ready, and accepts from then
// on. The old process stops accepting and lets its connections end. Connections that wait to
// be accepted belong to the listeners, so none is lost.
package handover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/unet"
)

// ready is the name of the pipe on which the new process reports that it accepts.
const ready = "ready"

// startTime limits how long a new process takes to become ready.
const startTime = 30 * time.Second

// Process is this process, which may have inherited listeners and may start its successor.
// Its methods may be called concurrently.
type Process struct {
	// Signals receives SIGINT and SIGTERM.
	Signals chan os.Signal

	hangups chan os.Signal // SIGHUP; not received after a replacement
	program string         // see New

	mu        sync.Mutex
	inherited []unet.NamedFile
	listeners []named
	replaced  bool
}

type named struct {
	name string
	net.Listener
}

// New takes the files that the process has inherited, from its predecessor or from
// systemd, and starts to receive signals. It notes the path by which the program was started.
func New() (*Process, error) {
	files, err := unet.Inherited()
	p := &Process{
		Signals: make(chan os.Signal, 1), hangups: make(chan os.Signal, 1),
		inherited: files, program: program(),
	}
	signal.Notify(p.Signals, os.Interrupt, syscall.SIGTERM)
	signal.Notify(p.hangups, syscall.SIGHUP)
	return p, err
}

// program returns the path by which the program was started, or "" if it is unknown. Replace
// starts what is at this path then. os.Executable would follow a symbolic link to the earlier
// version, or a file of it that was renamed.
func program() string {
	path, err := exec.LookPath(os.Args[0])
	if err == nil {
		path, err = filepath.Abs(path) // the working directory may change
	}
	if err != nil {
		return ""
	}
	return path
}

// Wait waits until the server must end. SIGHUP starts a new process: Wait returns true
// when that is ready, and this process ignores SIGHUP from then on. If it cannot be
// started, Wait passes the error to report and continues. After SIGINT or SIGTERM Wait
// returns false; a new process that is not ready yet is killed. An error from one of the channels, which may be nil, ends Wait with that
// error.
func (p *Process) Wait(served, failed <-chan error, report func(error)) (replaced bool, err error) {
	for {
		select {
		case err := <-served:
			return false, err
		case err := <-failed:
			return false, err
		case <-p.Signals:
			return false, nil
		case <-p.hangups:
		}
		switch signalled, err := p.replace(); {
		case err == nil:
			return true, nil
		case signalled:
			return false, nil
		default:
			report(err)
		}
	}
}

// replace calls Replace, and ends it after startTime or a signal. If the new process is ready
// all the same, the signal stays in Signals.
func (p *Process) replace() (signalled bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- p.Replace(ctx) }()
	select {
	case err := <-done:
		return false, err
	case s := <-p.Signals:
		cancel()
		if err := <-done; err != nil {
			return true, err
		}
		select {
		case p.Signals <- s:
		default: // another one came
		}
		return true, nil
	}
}

// take returns the inherited file of a name, nil if there is none or it was taken before.
func (p *Process) take(name string) *os.File {
	for i, f := range p.inherited {
		if f.Name == name {
			p.inherited = append(p.inherited[:i:i], p.inherited[i+1:]...)
			return f.File
		}
	}
	return nil
}

// Listen returns the inherited listener of a name, on whatever address it listens, or
// listens on address. The next process inherits it.
func (p *Process) Listen(s *unet.System, name, address string) (net.Listener, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, err := p.listen(s, name, address)
	if err == nil {
		p.listeners = append(p.listeners, named{name, l})
	}
	return l, err
}

func (p *Process) listen(s *unet.System, name, address string) (net.Listener, error) {
	f := p.take(name)
	if f == nil {
		return s.Listen("tcp", address)
	}
	defer f.Close()
	return s.FileListener(f)
}

// Ready reports to the old process and to systemd that this process serves. It closes the
// inherited files that were not used.
func (p *Process) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	if f := p.take(ready); f != nil {
		_, err = f.Write([]byte{1})
		err = errors.Join(err, f.Close())
	}
	for _, f := range p.inherited {
		_ = f.File.Close()
	}
	p.inherited = nil
	return errors.Join(err, notify(fmt.Sprintf("READY=1\nMAINPID=%d", os.Getpid())))
}

// notify sends a state to systemd, if systemd has started the process (Type=notify; the
// unit needs NotifyAccess=all, because the main process changes).
func notify(state string) error {
	address := os.Getenv("NOTIFY_SOCKET")
	if address == "" {
		return nil
	}
	c, err := net.Dial("unixgram", address)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte(state))
	return err
}

// Replace starts the program again, by the same path and with the same arguments, and returns
// when the new process is ready. The caller then closes its listeners and ends its connections. If
// the new process ends, or is not ready before the context ends, Replace kills it and
// returns an error; this process continues unchanged.
func (p *Process) Replace(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.replaced {
		return errors.New("another process has taken over already")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd, err := p.start(w)
	_ = w.Close() // only the new process has the write end: the pipe ends with that process
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	if _, err := io.ReadFull(r, make([]byte, 1)); !stop() || err != nil { // it was killed, or has ended
		_ = cmd.Process.Kill()
		return fmt.Errorf("the new process is not ready: %w", errors.Join(cmd.Wait(), ctx.Err()))
	}
	p.replaced = true
	return cmd.Process.Release()
}

// start starts the program with the listeners and the pipe.
func (p *Process) start(pipe *os.File) (*exec.Cmd, error) {
	files := []unet.NamedFile{{Name: ready, File: pipe}}
	defer func() {
		for _, f := range files[1:] {
			_ = f.File.Close()
		}
	}()
	for _, l := range p.listeners {
		f, err := l.Listener.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			return nil, err
		}
		files = append(files, unet.NamedFile{Name: l.name, File: f})
	}
	path := p.program
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		path = self
	}
	cmd := exec.Command(path, os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := unet.PassOn(cmd, files...); err != nil {
		return nil, err
	}
	return cmd, cmd.Start()
}
