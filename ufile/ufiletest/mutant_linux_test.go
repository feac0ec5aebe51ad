// SPDX-License-Identifier: MIT

package ufiletest

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// envMutant names the faulty implementation that a child process tests.
const envMutant = "RINGSIDE_TEST_MUTANT"

// mutants are implementations with one fault each, and the test that must fail.
var mutants = map[string]struct {
	caught string
	wrap   func(f *os.File) File
}{
	"end of file in a PathError": {"ReadAt/Matrix", func(f *os.File) File { return &wrappedEOF{f} }},
	"short read without error":   {"ReadAt/Matrix", func(f *os.File) File { return &silentShort{f} }},
	"bare errno":                 {"Methods/WriteOnly", func(f *os.File) File { return &bareErrno{f} }},
	"other text":                 {"ReadAt/Offsets", func(f *os.File) File { return &otherText{f} }},
	"nil pointer":                {"Methods/Nil", func(f *os.File) File { return &bareErrno{f} }},
	"closes twice":               {"Close/Twice", func(f *os.File) File { return &closesTwice{f} }},
	"reads a reused descriptor":  {"Close/ReadAt", func(f *os.File) File { return &unlocked{f, int(f.Fd())} }},
	"writes one":                 {"Close/WriteAt", func(f *os.File) File { return &unlocked{f, int(f.Fd())} }},
	"moves the position":         {"Position", func(f *os.File) File { return &moving{File: f} }},
	"writes in append mode":      {"Append", func(f *os.File) File { return &unlocked{f, int(f.Fd())} }},
	"keeps what it read":         {"TwoHandles", func(f *os.File) File { return &caching{File: f} }},
	"keeps the size":             {"Truncate", func(f *os.File) File { return &caching{File: f} }},
	"shares a buffer":            {"Concurrent/Disjoint", func(f *os.File) File { return &sharing{File: f} }},
	"misplaces the second MiB":   {"Large", func(f *os.File) File { return &misplacing{f} }},
	"no timeout":                 {"Pipe/Deadline", func(f *os.File) File { return &noTimeout{f} }},
	"counts before an error":     {"Limit", func(f *os.File) File { return &unlocked{f, int(f.Fd())} }},
	"bounces":                    {"Direct/Misaligned", func(f *os.File) File { return &bouncing{f} }},
	"other name":                 {"Stat", func(f *os.File) File { return &otherName{f} }},
}

// TestMutant runs the suite on a mutant, in a child process.
func TestMutant(t *testing.T) {
	m, ok := mutants[os.Getenv(envMutant)]
	if !ok {
		return // this is no child
	}
	Run(t, func(name string, flag int, perm fs.FileMode) (File, error) {
		f, err := os.OpenFile(name, flag, perm)
		if err != nil {
			return nil, err
		}
		return m.wrap(f), nil
	})
}

// TestEveryFaultIsSeen runs the mutants in child processes, which must fail.
func TestEveryFaultIsSeen(t *testing.T) {
	if os.Getenv(envMutant) != "" {
		return
	}
	if testing.Short() {
		t.Skip("checks the suite, not an implementation: not with -short")
	}
	for i, name := range slices.Sorted(maps.Keys(mutants)) {
		if i%ringtest.Rounds(1, 3) != 0 {
			continue // the suite changes rarely
		}
		m := mutants[name]
		t.Run(name, func(t *testing.T) {
			switch {
			case m.caught == "Direct/Misaligned":
				needAlignment(t)
			case strings.HasPrefix(m.caught, "Direct/"):
				needDirect(t)
			}
			cmd := exec.Command(os.Args[0], "-test.timeout=60s", "-test.run=^TestMutant$/^"+strings.ReplaceAll(m.caught, "/", "$/^")+"$")
			cmd.Env = append(os.Environ(), envMutant+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestMutant/"+m.caught) {
				t.Errorf("%s did not fail: %v\n%s", m.caught, err, out)
			}
		})
	}
}

type wrappedEOF struct{ *os.File }

func (m *wrappedEOF) ReadAt(p []byte, off int64) (int, error) {
	n, err := m.File.ReadAt(p, off)
	if err == io.EOF {
		err = &fs.PathError{Op: "read", Path: m.Name(), Err: err}
	}
	return n, err
}

type silentShort struct{ *os.File }

func (m *silentShort) ReadAt(p []byte, off int64) (int, error) {
	n, err := m.File.ReadAt(p, off)
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}

type bareErrno struct{ *os.File }

func (m *bareErrno) ReadAt(p []byte, off int64) (int, error) {
	n, err := m.File.ReadAt(p, off)
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = errno
	}
	return n, err
}

type otherText struct{ *os.File }

func (m *otherText) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, &fs.PathError{Op: "readat", Path: m.Name(), Err: errors.New("offset below zero")}
	}
	return m.File.ReadAt(p, off)
}

type closesTwice struct{ *os.File }

func (m *closesTwice) Close() error {
	_ = m.File.Close()
	return nil
}

// unlocked calls the kernel with a descriptor that may have been closed.
type unlocked struct {
	*os.File
	fd int
}

func (m *unlocked) ReadAt(p []byte, off int64) (int, error) {
	n, err := syscall.Pread(m.fd, p, off)
	if err == syscall.EBADF {
		return 0, &fs.PathError{Op: "read", Path: m.Name(), Err: os.ErrClosed}
	}
	return n, err
}

func (m *unlocked) WriteAt(p []byte, off int64) (int, error) {
	n, err := syscall.Pwrite(m.fd, p, off)
	if err == syscall.EBADF {
		return 0, &fs.PathError{Op: "write", Path: m.Name(), Err: os.ErrClosed}
	}
	return max(n, 0), err
}

// moving reads at an offset by seeking.
type moving struct {
	*os.File
	mu sync.Mutex
}

func (m *moving) ReadAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.Seek(off, io.SeekStart); err != nil {
		return 0, err
	}
	return io.ReadFull(m.File, p)
}

// caching reads a file only once.
type caching struct {
	*os.File
	once sync.Once
	data []byte
}

func (m *caching) ReadAt(p []byte, off int64) (int, error) {
	m.once.Do(func() { m.data, _ = os.ReadFile(m.Name()) })
	if off >= int64(len(m.data)) {
		return 0, io.EOF
	}
	n := copy(p, m.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// sharing reads through a buffer that all goroutines share.
type sharing struct {
	*os.File
	mu  sync.Mutex
	buf [1 << 16]byte
}

func (m *sharing) ReadAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	n, err := m.File.ReadAt(m.buf[:min(len(p), len(m.buf))], off)
	m.mu.Unlock()
	runtime.Gosched()
	m.mu.Lock()
	defer m.mu.Unlock()
	return copy(p, m.buf[:n]), err
}

type misplacing struct{ *os.File }

func (m *misplacing) WriteAt(p []byte, off int64) (int, error) {
	const piece = 1 << 20
	if len(p) <= piece {
		return m.File.WriteAt(p, off)
	}
	n, err := m.File.WriteAt(p[:piece], off)
	if err != nil {
		return n, err
	}
	n, err = m.File.WriteAt(p[piece:], off+piece+1)
	return n + piece, err
}

type noTimeout struct{ *os.File }

func (m *noTimeout) Read(p []byte) (int, error) {
	n, err := m.File.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = &fs.PathError{Op: "read", Path: m.Name(), Err: errors.New("i/o timeout")}
	}
	return n, err
}

// bouncing does reads that O_DIRECT would refuse.
type bouncing struct{ *os.File }

func (m *bouncing) ReadAt(p []byte, off int64) (int, error) {
	f, err := os.Open(m.Name())
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.ReadAt(p, off)
}

type otherName struct{ *os.File }

func (m *otherName) Name() string { return "./" + m.File.Name() }
