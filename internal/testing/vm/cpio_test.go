// SPDX-License-Identifier: MIT

package vm

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// goldenArchive holds a directory, a device and two files; nul stands for a zero byte.
var goldenArchive = strings.NewReplacer("nul", "\x00", "|", "").Replace(
	"070701|00000001|000041ED|00000000|00000000|00000002|00000000|00000000|00000000|00000000|00000000|00000000|00000004|00000000" + "devnulnulnul" +
		"070701|00000002|00002180|00000000|00000000|00000001|00000000|00000000|00000000|00000000|00000005|00000001|0000000C|00000000" + "dev/consolenulnulnul" +
		"070701|00000003|000041ED|00000000|00000000|00000002|00000000|00000000|00000000|00000000|00000000|00000000|00000002|00000000" + "anul" +
		"070701|00000004|000041ED|00000000|00000000|00000002|00000000|00000000|00000000|00000000|00000000|00000000|00000004|00000000" + "a/bnulnulnul" +
		"070701|00000005|000081ED|00000000|00000000|00000001|00000000|00000005|00000000|00000000|00000000|00000000|00000006|00000000" + "a/b/cnul" + "hello" + "nulnulnul" +
		"070701|00000006|000081A4|00000000|00000000|00000001|00000000|00000000|00000000|00000000|00000000|00000000|00000002|00000000" + "enul" +
		"070701|00000000|00000000|00000000|00000000|00000001|00000000|00000000|00000000|00000000|00000000|00000000|0000000B|00000000" + "TRAILER!!!nulnulnulnul")

func TestCPIO(t *testing.T) {
	var out bytes.Buffer
	w := newCPIO(&out)
	w.dir("/dev", 0o755)
	w.dir("dev/", 0o755)
	w.char("/dev/console", 0o600, 5, 1)
	w.bytes("/a/b/c", 0o755, "hello")
	w.bytes("e", 0o644, "")
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != goldenArchive {
		t.Errorf("got  %q\nwant %q", got, goldenArchive)
	}
	if out.Len()%4 != 0 {
		t.Errorf("%d bytes are not a multiple of four", out.Len())
	}
}

func TestCPIOErrors(t *testing.T) {
	for name, use := range map[string]func(w *cpioWriter){
		"short data": func(w *cpioWriter) { w.file("x", 0o644, 6, strings.NewReader("short")) },
		"large file": func(w *cpioWriter) { w.file("x", 0o644, 1<<32, strings.NewReader("")) },
	} {
		w := newCPIO(io.Discard)
		use(w)
		if w.close() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	broken := errors.New("broken")
	w := newCPIO(writerFunc(func([]byte) (int, error) { return 0, broken }))
	w.bytes("x", 0o644, "data")
	if err := w.close(); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
