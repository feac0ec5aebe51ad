// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/ufile"
)

// endpoints open one side of a copy.
var endpoints = map[string]func(t *testing.T, s *ufile.System, path string) ufile.Endpoint{
	"os": func(t *testing.T, _ *ufile.System, path string) ufile.Endpoint {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	},
	"os direct": func(t *testing.T, _ *ufile.System, path string) ufile.Endpoint {
		needDirect(t, path)
		f, err := os.OpenFile(path, os.O_RDWR|sys.ODirect, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	},
	"file": func(t *testing.T, s *ufile.System, path string) ufile.Endpoint {
		return open(t, s, path, os.O_RDWR)
	},
	"file direct": func(t *testing.T, s *ufile.System, path string) ufile.Endpoint {
		needDirect(t, path)
		return open(t, s, path, os.O_RDWR|sys.ODirect)
	},
}

// overEndpoints runs test for each pair of sides, with new files. dst contains "old".
func overEndpoints(t *testing.T, content, old []byte, test func(t *testing.T, dst, src ufile.Endpoint)) {
	t.Helper()
	for _, mode := range modes {
		for d, openDst := range endpoints {
			for s, openSrc := range endpoints {
				if mode != ufile.ModeAuto && (strings.HasPrefix(d, "os") || strings.HasPrefix(s, "os")) {
					continue // they have their own System
				}
				t.Run(fmt.Sprintf("%v,%s to %s", mode, s, d), func(t *testing.T) {
					system := newSystem(t, ufile.Options{Mode: mode})
					test(t, openDst(t, system, fileOf(t, old)), openSrc(t, system, fileOf(t, content)))
				})
			}
		}
	}
}

// contentOf reads a file by its name.
func contentOf(t *testing.T, f ufile.Endpoint) []byte {
	t.Helper()
	p, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// put writes p into content at off and extends it where necessary.
func put(content, p []byte, off int) []byte {
	content = bytes.Clone(content)
	if grow := off + len(p) - len(content); grow > 0 {
		content = append(content, make([]byte, grow)...)
	}
	copy(content[off:], p)
	return content
}

// With small blocks short files suffice.
var small = ufile.CopyOptions{BlockSize: 8192, Blocks: 3}

func TestCopyRangeOfAnyPart(t *testing.T) {
	content, old := random(150_001), noise(120_000, 8)
	overEndpoints(t, content, old, func(t *testing.T, dst, src ufile.Endpoint) {
		rng := rand.New(rand.NewPCG(11, 12))
		want := old
		for i := range ringtest.Rounds(25, 7) {
			from, to, n := rng.IntN(160_000), rng.IntN(130_000), rng.IntN(60_000)
			switch i % 5 {
			case 1:
				from, to, n = from&^4095, to&^4095, n&^4095
			case 2:
				to = to&^4095 + from%4096
			case 3:
				n = 1 + n%5000
			}
			rest := content[min(from, len(content)):]
			part := rest[:min(n, len(rest))]
			var wantErr error
			if len(part) < n {
				wantErr = io.EOF
			}
			got, err := ufile.CopyRange(t.Context(), dst, int64(to), src, int64(from), int64(n), small)
			if got != int64(len(part)) || err != wantErr {
				t.Fatalf("CopyRange(%d, %d, %d) = %d, %v, want %d, %v", to, from, n, got, err, len(part), wantErr)
			}
			if len(part) > 0 {
				want = put(want, part, to)
			}
			if !bytes.Equal(contentOf(t, dst), want) {
				t.Fatalf("CopyRange(%d, %d, %d): the copy has other data", to, from, n)
			}
		}
		for _, f := range []ufile.Endpoint{dst, src} {
			if pos, err := f.Seek(0, io.SeekCurrent); pos != 0 || err != nil {
				t.Errorf("a position has moved: %d, %v", pos, err)
			}
		}
	})
}

// TestCopyAndIOCopy copies from positions to positions.
func TestCopyAndIOCopy(t *testing.T) {
	content, old := random(600_077), noise(100_000, 8)
	copies := map[string]func(dst, src ufile.Endpoint) (int64, error){
		"Copy": func(dst, src ufile.Endpoint) (int64, error) {
			return ufile.Copy(t.Context(), dst, src, ufile.CopyOptions{})
		},
		"io.Copy":  func(dst, src ufile.Endpoint) (int64, error) { return io.Copy(dst, src) },
		"io.CopyN": func(dst, src ufile.Endpoint) (int64, error) { return io.CopyN(dst, src, 500_000) },
	}
	overEndpoints(t, content, old, func(t *testing.T, dst, src ufile.Endpoint) {
		want := old
		plain := strings.Contains(t.Name(), "plain") && strings.Contains(t.Name(), "direct")
		for name, do := range copies {
			positions := [][2]int{{8192, 4096}, {5, 5}, {0, 0}, {5, 4096}}
			for _, at := range positions[:ringtest.Rounds(4, 2)] {
				_, dstOS := dst.(*os.File)
				_, srcOS := src.(*os.File)
				if name != "Copy" && (dstOS || srcOS || plain) {
					continue // these are the methods of os.File, which do not align
				}
				from, to := at[0], at[1]
				if _, err := src.Seek(int64(from), io.SeekStart); err != nil {
					t.Fatal(err)
				}
				if _, err := dst.Seek(int64(to), io.SeekStart); err != nil {
					t.Fatal(err)
				}
				part := content[from:]
				if name == "io.CopyN" {
					part = part[:500_000]
				}
				n, err := do(dst, src)
				if n != int64(len(part)) || err != nil {
					t.Fatalf("%s from %d to %d: %d, %v", name, from, to, n, err)
				}
				want = put(want, part, to)
				if !bytes.Equal(contentOf(t, dst), want) {
					t.Fatalf("%s from %d to %d: the copy has other data", name, from, to)
				}
				for f, want := range map[ufile.Endpoint]int{src: from + len(part), dst: to + len(part)} {
					if pos, err := f.Seek(0, io.SeekCurrent); pos != int64(want) || err != nil {
						t.Errorf("%s: the position is %d, %v, want %d", name, pos, err, want)
					}
				}
				if n, err := do(dst, src); n != 0 && name != "io.CopyN" || err != nil && err != io.EOF {
					t.Errorf("%s at the end: %d, %v", name, n, err)
				}
				want = contentOf(t, dst)
			}
		}
	})
}

// TestWriteToOfADirectFile reads ahead and writes to a destination that is not a file.
func TestWriteToOfADirectFile(t *testing.T) {
	content := random(3<<20 + 100)
	path := fileOf(t, content)
	needDirect(t, path)
	overModes(t, func(t *testing.T, s *ufile.System) {
		f := open(t, s, path, os.O_RDONLY|sys.ODirect)
		if _, err := f.Seek(4096, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		var to bytes.Buffer
		if n, err := io.Copy(&to, f); n != int64(len(content)-4096) || err != nil || !bytes.Equal(to.Bytes(), content[4096:]) {
			t.Errorf("%d, %v, or wrong data", n, err)
		}
		if pos, err := f.Seek(0, io.SeekCurrent); pos != int64(len(content)) || err != nil {
			t.Errorf("the position is %d, %v", pos, err)
		}
	})
}

// shares reports whether a file can share its blocks with a copy, as on XFS and Btrfs.
func shares(t *testing.T, path string) bool {
	t.Helper()
	src, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, err := os.Create(filepath.Join(t.TempDir(), "shared"))
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	return sys.CloneRange(int(dst.Fd()), 0, int(src.Fd()), 0, 4096) == nil
}

// TestCopyStopsBetweenPieces ends a copy by its context and checks the counts.
func TestCopyStopsBetweenPieces(t *testing.T) {
	content := bytes.Repeat(random(1<<20), 40)
	why := errors.New("enough")
	for _, direct := range []int{0, sys.ODirect} {
		t.Run(fmt.Sprintf("direct=%v", direct != 0), func(t *testing.T) {
			path := fileOf(t, content)
			if direct != 0 {
				needDirect(t, path)
			}
			s := newSystem(t, ufile.Options{})
			src := open(t, s, path, os.O_RDONLY|direct)
			dst := open(t, s, filepath.Join(t.TempDir(), "dst"), os.O_RDWR|os.O_CREATE|direct)
			if direct != 0 && shares(t, path) {
				t.Skip("needs a file system without shared blocks: a shared copy has only one piece")
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			var told []int64
			n, err := ufile.CopyRange(ctx, dst, 0, src, 0, 40<<20, ufile.CopyOptions{Progress: func(n int64) {
				if told = append(told, n); n >= 10<<20 {
					cancel(why)
				}
			}})
			if err != why || n < 10<<20 || n > 30<<20 {
				t.Fatalf("%d, %v", n, err)
			}
			for i := range told {
				if i > 0 && told[i] <= told[i-1] {
					t.Errorf("progress goes from %d to %d", told[i-1], told[i])
				}
			}
			if told[len(told)-1] != n {
				t.Errorf("progress ends with %d, the count is %d", told[len(told)-1], n)
			}
			if got := contentOf(t, dst); int64(len(got)) != n || !bytes.Equal(got, content[:n]) {
				t.Errorf("%d bytes have been copied, the count is %d, or wrong data", len(got), n)
			}
			if n, err := ufile.Copy(ctx, dst, src, ufile.CopyOptions{}); n != 0 || err != why {
				t.Errorf("with a cancelled context: %d, %v", n, err)
			}
		})
	}
}

func TestCopyRefuses(t *testing.T) {
	content := random(100_000)
	overModes(t, func(t *testing.T, s *ufile.System) {
		f := open(t, s, fileOf(t, content), os.O_RDWR)
		other := open(t, s, fileOf(t, content), os.O_RDWR)
		appends := open(t, s, fileOf(t, nil), os.O_WRONLY|os.O_APPEND)
		readOnly := open(t, s, fileOf(t, nil), os.O_RDONLY)
		closed := open(t, s, fileOf(t, content), os.O_RDWR)
		closed.Close()
		for name, c := range map[string]struct {
			dst, src   ufile.Endpoint
			to, from   int64
			n          int64
			is         error
			acceptable bool
		}{
			"overlap":         {dst: f, src: f, to: 10, n: 100, is: syscall.EINVAL},
			"overlap of two":  {dst: f, src: open(t, s, f.Name(), os.O_RDONLY), from: 50, n: 100, is: syscall.EINVAL},
			"no overlap":      {dst: f, src: f, to: 50_000, n: 50_000, acceptable: true},
			"nothing":         {dst: f, src: f, acceptable: true},
			"negative source": {dst: f, src: other, from: -1, n: 1},
			"negative":        {dst: f, src: other, to: -1, n: 1},
			"negative count":  {dst: f, src: other, n: -1},
			"too far":         {dst: f, src: other, to: 1 << 62, n: 1 << 62},
			"append":          {dst: appends, src: other, n: 10},
			"read-only":       {dst: readOnly, src: other, n: 10},
			"closed source":   {dst: f, src: closed, n: 10, is: os.ErrClosed},
			"closed":          {dst: closed, src: f, n: 10, is: os.ErrClosed},
			"no file":         {dst: (*ufile.File)(nil), src: f, n: 10, is: os.ErrInvalid},
			"no os.File":      {dst: f, src: (*os.File)(nil), n: 10, is: os.ErrInvalid},
		} {
			n, err := ufile.CopyRange(t.Context(), c.dst, c.to, c.src, c.from, c.n, small)
			if c.acceptable != (err == nil) || err == nil && n != c.n || err != nil && n != 0 {
				t.Errorf("%s: %d, %v", name, n, err)
			}
			if name == "read-only" {
				_, want := readOnly.WriteAt(make([]byte, 1), 0)
				if fmt.Sprint(err) != fmt.Sprint(want) {
					t.Errorf("%s: %v, want %v", name, err, want)
				}
			} else if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%s: %v, want %v", name, err, c.is)
			}
		}
	})
}
