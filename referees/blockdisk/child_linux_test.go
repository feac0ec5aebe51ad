// SPDX-License-Identifier: MIT

package blockdisk

import (
	"bufio"
	"cmp"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
)

// ack is an acknowledgement to a workload: the content of Name numbered up to N is durable.
type ack struct {
	Name string
	N    int
}

func init() { gob.Register(ack{}) }

// acks returns the acknowledgements before a cut: the largest number of each name.
func acks(notes []any) map[string]int {
	m := map[string]int{}
	for _, note := range notes {
		if a, ok := note.(ack); ok {
			m[a.Name] = max(m[a.Name], a.N)
		}
	}
	return m
}

// question is a request to a judge process about a mounted state.
type question struct {
	Work  work
	Stock string // "", "os" or "cli": the program that opens the databases first
	Acked map[string]int
}

// child is the main function of a workload ("work") or a judge ("judge"), which read lines of JSON
// from the standard input and write lines of JSON, and of [startKeeper]'s process ("keeper").
func child(kind string) int {
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	out := json.NewEncoder(os.Stdout)
	switch kind {
	case "work":
		var w work
		if err := in.Decode(&w); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		var mu sync.Mutex
		// acked returns after the recorder has stored the acknowledgement.
		acked := func(name string, n int) {
			mu.Lock()
			defer mu.Unlock()
			var ok bool
			if err := errors.Join(out.Encode(ack{name, n}), in.Decode(&ok)); err != nil {
				panic(err)
			}
		}
		if err := w.run(acked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	case "judge":
		for {
			var q question
			if err := in.Decode(&q); err == io.EOF {
				return 0
			} else if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			answer := ""
			if err := q.Work.judge(q); err != nil {
				answer = err.Error()
			}
			if err := out.Encode(answer); err != nil {
				return 1
			}
		}
	case "keeper":
		if err := keeper(); err != nil {
			fmt.Fprintln(os.Stderr, "blockdisk:", err)
			return 1
		}
	}
	return 0
}

// process is a running child.
type process struct {
	cmd *exec.Cmd
	in  *json.Encoder
	out *json.Decoder
	end func() error
}

func start(t testing.TB, kind string) *process {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envChild+"="+kind)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, in: json.NewEncoder(in), out: json.NewDecoder(out)}
	p.end = sync.OnceValue(func() error {
		in.Close()
		return cmd.Wait()
	})
	t.Cleanup(func() { p.end() })
	return p
}

// ask sends a question to a judge and returns its verdict.
func (p *process) ask(q question) error {
	var answer string
	if err := errors.Join(p.in.Encode(q), p.out.Decode(&answer)); err != nil {
		return fmt.Errorf("the judge ended: %w", err)
	}
	if answer != "" {
		return errors.New(answer)
	}
	return nil
}

// record runs a workload in a new process and records its acknowledgements.
func (p *process) record(d *Disk, w work) error {
	if err := p.in.Encode(w); err != nil {
		return err
	}
	for {
		var a ack
		if err := p.out.Decode(&a); err == io.EOF {
			return p.end()
		} else if err != nil {
			return errors.Join(err, p.end())
		}
		d.Note(a)
		if err := p.in.Encode(true); err != nil { // it has ended: pebble ends its process when a write fails
			return cmp.Or(p.end(), err)
		}
	}
}
