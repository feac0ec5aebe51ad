// SPDX-License-Identifier: MIT

package stress

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Report is the result of a scenario.
type Report struct {
	Operations int64
	Problems   []string // the first ones
	Hung       string   // the stacks of all goroutines, if the scenario hung
}

// Failed reports whether the scenario failed.
func (r *Report) Failed() bool { return len(r.Problems) > 0 || r.Hung != "" }

// runner runs a scenario.
type runner struct {
	w     Environment
	s     *Scenario
	files []*FileModel
	raw   *FileModel
	all   []*worker

	ops     atomic.Int64
	streams atomic.Uint64
	stop    atomic.Bool // there was a problem: end early

	mu       sync.Mutex
	problems []string
	appended map[int]int // records of each worker that are durable
}

// mostProblems is how many problems a report keeps.
const mostProblems = 10

// Run runs a scenario to its end, closes the environment, and checks the final files, log
// and resources. If the scenario hangs, even after [Environment.Mend], Run panics with the
// stacks of all goroutines.
func Run(w Environment, s *Scenario) *Report {
	p := &runner{w: w, s: s, appended: make(map[int]int)}
	for i := range FileCount(s) {
		p.files = append(p.files, NewFileModel(uint64(i+1), BlockCount(s)))
	}
	p.raw = NewFileModel(0, BlockCount(s))
	r := &Report{}
	over := make(chan struct{})
	go func() {
		defer close(over)
		p.workers()
		p.problemsOf("at the end", w.Finish())
	}()
	if r.Hung = watchdog(w, over); r.Hung != "" {
		w.Mend()
		if again := watchdog(w, over); again != "" {
			panic(fmt.Sprintf("scenario: seed %d hangs\n%s\n%s", s.Seed, w.Trace(), again))
		}
	}
	p.judge()
	r.Operations, r.Problems = p.ops.Load(), p.problems
	return r
}

// FileCount returns how many files an environment must have for a scenario.
func FileCount(s *Scenario) int { return max(s.Settings.Int("files"), 1) }

// BlockCount returns how many blocks each file must have.
func BlockCount(s *Scenario) int { return max(s.Settings.Int("blocks"), mostBlocks) }

// watchdog waits for the end, and returns the stacks of all goroutines if that takes too
// long.
func watchdog(w Environment, over chan struct{}) string {
	dog := time.NewTimer(w.Patience())
	defer dog.Stop()
	select {
	case <-over:
		return ""
	case <-dog.C:
	}
	stacks := make([]byte, 4<<20)
	return string(stacks[:runtime.Stack(stacks, true)])
}

// workers lets all workers run.
func (p *runner) workers() {
	var all sync.WaitGroup
	for i := range p.s.Workers {
		a := &worker{p: p, number: p.s.Workers[i].Number}
		p.all = append(p.all, a)
		all.Go(func() { a.run(p.s.Workers[i].Steps) })
	}
	all.Wait()
}

// problem records a problem.
func (p *runner) problem(format string, args ...any) {
	p.stop.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.problems) < mostProblems {
		p.problems = append(p.problems, fmt.Sprintf(format, args...))
	}
}

func (p *runner) problemsOf(when string, all []string) {
	for _, what := range all {
		p.problem("%s: %s", when, what)
	}
}

// judge checks the final content of files and memory.
func (p *runner) judge() {
	for _, a := range p.all {
		a.judgeSpare()
	}
	for i, c := range p.files {
		content, err := p.w.Contents(i)
		p.judgeFile(fmt.Sprintf("file %d", i), c, content, err)
	}
	content, err := p.w.RawContents()
	p.judgeFile("the engine's file", p.raw, content, err)
	p.judgeLog()
}

func (p *runner) judgeFile(name string, c *FileModel, content []byte, err error) {
	if err == nil && len(content) != c.Len()*Block {
		err = fmt.Errorf("%d bytes instead of %d", len(content), c.Len()*Block)
	}
	if err == nil {
		err = c.EndRead(c.BeginRead(), 0, content)
	}
	if err != nil {
		p.problem("%s, at the end: %v", name, err)
	}
}

// recordBytes returns the number of the first byte of a record.
func recordBytes(who, number int) uint64 { return uint64(who)<<40 | uint64(number)<<16 }

// judgeLog checks that the log has all records, in the order of each worker.
func (p *runner) judgeLog() {
	seen := make(map[int]int)
	err := p.w.Records(func(rec []byte) {
		if len(rec) < 8 {
			p.problem("a record of %d bytes in the log", len(rec))
			return
		}
		who, number := int(binary.LittleEndian.Uint32(rec)), int(binary.LittleEndian.Uint32(rec[4:]))
		if number != seen[who] {
			p.problem("the log has record %d of worker %d in the place of record %d", number, who, seen[who])
		}
		seen[who] = number + 1
		if _, wrong := differs(rec[8:], recordBytes(who, number)); wrong {
			p.problem("record %d of worker %d has other bytes", number, who)
		}
	})
	if err != nil {
		p.problem("the log cannot be read: %v", err)
	}
	for who, n := range p.appended {
		if seen[who] < n {
			p.problem("the log has %d records of worker %d, of %d that are durable", seen[who], who, n)
		}
	}
}
