// SPDX-License-Identifier: MIT

package wire

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

const nonce = "NONCE"

// parsed is the output of a parser, with events as "<kind job exit>".
type parsed struct {
	text   bytes.Buffer
	output bytes.Buffer
	events []Event
}

func parse(stream []byte, size int) *parsed {
	p := &parsed{}
	parser := NewParser(nonce, func(e Event) {
		p.events = append(p.events, e)
		fmt.Fprintf(&p.text, "<%s %d %d>", e.Kind, e.Job, e.Exit)
	}, func(b []byte) {
		p.text.Write(b)
		p.output.Write(b)
	})
	for chunk := range chunks(stream, size) {
		parser.Write(chunk)
	}
	parser.Close()
	return p
}

func chunks(b []byte, size int) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			n := min(size, len(b))
			if !yield(b[:n:n]) {
				return
			}
			b = b[n:]
		}
	}
}

func TestParser(t *testing.T) {
	long := strings.Repeat("x", maxHeld)
	for name, tt := range map[string]struct{ in, want string }{
		"empty":            {"", ""},
		"output":           {"a\nb\n", "a\nb\n"},
		"no newline":       {"a", "a"},
		"serial line":      {"a\r\n\r\nb\r\n", "a\n\nb\n"},
		"own carriage":     {"a\r\r\nb\rc\r", "a\r\nb\rc\r"},
		"marker":           {"a\n@@ringside NONCE {\"Kind\":\"end\",\"Job\":2,\"Exit\":3}\r\nb\n", "a\n<end 2 3>b\n"},
		"not at the start": {" @@ringside NONCE {\"Kind\":\"end\"}\n", " @@ringside NONCE {\"Kind\":\"end\"}\n"},
		"other nonce":      {"@@ringside OTHER {\"Kind\":\"end\"}\n", "@@ringside OTHER {\"Kind\":\"end\"}\n"},
		"broken":           {"@@ringside NONCE {\"Kind\":\n", "@@ringside NONCE {\"Kind\":\n"},
		"no kind":          {"@@ringside NONCE {}\n", "@@ringside NONCE {}\n"},
		"cut marker":       {"@@ringside NONCE {\"Kind\":\"end\"}", "@@ringside NONCE {\"Kind\":\"end\"}"},
		"cut prefix":       {"@@ring", "@@ring"},
		"long line":        {"@@ringside NONCE " + long + "\na", "@@ringside NONCE " + long + "\na"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1, 2, 3, 7, 1 << 20} {
				if got := parse([]byte(tt.in), size).text.String(); got != tt.want {
					t.Errorf("in pieces of %d: got %.200q, want %.200q", size, got, tt.want)
				}
			}
		})
	}
}

func TestRoundTrip(t *testing.T) {
	events := []Event{
		{Kind: Boot, Guest: &Guest{Release: "6.1.0", CPUs: 2, Mounts: []Mount{{"/tmp", "tmpfs", true}}, Notes: []string{"a\nb"}}},
		{Kind: Start, Job: 1},
		{Kind: End, Job: 1, Exit: -1, Note: "killed\r\n", Took: time.Second},
		{Kind: Done},
	}
	var stream bytes.Buffer
	w := NewWriter(&stream, nonce)
	for _, e := range events {
		if err := w.Event(e); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(w, "no newline")
	}
	got := parse(stream.Bytes(), 5)
	if !reflect.DeepEqual(got.events, events) {
		t.Errorf("got %+v", got.events)
	}
	if want := strings.Repeat("no newline\n", len(events)-1) + "no newline"; got.output.String() != want {
		t.Errorf("output %q", &got.output)
	}
}

// FuzzParser checks that the cuts between pieces of a stream have no effect.
func FuzzParser(f *testing.F) {
	f.Add([]byte("a\r\n@@ringside NONCE {\"Kind\":\"end\"}\r\nb"), byte(3))
	f.Add([]byte("@@ringside NONCE {\"Kind\":\"end\"\r\r\n\r"), byte(1))
	f.Fuzz(func(t *testing.T, stream []byte, size byte) {
		whole := parse(stream, len(stream)+1)
		pieces := parse(stream, int(size)+1)
		if !bytes.Equal(whole.text.Bytes(), pieces.text.Bytes()) {
			t.Errorf("whole %q, in pieces of %d %q", &whole.text, int(size)+1, &pieces.text)
		}
		if len(whole.events) == 0 {
			want := bytes.ReplaceAll(stream, []byte("\r\n"), []byte("\n"))
			if !bytes.Equal(whole.output.Bytes(), want) {
				t.Errorf("output %q of %q", &whole.output, stream)
			}
		}
	})
}

// FuzzWriter checks that a program's output neither hides nor forges a marker, also after a
// serial line has added carriage returns.
func FuzzWriter(f *testing.F) {
	f.Add([]byte("a"), []byte("b\n"))
	f.Add([]byte("@@ringside "), []byte("\r"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		if bytes.Contains(append(bytes.Clone(first), second...), []byte(nonce)) {
			return // the program knows the nonce
		}
		var stream bytes.Buffer
		w := NewWriter(&stream, nonce)
		var want []Event
		for i, out := range [][]byte{first, second} {
			e := Event{Kind: End, Job: i}
			w.Write(out)
			if err := w.Event(e); err != nil {
				t.Fatal(err)
			}
			want = append(want, e)
		}
		serial := bytes.ReplaceAll(stream.Bytes(), []byte("\n"), []byte("\r\n"))
		got := parse(serial, 1<<20)
		if !reflect.DeepEqual(got.events, want) {
			t.Errorf("events %+v of %q", got.events, serial)
		}
		if out := endLine(first) + endLine(second); got.output.String() != out {
			t.Errorf("output %q, want %q", &got.output, out)
		}
	})
}

// endLine adds the newline that a Writer adds before a marker.
func endLine(b []byte) string {
	if len(b) == 0 || b[len(b)-1] == '\n' {
		return string(b)
	}
	return string(b) + "\n"
}
