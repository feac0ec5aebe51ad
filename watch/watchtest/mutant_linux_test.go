// SPDX-License-Identifier: MIT

package watchtest

import (
	"flag"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/watch"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // mutants wait most of the time, in processes of their own
	os.Exit(ringtest.Main(m))
}

// envMutant names the faulty watcher that a child process tests.
const envMutant = "RINGSIDE_TEST_MUTANT"

// mutants are watchers with one fault each, and the test that must fail.
var mutants = map[string]struct {
	caught string
	wrap   func(w *watch.Watcher) Watcher
}{
	"level as edge":            {"Mode/Level", func(w *watch.Watcher) Watcher { return &otherMode{w, watch.Level, watch.Edge} }},
	"edge as level":            {"Mode/Edge", func(w *watch.Watcher) Watcher { return &otherMode{w, watch.Edge, watch.Level} }},
	"one-shot as level":        {"Mode/OneShot", func(w *watch.Watcher) Watcher { return &otherMode{w, watch.OneShot, watch.Level} }},
	"one-shot as edge":         {"Mode/OneShot", func(w *watch.Watcher) Watcher { return &otherMode{w, watch.OneShot, watch.Edge} }},
	"nothing at first":         {"Mode/Initial", func(w *watch.Watcher) Watcher { return &reporter{Watcher: w, edit: notAtFirst()} }},
	"late for level":           {"Mode/Drained", func(w *watch.Watcher) Watcher { return &reporter{Watcher: w, edit: echoing()} }},
	"unrequested events":       {"Events/Asked", func(w *watch.Watcher) Watcher { return &curious{w, watch.Write} }},
	"no hang-up":               {"Events/HangUp", func(w *watch.Watcher) Watcher { return &reporter{Watcher: w, edit: without(watch.HangUp)} }},
	"no priority":              {"Events/Priority", func(w *watch.Watcher) Watcher { return &reporter{Watcher: w, edit: without(watch.Priority)} }},
	"no error":                 {"Events/Error", func(w *watch.Watcher) Watcher { return &reporter{Watcher: w, edit: without(watch.Error)} }},
	"old value":                {"Events/Value", func(w *watch.Watcher) Watcher { return &oldValue{Watcher: w, first: map[int]any{}} }},
	"forgets to look again":    {"Events/Modify", func(w *watch.Watcher) Watcher { return &lazyModify{w} }},
	"adds twice":               {"Errors/Twice", func(w *watch.Watcher) Watcher { return &noError{w, syscall.EEXIST} }},
	"takes files":              {"Errors/NotPollable", func(w *watch.Watcher) Watcher { return &noError{w, syscall.EPERM} }},
	"takes closed descriptors": {"Errors/NotOpen", func(w *watch.Watcher) Watcher { return &noError{w, syscall.EBADF} }},
	"backwards":                {"Order/Arrival", func(w *watch.Watcher) Watcher { return &reporter{Watcher: w, edit: backwards} }},
	"readers first":            {"Order/WritersFirst", func(w *watch.Watcher) Watcher { return &reporter{Watcher: w, edit: backwards} }},
	"twice":                    {"Order/Once", func(w *watch.Watcher) Watcher { return &reporter{Watcher: w, edit: doubled} }},
	"ends early":               {"Wait/Timeout", func(w *watch.Watcher) Watcher { return &hasty{w} }},
	"ended by signals":         {"Wait/Signals", func(w *watch.Watcher) Watcher { return &hasty{w} }},
	"timeout is an error":      {"Wait/Timeout", func(w *watch.Watcher) Watcher { return &strict{w} }},
	"wakes twice":              {"Wait/WakeBefore", func(w *watch.Watcher) Watcher { return &wakesTwice{Watcher: w} }},
	"forgets the first wait":   {"Wait/TwiceWithoutDispatch", func(w *watch.Watcher) Watcher { return &early{reporter{Watcher: w, edit: asItIs}, true} }},
	"reports when closed":      {"Close/InCallback", func(w *watch.Watcher) Watcher { return &reporter{Watcher: w, edit: asItIs} }},
	"reports what was removed": {"Remove/Neighbours", func(w *watch.Watcher) Watcher { return &reporter{Watcher: w, edit: asItIs} }},
	"keeps what was found":     {"Remove/Pending", func(w *watch.Watcher) Watcher { return &early{reporter{Watcher: w, edit: asItIs}, false} }},
	"goes by the number":       {"Remove/Reuse", func(w *watch.Watcher) Watcher { return &early{reporter{Watcher: w, edit: asItIs}, false} }},
	"holds the file":           {"Remove/Releases", func(w *watch.Watcher) Watcher { return &holder{Watcher: w} }},
	"holds files when closed":  {"Close/Releases", func(w *watch.Watcher) Watcher { return &lateHolder{holder: holder{Watcher: w}} }},
	"refuses to remove":        {"Remove/ReuseUnremoved", func(w *watch.Watcher) Watcher { return &fussy{w} }},
	"loses what overflows":     {"Many/Overflow", func(w *watch.Watcher) Watcher { return &reporter{Watcher: w, edit: atMost(1000)} }},
	"starves":                  {"Many/Fair", func(w *watch.Watcher) Watcher { return &reporter{Watcher: w, edit: atMost(100)} }},
	"puts off the others":      {"Many/Neighbours", func(w *watch.Watcher) Watcher { return &reporter{Watcher: w, edit: puttingOff()} }},
	"spins":                    {"Remove/Duplicates", func(w *watch.Watcher) Watcher { return &hasty{w} }},
	"reports late":             {"Model/Seeds", func(w *watch.Watcher) Watcher { return &reporter{Watcher: w, edit: puttingOff()} }},
	"loses one of eight":       {"Model/Seeds", func(w *watch.Watcher) Watcher { return &reporter{Watcher: w, edit: losing(8)} }},
	"once more of fifty":       {"Model/Seeds", func(w *watch.Watcher) Watcher { return &reporter{Watcher: w, edit: repeating(50)} }},
}

// TestMutant runs the suite on a mutant, in a child process.
func TestMutant(t *testing.T) {
	m, ok := mutants[os.Getenv(envMutant)]
	if !ok {
		return // not a child
	}
	patience = 2 * time.Second
	Run(t, func() (Watcher, error) {
		w, err := watch.New(watch.Options{Mode: watch.ModeEpoll})
		if err != nil {
			return nil, err
		}
		return m.wrap(w), nil
	})
}

// TestEveryFaultIsSeen runs the mutants in child processes, which must fail.
// Promise: watch/suite-finds-watchers
func TestEveryFaultIsSeen(t *testing.T) {
	if os.Getenv(envMutant) != "" {
		return
	}
	if testing.Short() {
		t.Skip("checks the suite, not a watcher: not with -short")
	}
	for i, name := range slices.Sorted(maps.Keys(mutants)) {
		if i%ringtest.Rounds(1, 3) != 0 {
			continue // the suite changes rarely
		}
		m := mutants[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.timeout=60s", "-test.short", "-test.run=^TestMutant$/^"+strings.ReplaceAll(m.caught, "/", "$/^")+"$")
			cmd.Env = append(os.Environ(), envMutant+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestMutant/"+m.caught) {
				t.Errorf("%s did not fail: %v\n%s", m.caught, err, out)
			}
		})
	}
}

// otherMode replaces one mode by another.
type otherMode struct {
	*watch.Watcher
	from, to watch.Trigger
}

func (m *otherMode) mode(mode watch.Trigger) watch.Trigger {
	if mode == m.from {
		return m.to
	}
	return mode
}

func (m *otherMode) Add(fd int, i watch.Events, mode watch.Trigger, v any) error {
	return m.Watcher.Add(fd, i, m.mode(mode), v)
}

func (m *otherMode) Modify(fd int, i watch.Events, mode watch.Trigger, v any) error {
	return m.Watcher.Modify(fd, i, m.mode(mode), v)
}

// reporter changes the events of a Dispatch, and reports all of them whatever the callbacks
// do.
type reporter struct {
	*watch.Watcher
	edit func([]watch.Event) []watch.Event
}

func (m *reporter) Dispatch(f func(watch.Event)) int {
	var evs []watch.Event
	m.Watcher.Dispatch(func(e watch.Event) { evs = append(evs, e) })
	evs = m.edit(evs)
	for _, e := range evs {
		f(e)
	}
	return len(evs)
}

func (m *reporter) Poll(d time.Duration, f func(watch.Event)) (int, error) {
	return poll(m, d, f)
}

// poll is Poll, made of the three steps of a mutant.
func poll(w Watcher, d time.Duration, f func(watch.Event)) (int, error) {
	if err := w.Prepare(); err != nil {
		return 0, err
	}
	if err := w.Wait(d); err != nil {
		return 0, err
	}
	return w.Dispatch(f), nil
}

func asItIs(evs []watch.Event) []watch.Event  { return evs }
func doubled(evs []watch.Event) []watch.Event { return append(evs, evs...) }

func backwards(evs []watch.Event) []watch.Event {
	slices.Reverse(evs)
	return evs
}

func notAtFirst() func([]watch.Event) []watch.Event {
	seen := map[int]bool{}
	return func(evs []watch.Event) []watch.Event {
		return slices.DeleteFunc(evs, func(e watch.Event) bool {
			first := !seen[e.FD]
			seen[e.FD] = true
			return first
		})
	}
}

// echoing reports everything again at the next Dispatch.
func echoing() func([]watch.Event) []watch.Event {
	var last []watch.Event
	return func(evs []watch.Event) []watch.Event {
		all := append(slices.Clone(last), evs...)
		last = evs
		return all
	}
}

func without(gone watch.Events) func([]watch.Event) []watch.Event {
	return func(evs []watch.Event) []watch.Event {
		return slices.DeleteFunc(evs, func(e watch.Event) bool { return e.Events&gone != 0 })
	}
}

func atMost(n int) func([]watch.Event) []watch.Event {
	return func(evs []watch.Event) []watch.Event {
		slices.SortFunc(evs, func(a, b watch.Event) int { return a.FD - b.FD })
		return evs[:min(n, len(evs))]
	}
}

func losing(nth int) func([]watch.Event) []watch.Event {
	n := 0
	return func(evs []watch.Event) []watch.Event {
		return slices.DeleteFunc(evs, func(e watch.Event) bool {
			n++
			return n%nth == 0 && e.Events&watch.Read != 0
		})
	}
}

// puttingOff reports in two of three iterations only the events of the iteration before.
func puttingOff() func([]watch.Event) []watch.Event {
	var before, waiting []watch.Event
	turn := 0
	return func(evs []watch.Event) []watch.Event {
		evs = append(waiting, evs...)
		waiting = nil
		if turn++; turn%3 != 0 {
			evs = slices.DeleteFunc(evs, func(e watch.Event) bool {
				late := !slices.ContainsFunc(before, func(b watch.Event) bool { return b.FD == e.FD })
				if late {
					waiting = append(waiting, e)
				}
				return late
			})
		}
		before = evs
		return evs
	}
}

func repeating(nth int) func([]watch.Event) []watch.Event {
	n := 0
	var again []watch.Event
	return func(evs []watch.Event) []watch.Event {
		out := append(slices.Clone(evs), again...)
		again = nil
		for _, e := range evs {
			if n++; n%nth == 0 {
				again = append(again, e)
			}
		}
		return out
	}
}

// early dispatches in Wait and reports later. With forgets, a second Wait drops the events
// of the first.
type early struct {
	reporter
	forgets bool
}

func (m *early) Wait(d time.Duration) error {
	if err := m.Watcher.Wait(min(max(d, 0), time.Second)); err != nil {
		return err
	}
	var found []watch.Event
	m.Watcher.Dispatch(func(e watch.Event) { found = append(found, e) })
	if m.forgets || len(found) > 0 {
		m.edit = func([]watch.Event) []watch.Event { return found }
	}
	return nil
}

func (m *early) Poll(d time.Duration, f func(watch.Event)) (int, error) { return poll(m, d, f) }

func (m *early) Dispatch(f func(watch.Event)) int {
	n := m.reporter.Dispatch(f)
	m.edit = func([]watch.Event) []watch.Event { return nil }
	return n
}

// curious watches for more events than requested.
type curious struct {
	*watch.Watcher
	more watch.Events
}

func (m *curious) Add(fd int, i watch.Events, mode watch.Trigger, v any) error {
	return m.Watcher.Add(fd, i|m.more, mode, v)
}

type oldValue struct {
	*watch.Watcher
	first map[int]any
}

func (m *oldValue) Add(fd int, i watch.Events, mode watch.Trigger, v any) error {
	m.first[fd] = v
	return m.Watcher.Add(fd, i, mode, v)
}

func (m *oldValue) Modify(fd int, i watch.Events, mode watch.Trigger, _ any) error {
	return m.Watcher.Modify(fd, i, mode, m.first[fd])
}

// lazyModify changes nothing.
type lazyModify struct{ *watch.Watcher }

func (*lazyModify) Modify(int, watch.Events, watch.Trigger, any) error { return nil }

// noError hides an error of Add.
type noError struct {
	*watch.Watcher
	errno syscall.Errno
}

func (m *noError) Add(fd int, i watch.Events, mode watch.Trigger, v any) error {
	err := m.Watcher.Add(fd, i, mode, v)
	if e, ok := err.(interface{ Unwrap() error }); ok && e.Unwrap() == m.errno {
		return nil
	}
	return err
}

// hasty does not wait for the whole timeout.
type hasty struct{ *watch.Watcher }

func (m *hasty) Wait(d time.Duration) error {
	if d > 0 {
		d = min(d, time.Millisecond)
	}
	return m.Watcher.Wait(d)
}

// strict treats a timeout as an error.
type strict struct{ *watch.Watcher }

func (m *strict) Poll(d time.Duration, f func(watch.Event)) (int, error) {
	n, err := m.Watcher.Poll(d, f)
	if n == 0 && err == nil {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

// wakesTwice lets one Wake end several waits.
type wakesTwice struct {
	*watch.Watcher
	n int
}

func (m *wakesTwice) Wake() {
	m.n++
	m.Watcher.Wake()
}

func (m *wakesTwice) Wait(d time.Duration) error {
	if m.n > 0 {
		m.n--
		d = 0
	}
	return m.Watcher.Wait(d)
}

// holder keeps the watched files open.
type holder struct {
	*watch.Watcher
	held []int
}

func (m *holder) Add(fd int, i watch.Events, mode watch.Trigger, v any) error {
	if dup, err := syscall.Dup(fd); err == nil {
		m.held = append(m.held, dup)
	}
	return m.Watcher.Add(fd, i, mode, v)
}

func (m *holder) Close() error {
	for _, fd := range m.held {
		_ = syscall.Close(fd)
	}
	return m.Watcher.Close()
}

// lateHolder holds the files until the second Close.
type lateHolder struct {
	holder
	closed bool
}

func (m *lateHolder) Close() error {
	if !m.closed {
		m.closed = true
		return m.Watcher.Close()
	}
	return m.holder.Close()
}

// fussy refuses to remove a descriptor that the kernel has already removed.
type fussy struct{ *watch.Watcher }

func (m *fussy) Remove(fd int) error {
	if err := m.Watcher.Modify(fd, watch.Read, watch.Edge, nil); err != nil {
		return err
	}
	return m.Watcher.Remove(fd)
}
