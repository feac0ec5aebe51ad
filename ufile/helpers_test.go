// SPDX-License-Identifier: MIT

package ufile_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/ufile"
)

// modes are the modes in which tests run.
var modes = []ufile.Mode{ufile.ModeAuto, ufile.ModeRing, ufile.ModePlain}

// newSystem returns a System, or skips the test where it needs a ring and there is none.
func newSystem(t testing.TB, o ufile.Options) *ufile.System {
	t.Helper()
	if o.Mode == ufile.ModeRing {
		needRing(t)
	}
	s, err := ufile.NewSystem(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// needRing skips the test where io_uring cannot be used or the environment switches it off.
func needRing(t testing.TB) {
	t.Helper()
	if os.Getenv(features.EnvBackend) == "plain" {
		t.Skipf("needs io_uring: %s is off", features.EnvBackend)
	}
	ringtest.NeedRing(t)
}

// overModes runs test once for each mode.
func overModes(t *testing.T, test func(t *testing.T, s *ufile.System)) {
	t.Helper()
	for _, m := range modes {
		t.Run(m.String(), func(t *testing.T) {
			// Rings that were requested are restricted, to check that everything works
			// then.
			test(t, newSystem(t, ufile.Options{Mode: m, Restrict: m == ufile.ModeRing}))
		})
	}
}

// random returns random data.
func random(n int) []byte {
	rng := rand.New(rand.NewPCG(3, 4))
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	return p
}

// fileOf creates a file with the given content.
func fileOf(t testing.TB, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// open opens a file; the end of the test closes it.
func open(t testing.TB, s *ufile.System, path string, flag int) *ufile.File {
	t.Helper()
	f, err := s.OpenFile(path, flag, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() }) // some tests have closed the file
	return f
}

func readAt(t testing.TB, f *ufile.File, p []byte, off int64) {
	t.Helper()
	if n, err := f.ReadAt(p, off); n != len(p) || err != nil {
		t.Fatalf("ReadAt(%d bytes, %d) = %d, %v", len(p), off, n, err)
	}
}

func writeAt(t testing.TB, f *ufile.File, p []byte, off int64) {
	t.Helper()
	if n, err := f.WriteAt(p, off); n != len(p) || err != nil {
		t.Fatalf("WriteAt(%d bytes, %d) = %d, %v", len(p), off, n, err)
	}
}

// needNoWait skips the test where the file system of a file does not support RWF_NOWAIT.
func needNoWait(t testing.TB, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, errno := sys.PreadNoWait(int(f.Fd()), make([]byte, 1), 0)
	if errno == syscall.ENOSYS || errno == syscall.EOPNOTSUPP || errno == syscall.EINVAL {
		t.Skipf("needs RWF_NOWAIT on the file system of %s: %v", path, errno)
	}
}

// needDirect skips the test where the file system of a file refuses O_DIRECT.
func needDirect(t testing.TB, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|sys.ODirect, 0)
	if sys.ODirect == 0 || err != nil {
		t.Skipf("needs O_DIRECT on the file system of %s: %v", path, err)
	}
	f.Close()
}

// awaitNoRings waits until the rings of the default System are closed. An earlier test may
// have opened them, and they stay open for some time after its last file.
func awaitNoRings(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(ringtest.Patience); rings(t) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d rings of earlier tests are left", rings(t))
		}
	}
}

// rings counts the rings' descriptors of this process.
func rings(t testing.TB) int {
	t.Helper()
	return len(ringtest.Descriptors(t, "[io_uring]"))
}

// readInRing reads the beginning of a file with a context, which opens the rings: a context
// cannot end a system call.
func readInRing(t *testing.T, f *ufile.File, p []byte) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if n, err := f.ReadAtContext(ctx, p, 0); n != len(p) || err != nil {
		t.Fatalf("ReadAtContext = %d, %v", n, err)
	}
}
