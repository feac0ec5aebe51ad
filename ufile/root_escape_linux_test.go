// SPDX-License-Identifier: MIT

package ufile_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringside-io/ringside/internal/ringtest"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/ufile"
)

// escapes are links in the root, and what they lead to.
var escapes = map[string]string{
	"up":     "..",
	"upup":   "a/../../outside",
	"abs":    "OUTSIDE",
	"slash":  "/",
	"cwd":    "/proc/self/cwd",
	"rootfs": "/proc/self/root",
	"fd":     "/proc/self/fd",
	"loop":   "loop",
	"chain":  "a/../up",
	"a/deep": "../../outside",
	"inner":  "a/b",
}

// TestRootEscapes opens, creates and removes names that somebody made up to get out of a
// root, while directories and links change places: whatever is opened lies in the root,
// and what is outside stays as it was.
func TestRootEscapes(t *testing.T) {
	needOpenat2(t)
	dir, err := filepath.EvalSymlinks(tree(t, "root/a/b/c/file", "root/a/file", "outside/file", "outside/b/file", "outside/a/b/file"))
	if err != nil {
		t.Fatal(err)
	}
	root, outside := filepath.Join(dir, "root"), filepath.Join(dir, "outside")
	for link, target := range escapes {
		if err := os.Symlink(strings.Replace(target, "OUTSIDE", outside, 1), filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	r := openRoot(t, root)
	stop := exchange(t, filepath.Join(root, "a/b"), filepath.Join(root, "a/deep"))
	var opened, refused atomic.Int64
	var wg sync.WaitGroup
	for seed := range uint64(4) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1))
			for range ringtest.Rounds(2500, 300) {
				if tryEscape(t, r, rng, root) {
					opened.Add(1)
				} else {
					refused.Add(1)
				}
			}
		})
	}
	wg.Wait()
	stop()
	for file, want := range map[string]string{"file": "outside/file", "b/file": "outside/b/file", "a/b/file": "outside/a/b/file"} {
		if got, err := os.ReadFile(filepath.Join(outside, file)); string(got) != want {
			t.Errorf("%s outside is now %q, %v", file, got, err)
		}
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 3 {
		t.Errorf("outside: %v, %v", entries, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("beside the root: %v, %v", entries, err)
	}
	if opened.Load() == 0 {
		t.Error("nothing was opened at all")
	}
	t.Logf("%d opened inside, %d refused, none outside", opened.Load(), refused.Load())
}

// exchange has two names change places until it is stopped.
func exchange(t *testing.T, a, b string) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := sys.RenameAt2(sys.AtCwd, a, sys.AtCwd, b, sys.RenameExchange); err != nil {
				t.Error(err)
				return
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}

// tryEscape does one thing with a name that leads anywhere, and says whether the root
// allowed it.
func tryEscape(t *testing.T, r *ufile.Root, rng *rand.Rand, root string) bool {
	plain := []string{"..", "a", "a/b", "b", "c", "file", ".", "inner", "a/b/../b/c/file"}
	parts := []string{"up", "upup", "abs", "slash", "cwd", "rootfs", "fd", "loop", "chain", "deep", "", "0", "outside"}
	var words []string
	for range 1 + rng.IntN(5) {
		if rng.IntN(3) > 0 {
			words = append(words, plain[rng.IntN(len(plain))])
		} else {
			words = append(words, parts[rng.IntN(len(parts))])
		}
	}
	name := strings.Join(words, "/")
	if rng.IntN(20) == 0 {
		name = root + "/" + name
	}
	switch rng.IntN(8) {
	case 0:
		made := name + fmt.Sprintf("/made-%d", rng.IntN(3))
		return r.Mkdir(made, 0o700) == nil && r.Remove(made) == nil
	case 1:
		made := name + fmt.Sprintf("/moved-%d", rng.IntN(3))
		return r.Rename("a/file", made) == nil && r.Rename(made, "a/file") == nil
	case 2:
		_, err := r.Stat(name)
		return err == nil
	}
	flags := []int{os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_CREATE, os.O_RDWR | os.O_CREATE | os.O_EXCL}[rng.IntN(4)]
	if flags&os.O_CREATE != 0 {
		name += "/ringside-escaped"
	}
	f, err := r.OpenFile(name, flags, 0o600)
	if err != nil {
		return false
	}
	defer f.Close()
	conn, err := f.SyscallConn()
	if err != nil {
		t.Error(err)
		return true
	}
	_ = conn.Control(func(fd uintptr) { // is open
		at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err != nil || at != root && !strings.HasPrefix(at, root+"/") {
			t.Errorf("%q with flags %#x is %s, %v", name, flags, at, err)
		}
	})
	return true
}
