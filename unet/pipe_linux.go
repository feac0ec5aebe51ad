// SPDX-License-Identifier: MIT

package unet

import "github.com/ringside-io/ringside/internal/sys"

// pipe carries data from one socket to another inside of the kernel.
type pipe struct{ r, w *sys.FD }

// sparePipes is how many pipes a system keeps for the next copy.
const sparePipes = 16

func (p *pipe) close() {
	_ = p.r.Close() // nothing is lost: the data has been counted
	_ = p.w.Close()
}

// getPipe returns an empty pipe.
func (s *System) getPipe() (*pipe, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.pipes); n > 0 {
		p := s.pipes[n-1]
		s.pipes = s.pipes[:n-1]
		return p, nil
	}
	r, w, err := sys.SplicePipe()
	if err != nil {
		return nil, err
	}
	return &pipe{r, w}, nil
}

// putPipe takes an empty pipe back.
func (s *System) putPipe(p *pipe) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pipes) < sparePipes && s.users > 0 {
		s.pipes = append(s.pipes, p)
		return
	}
	p.close()
}

// closePipes frees the pipes of a system without sockets. The caller holds mu.
func (s *System) closePipes() {
	for _, p := range s.pipes {
		p.close()
	}
	s.pipes = nil
}
