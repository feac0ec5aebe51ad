// SPDX-License-Identifier: MIT

package nginx

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Server is a running nginx.
type Server struct {
	addr, prefix, version string
	workers               []int
	cmd                   *exec.Cmd
	said                  bytes.Buffer
	ended                 chan error
}

// startPatience is the time limit for nginx to start.
const startPatience = 20 * time.Second

// Start starts nginx with the given number of workers on a loopback port that the system chooses.
// nginx ends when Close is called, or with this process.
func Start(files string, workers int) (*Server, error) {
	path, version, err := find()
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	prefix, err := os.MkdirTemp("", "ringside-nginx-*")
	if err != nil {
		return nil, err
	}
	s := &Server{addr: ln.Addr().String(), prefix: prefix, version: version, ended: make(chan error, 1)}
	if err := s.start(path, files, workers, ln.(*net.TCPListener)); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// start passes the listening socket to nginx, as nginx does when it is upgraded. So no other
// process can take the port in between.
func (s *Server) start(path, files string, workers int, ln *net.TCPListener) error {
	conf, err := prepare(s.prefix, files, s.addr, workers)
	if err != nil {
		return err
	}
	socket, err := ln.File()
	if err != nil {
		return err
	}
	defer socket.Close()
	s.cmd = exec.Command(path, "-p", s.prefix, "-c", conf, "-e", "stderr")
	s.cmd.ExtraFiles = []*os.File{socket}
	s.cmd.Env = append(os.Environ(), "NGINX=3;")
	s.cmd.Stderr = &s.said
	// A master that receives SIGTERM ends its workers; a killed one leaves them running.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	go func() { s.ended <- s.cmd.Wait() }()
	return s.await(workers)
}

// await waits until all workers have started.
func (s *Server) await(workers int) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.After(startPatience)
	for {
		if s.workers = childrenOf(s.cmd.Process.Pid); len(s.workers) == workers {
			return nil
		}
		select {
		case err := <-s.ended:
			s.ended <- err
			return fmt.Errorf("nginx ended: %w: %s", err, strings.TrimSpace(s.said.String()))
		case <-late:
			return fmt.Errorf("nginx has %d workers after %v, not %d", len(s.workers), startPatience, workers)
		case <-tick.C:
		}
	}
}

// childrenOf returns the processes whose parent is pid.
func childrenOf(pid int) (out []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended
		}
		// The name in parentheses may contain anything. State and parent follow the last
		// parenthesis.
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			child, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err == nil {
				out = append(out, child)
			}
		}
	}
	return out
}

// Addr returns the server's address.
func (s *Server) Addr() string { return s.addr }

// Workers returns the process IDs of the workers.
func (s *Server) Workers() []int { return s.workers }

// Backend returns nginx's name and version.
func (s *Server) Backend() (name, version string) { return Name, s.version }

// Enters returns -1: it is not counted.
func (s *Server) Enters() int64 { return -1 }

// Close stops nginx and returns when it has ended.
func (s *Server) Close() error {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // It may have ended already.
		<-s.ended
		s.ended <- nil
	}
	return os.RemoveAll(s.prefix)
}
