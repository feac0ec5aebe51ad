// SPDX-License-Identifier: MIT

//go:build unix

package appendlog

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// These tests damage logs with the programs of a shell, as people do, not with code of this
// package.

// shell runs a script with the names of a log's files in its environment.
func shell(t *testing.T, dir, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-euc", script)
	cmd.Env = append(os.Environ(), "D="+dir, "OTHER="+dir+"-other", "END="+filepath.Join(dir, markSuffix))
	for i := range uint64(9) {
		cmd.Env = append(cmd.Env, fmt.Sprintf("S%d=%s", i+1, filepath.Join(dir, segmentName("", i+1))))
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

func needPrograms(t *testing.T) {
	t.Helper()
	for _, name := range []string{"sh", "truncate", "dd", "rm", "mv", "cp", "stat"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("needs the program %s", name)
		}
	}
}

// threeSegments writes a log of 30 records in three segments.
func threeSegments(t *testing.T, dir string) []string {
	t.Helper()
	l, err := Open(dir, Options{Ahead: -1})
	if err != nil {
		t.Fatal(err)
	}
	records := numbered("record of "+filepath.Base(dir), 30)
	for i, d := range records {
		if i == 10 || i == 20 {
			if err := l.Rotate(); err != nil {
				t.Fatal(err)
			}
		}
		put(t, l, d)
	}
	mustClose(t, l)
	return records
}

// damages are cases of damage to a closed log. Records 1 to 10 are in the first segment, 11
// to 20 in the second, 21 to 30 in the third.
var damages = []struct {
	name, script string
	reason       string // the refusal's reason; "" when Open must find all records
	left         []int  // records that are readable afterwards, first and last, in pairs
	lost         uint64 // the number of lost records, where it can be known
	reading      bool   // only a reader finds the damage
}{
	{"nothing", ``, "", []int{1, 30}, 0, false},
	{"first segment deleted", `rm "$S1"`, "segment 1 is missing before it", []int{11, 30}, 0, false},
	{"two first segments deleted", `rm "$S1" "$S2"`, "segment 1 is missing before it", []int{21, 30}, 0, false},
	{"segment in the middle deleted", `rm "$S2"`, "segment 2 is missing before it", []int{1, 10, 21, 30}, 10, false},
	{"last segment deleted", `rm "$S3"`, "segment 3 is missing behind it", []int{1, 20}, 10, false},
	{"two last segments deleted", `rm "$S2" "$S3"`, "segment 2 is missing behind it", []int{1, 10}, 20, false},
	{"all segments deleted", `rm "$D"/*.seg`, "all segments are missing", nil, 0, false},
	{"all but the mark and one deleted", `rm "$S1" "$S3"`, "segment 1 is missing before it", []int{11, 20}, 10, false},
	{"mark deleted", `rm "$END"`, "the end mark is missing", []int{1, 30}, 0, false},
	{"mark emptied", `: >"$END"`, "the end mark is missing or damaged", []int{1, 30}, 0, false},
	{"mark overwritten", `dd if=/dev/urandom of="$END" bs=1024 count=1 conv=notrunc`, "the end mark is missing or damaged", []int{1, 30}, 0, false},
	{"mark and last segment deleted", `rm "$END" "$S3"`, "the end mark is missing", []int{1, 20}, 0, false},
	{"last byte of the log cut", `truncate -s -1 "$S3"`, "the log ends before records that were durable", []int{1, 29}, 1, false},
	{"last records cut", `truncate -s -100 "$S3"`, "the log ends before records that were durable", []int{1, 27}, 3, false},
	{"last segment cut to its header", `truncate -s 64 "$S3"`, "the log ends before records that were durable", []int{1, 20}, 10, false},
	{"last segment emptied", `truncate -s 0 "$S3"`, "the segment is shorter than its header", []int{1, 20}, 10, false},
	{"last record zeroed", `dd if=/dev/zero of="$S3" bs=1 seek=$(($(stat -c %s "$S3" 2>/dev/null || stat -f %z "$S3") - 40)) count=40 conv=notrunc`,
		"the log ends before records that were durable", []int{1, 29}, 1, false},
	{"cut and filled with zeros", `n=$(stat -c %s "$S3" 2>/dev/null || stat -f %z "$S3"); truncate -s -100 "$S3"; truncate -s $n "$S3"`,
		"the log ends before records that were durable", []int{1, 27}, 3, false},
	{"a record of the last segment overwritten", `dd if=/dev/urandom of="$S3" bs=1 seek=200 count=8 conv=notrunc`, "checksum", []int{1, 23, 25, 30}, 1, false},
	{"header of the last segment overwritten", `dd if=/dev/urandom of="$S3" bs=64 count=1 conv=notrunc`, "not a segment", []int{1, 20}, 10, false},
	{"header in the middle overwritten", `dd if=/dev/urandom of="$S2" bs=64 count=1 conv=notrunc`, "not a segment", []int{1, 30}, 0, false},
	{"segment in the middle cut", `truncate -s -200 "$S2"`, "the segment ends before the next one begins", []int{1, 16, 21, 30}, 4, false},
	{"seal of the segment in the middle cut", `truncate -s -1 "$S2"`, "", []int{1, 30}, 0, false},
	{"segment in the middle emptied", `: >"$S2"`, "the segment is shorter than its header", []int{1, 10, 21, 30}, 10, false},
	{"a record in the middle overwritten", `dd if=/dev/urandom of="$S2" bs=1 seek=200 count=8 conv=notrunc`, "checksum", nil, 0, true},
	{"first segment renamed", `mv "$S1" "$D/old"`, "segment 1 is missing before it", []int{11, 30}, 0, false},
	{"last segment renamed on", `mv "$S3" "$S4"`, "segment 3 is missing before it", []int{1, 30}, 0, false},
	{"two segments swapped", `mv "$S1" "$D/x"; mv "$S2" "$S1"; mv "$D/x" "$S2"`, "the segment has another number than its file name", []int{11, 30}, 0, false},
	{"segment copied over the next", `cp "$S2" "$S3"`, "the segment has another number than its file name", []int{1, 20}, 10, false},
	{"segment of another log", `cp -a "$OTHER"/*2.seg "$D"`, "the segment belongs to another log", []int{1, 10, 21, 30}, 10, false},
	{"last segment of another log", `cp -a "$OTHER"/*3.seg "$D"`, "the segment belongs to another log", []int{1, 20}, 10, false},
	{"mark of another log", `cp -a "$OTHER/end" "$D"`, "the segment belongs to another log", nil, 0, false},
	{"whole log copied", `cp -a "$D" "$D.copy"; rm -r "$D"; mv "$D.copy" "$D"`, "", []int{1, 30}, 0, false},
	{"copied, and the original cut", `cp -a "$D" "$D.copy"; truncate -s 70 "$S3"; rm -r "$D"; mv "$D.copy" "$D"`, "", []int{1, 30}, 0, false},
}

// TestDamagedByHand damages a closed log. Open refuses it unless nothing is missing. With
// AcceptLoss it opens the log and reports what is missing, and later opens need no
// AcceptLoss.
// Promise: appendlog/records-known-durable
func TestDamagedByHand(t *testing.T) {
	needPrograms(t)
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "log")
			all := threeSegments(t, dir)
			threeSegments(t, dir+"-other")
			shell(t, dir, d.script)
			var left []string
			for i := 0; i < len(d.left); i += 2 {
				left = append(left, all[d.left[i]-1:d.left[i+1]]...)
			}
			if d.reading {
				checkReads(t, dir, all[:13], d.reason)
				return
			}
			before := files(t, dir)
			l, err := Open(dir, Options{})
			if d.reason == "" {
				if err != nil {
					t.Fatal(err)
				}
				mustClose(t, l)
				checkReads(t, dir, left, "")
				return
			}
			checkRefusal(t, err, d.reason)
			if !slices.Equal(files(t, dir), before) {
				t.Error("the refused Open has changed the log")
			}
			checkReads(t, dir, nil, "") // check only that it ends with an error
			checkAccepted(t, dir, left, d.lost)
		})
	}
}

func checkRefusal(t *testing.T, err error, reason string) {
	t.Helper()
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) {
		t.Fatalf("Open = %v, want a CorruptError", err)
	}
	if !strings.Contains(corrupt.Reason, reason) || !strings.Contains(err.Error(), "AcceptLoss") || corrupt.Path == "" {
		t.Errorf("Open = %v, want the reason %q, the file and the remedy", err, reason)
	}
}

// files returns the names and contents of a directory.
func files(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.Name()+"\x00"+string(b))
	}
	return all
}

// checkReads reads a log: it must return the records and then an error with the reason, or
// no error when there is no reason. Without records and a reason it must return any error.
func checkReads(t *testing.T, dir string, want []string, reason string) {
	t.Helper()
	var got []string
	var last error
	for r, err := range Read(dir, ReadOptions{}) {
		if last = err; err == nil {
			got = append(got, string(r.Data))
		}
	}
	switch {
	case want == nil && last == nil:
		t.Error("reading found no error")
	case want == nil:
	case !slices.Equal(got, want):
		t.Errorf("reading returned %d records, want %d: %q", len(got), len(want), got)
	case (last == nil) != (reason == "") || last != nil && !strings.Contains(last.Error(), reason):
		t.Errorf("reading ended with %v, want %q", last, reason)
	}
}

// checkAccepted opens a damaged log with AcceptLoss, and without it afterwards.
func checkAccepted(t *testing.T, dir string, left []string, lost uint64) {
	t.Helper()
	logger, await := ringtest.Logger(t)
	l, err := Open(dir, Options{AcceptLoss: true, Logger: logger})
	if err != nil {
		t.Fatalf("with AcceptLoss: %v", err)
	}
	await("appendlog: durable records are lost, which Options.AcceptLoss accepted")
	r := l.Recovery()
	if len(r.Lost) == 0 || r.Lost[0].Path == "" || r.Lost[0].Reason == "" {
		t.Errorf("Recovery does not report the loss: %+v", r)
	}
	var sum uint64
	for _, e := range r.Lost {
		sum += e.Lost
	}
	if sum != lost {
		t.Errorf("Recovery reports %d lost records, want %d: %v", sum, lost, r.Lost)
	}
	if pos := put(t, l, "afterwards"); pos.Seq < uint64(len(left))+1 {
		t.Errorf("the next record is at %+v", pos)
	}
	mustClose(t, l)
	if l, err = Open(dir, Options{}); err != nil {
		t.Fatalf("after the loss was accepted: %v", err)
	}
	if r := l.Recovery(); len(r.Lost) != 0 || !r.Clean {
		t.Errorf("after the loss was accepted: %+v", r)
	}
	var got []string
	seen := map[uint64]bool{}
	for r, err := range l.Records(Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		if seen[r.Seq] {
			t.Errorf("number %d is there twice", r.Seq)
		}
		seen[r.Seq] = true
		got = append(got, string(r.Data))
	}
	mustClose(t, l)
	if want := append(slices.Clone(left), "afterwards"); !slices.Equal(got, want) {
		t.Errorf("after the loss was accepted %d records, want %d: %q", len(got), len(want), got)
	}
	checkReads(t, dir, append(slices.Clone(left), "afterwards"), "")
}

// TestOlderFiles replaces files of a log by older copies.
// Promise: appendlog/records-known-durable
func TestOlderFiles(t *testing.T) {
	needPrograms(t)
	for name, c := range map[string]struct {
		script, reason string
		left           int
	}{
		"mark":         {`cp -a "$D.old/end" "$D"`, "", 40}, // the older mark claims less
		"last segment": {`cp -a "$D.old"/*3.seg "$D"`, "the log ends before records that were durable", 30},
		"whole log":    {`rm -r "$D"; mv "$D.old" "$D"`, "", 30}, // this is a valid log, and nothing shows that there were more records
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "log")
			all := threeSegments(t, dir)
			shell(t, dir, `cp -a "$D" "$D.old"`)
			l, err := Open(dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			more := numbered("later", 10)
			put(t, l, more...)
			mustClose(t, l)
			all = append(all, more...)
			shell(t, dir, c.script)
			if l, err = Open(dir, Options{}); c.reason != "" {
				checkRefusal(t, err, c.reason)
				checkAccepted(t, dir, all[:c.left], uint64(len(all)-c.left))
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			mustClose(t, l)
			checkReads(t, dir, all[:c.left], "")
		})
	}
}

// appendEnv makes the test binary the other process. It opens the named log, and appends a
// record for each line of its input; the lines "rotate" and "close" call these methods.
const appendEnv = "RINGSIDE_TEST_APPEND_LINES"

type other struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startOther(t *testing.T, dir string) *other {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := &other{t: t, cmd: exec.Command(exe, "-test.run=^TestOtherProcess$")}
	o.cmd.Env = append(os.Environ(), appendEnv+"="+dir)
	o.cmd.Stderr = os.Stderr
	if o.in, err = o.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	o.out = bufio.NewScanner(out)
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		o.cmd.Process.Kill()
		o.cmd.Wait()
	})
	o.want("open", "ok")
	return o
}

// do sends a line and returns the reply.
func (o *other) do(line string) string {
	o.t.Helper()
	if line != "open" {
		if _, err := io.WriteString(o.in, line+"\n"); err != nil {
			o.t.Fatal(err)
		}
	}
	if !o.out.Scan() {
		o.t.Fatalf("the other process ended after %q", line)
	}
	return o.out.Text()
}

func (o *other) want(line, answer string) {
	o.t.Helper()
	if got := o.do(line); !strings.HasPrefix(got, answer) {
		o.t.Errorf("the other process replied %q to %q, want %q", got, line, answer)
	}
}

func TestOtherProcess(t *testing.T) {
	dir := os.Getenv(appendEnv)
	if dir == "" {
		t.Skip("needs another test, which starts this one as a process")
	}
	answer := func(err error) {
		if err != nil {
			fmt.Println("error:", err)
		} else {
			fmt.Println("ok")
		}
	}
	l, err := Open(dir, Options{})
	answer(err)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "rotate":
			answer(l.Rotate())
		case "close":
			answer(l.Close())
			os.Exit(0)
		default:
			_, err := l.Append(in.Bytes())
			answer(err)
		}
	}
	os.Exit(1)
}

// TestSecondOpen opens a log that another process has open, by each path and after each
// deletion that could permit it: the open is refused, and does no harm.
// Promise: appendlog/log-open-append
func TestSecondOpen(t *testing.T) {
	needPrograms(t)
	for _, c := range []struct{ name, script, dir string }{
		{"same path", ``, ""},
		{"lock file of v0.1.0 deleted", `rm -f "$D/lock"`, ""},
		{"mark deleted", `rm "$END"`, ""},
		{"everything but segments deleted", `find "$D" -type f ! -name "*.seg" -exec rm {} +`, ""},
		{"through a symbolic link", `ln -s "$D" "$D.link"`, ".link"},
		{"renamed directory", `mv "$D" "$D.moved"`, ".moved"},
		{"hard links", `cp -al "$D" "$D.linked"`, ".linked"},
		{"hard links to the segments", `mkdir "$D.linked"; ln "$D"/*.seg "$D.linked"`, ".linked"},
		{"mark replaced by a copy", `cp "$END" "$END.x"; mv "$END.x" "$END"`, ""},
	} {
		for _, rotated := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, rotated %v", c.name, rotated), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "log")
				o := startOther(t, dir)
				o.want("one", "ok")
				want := []string{"one"}
				if rotated {
					o.want("rotate", "ok")
				}
				shell(t, dir, c.script)
				for _, accept := range []bool{false, true} {
					if l, err := Open(dir+c.dir, Options{AcceptLoss: accept}); !errors.Is(err, ErrInUse) {
						if err == nil {
							l.Close()
						}
						t.Fatalf("Open = %v, want ErrInUse", err)
					}
				}
				o.want("two", "ok")
				o.want("rotate", "ok")
				o.want("three", "ok")
				want = append(want, "two", "three")
				o.want("close", "ok")
				if c.dir == ".moved" {
					dir += c.dir
				}
				l, err := Open(dir, Options{})
				if err != nil {
					t.Fatal(err)
				}
				if got := contents(t, l); !slices.Equal(got, want) {
					t.Errorf("records %q, want %q", got, want)
				}
				mustClose(t, l)
			})
		}
	}
}

// TestTakenAway removes the files of an open log: an append is not acknowledged when the
// log's name no longer leads to the file.
// Promise: appendlog/log-open-append
func TestTakenAway(t *testing.T) {
	needPrograms(t)
	for _, c := range []struct{ name, script string }{
		{"segment deleted", `rm "$S1"`},
		{"segment renamed", `mv "$S1" "$D/x"`},
		{"segment replaced by a copy", `cp -a "$S1" "$D/x"; mv "$D/x" "$S1"`},
		{"directory deleted", `rm -r "$D"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "log")
			o := startOther(t, dir)
			o.want("one", "ok")
			shell(t, dir, c.script)
			o.want("two", "error: check "+filepath.Join(dir, segmentName("", 1))+": the file was removed, renamed or replaced")
			o.want("three", "error: appendlog: the log failed before")
			o.want("close", "error")
		})
	}
}

// TestDirectoryMovedAway renames the directory of an open log, and a new log gets its name:
// each keeps its own records, also over a rotation.
// Promise: appendlog/log-open-append
func TestDirectoryMovedAway(t *testing.T) {
	needPrograms(t)
	dir := filepath.Join(t.TempDir(), "log")
	o := startOther(t, dir)
	o.want("old one", "ok")
	shell(t, dir, `mv "$D" "$D.moved"`)
	l, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	put(t, l, "new one")
	o.want("rotate", "ok")
	o.want("old two", "ok")
	put(t, l, "new two")
	mustClose(t, l)
	o.want("close", "ok")
	checkReads(t, dir, []string{"new one", "new two"}, "")
	checkReads(t, dir+".moved", []string{"old one", "old two"}, "")
}

// TestKilledAndDamaged kills the process that has a log open, and then cuts the last record
// off: the end mark shows the loss, although the log was not closed.
// Promise: appendlog/records-known-durable
func TestKilledAndDamaged(t *testing.T) {
	needPrograms(t)
	for _, c := range []struct {
		script, reason string
		left           int
	}{
		{``, "", 5},
		{`rm "$END"`, "the end mark is missing", 5},
		{`truncate -s $((64 + 4 * 32)) "$S1"`, "the log ends before records that were durable", 4},
		{`dd if=/dev/zero of="$S1" bs=1 seek=$((64 + 4 * 32)) count=32 conv=notrunc`, "the log ends before records that were durable", 4},
		{`rm "$S1"`, "all segments are missing", 0},
	} {
		t.Run(c.script, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "log")
			o := startOther(t, dir)
			records := []string{"rec 1", "rec 2", "rec 3", "rec 4", "rec 5"}
			for _, d := range records {
				o.want(d, "ok")
			}
			o.cmd.Process.Kill()
			o.cmd.Wait()
			shell(t, dir, c.script)
			l, err := Open(dir, Options{})
			if c.reason != "" {
				checkRefusal(t, err, c.reason)
				lost := uint64(len(records) - c.left)
				if c.left == 0 {
					lost = 0 // the records of a log without segments are not counted
				}
				checkAccepted(t, dir, records[:c.left], lost)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if r := l.Recovery(); r.Clean || r.Marked.Seq != 6 {
				t.Errorf("recovered %+v, want the exact mark of a log that was not closed", r)
			}
			mustClose(t, l)
			checkReads(t, dir, records[:c.left], "")
		})
	}
}

// TestCopiedWhileOpen copies a log while records are appended: the copy has every record
// that its end mark covers, or Open refuses it.
// Promise: appendlog/records-known-durable
func TestCopiedWhileOpen(t *testing.T) {
	needPrograms(t)
	dir := filepath.Join(t.TempDir(), "log")
	l, err := Open(dir, Options{SegmentSize: 8 << 10, Ahead: 4096})
	if err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := l.Append(fmt.Appendf(nil, "record %d", i)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	whole := 0
	for i := range ringtest.Rounds(10, 3) {
		target := fmt.Sprintf("%s.%d", dir, i)
		known := l.End().Seq - 1
		// cp fails if a new segment gets its name between the listing and the copy.
		shell(t, dir, fmt.Sprintf(`cp -a "$D" %q || [ -d %q ]`, target, target))
		c, err := Open(target, Options{})
		var corrupt *CorruptError
		if errors.As(err, &corrupt) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		whole++
		all := contents(t, c)
		for i, d := range all {
			if d != fmt.Sprintf("record %d", i) {
				t.Fatalf("record %d of the copy is %q", i, d)
			}
		}
		if n := uint64(len(all)); n < known && n < c.Recovery().Marked.Seq-1 {
			t.Errorf("the copy has %d records, there were %d before", n, known)
		}
		put(t, c, "appended to the copy")
		mustClose(t, c)
	}
	close(stop)
	<-done
	mustClose(t, l)
	t.Logf("%d copies were opened", whole)
}

// TestLockIsNotInherited closes a log while a child process holds copies of its
// descriptors, as each child does for a moment after its start: the log can be opened again
// at once.
// Promise: appendlog/log-open-append
func TestLockIsNotInherited(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "600")
	cmd.ExtraFiles = []*os.File{l.file.(*dirFile).File, l.mark.file.(*dirFile).File}
	if err := cmd.Start(); err != nil {
		t.Skipf("needs the program sleep: %v", err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrInUse) {
		t.Errorf("Open = %v, want ErrInUse", err)
	}
	mustClose(t, l)
	if l, err = Open(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, l)
}

// TestLockOfOldVersion opens a log beside a process of v0.1.0, which locks one file only.
func TestLockOfOldVersion(t *testing.T) {
	dir := t.TempDir()
	old, err := os.OpenFile(filepath.Join(dir, "p-"+lockSuffix), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if ok, err := sys.TryLock(old); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := Open(dir, Options{Prefix: "p-"}); !errors.Is(err, ErrInUse) {
		t.Fatalf("Open beside v0.1.0: %v", err)
	}
	if err := sys.Unlock(old); err != nil {
		t.Fatal(err)
	}
	l, err := Open(dir, Options{Prefix: "p-"})
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := sys.TryLock(old); ok || err != nil {
		t.Errorf("v0.1.0 may open the log that is open: %v, %v", ok, err)
	}
	mustClose(t, l)
	if ok, err := sys.TryLock(old); !ok || err != nil {
		t.Errorf("after Close: %v, %v", ok, err)
	}
}
