// SPDX-License-Identifier: MIT

package liburing

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/uring"
)

// rounds is the number of comparisons per builder.
const rounds = 2000

// args makes random arguments for a builder and records the values for liburing.
type args struct {
	*rand.Rand
	a     []uint64
	fixed bool
	keep  []any // keeps memory alive whose address is in a
}

func (x *args) add(v uint64) uint64 { x.a = append(x.a, v); return v }

func (x *args) u64() uint64 { return x.add(x.Uint64() >> (x.IntN(8) * 8)) }
func (x *args) u32() uint32 { return uint32(x.add(uint64(x.Uint32()))) }
func (x *args) u16() uint16 { return uint16(x.add(uint64(uint16(x.Uint32())))) }
func (x *args) off() int64  { return int64(x.u64()) } // including -1
func (x *args) num() int    { return int(x.add(uint64(x.Uint32() >> 1))) }
func (x *args) n() int      { return int(x.add(uint64(1 + x.IntN(1<<16)))) }

// fd returns a descriptor or a slot of the file table.
func (x *args) fd() uring.FD {
	if n := x.num(); x.IntN(2) == 0 {
		return uring.Fd(n)
	} else {
		x.fixed = true
		return uring.FixedFd(n)
	}
}

// at records the address of p or of its target.
func (x *args) at(p any) {
	x.keep = append(x.keep, p)
	v := reflect.ValueOf(p)
	if v.Kind() == reflect.Struct { // a Path: its only field is the text
		v = v.Field(0)
	}
	x.add(uint64(v.Pointer()))
}

// buf returns a buffer, and records its address and length.
func (x *args) buf() []byte {
	p := make([]byte, 1+x.IntN(5000))
	x.at(p)
	x.add(uint64(len(p)))
	return p
}

func (x *args) iov() []uring.Iovec {
	v := make([]uring.Iovec, 1+x.IntN(20))
	x.at(v)
	x.add(uint64(len(v)))
	return v
}

func (x *args) path() uring.Path {
	p, err := uring.NewPath(strings.Repeat("x", 1+x.IntN(200)))
	if err != nil {
		panic(err)
	}
	x.at(p)
	return p
}

func ptr[T any](x *args) *T {
	p := new(T)
	x.at(p)
	return p
}

// row is a builder with its counterpart in liburing. In C, a[0], a[1] and so on are the arguments
// and s is the entry.
type row struct {
	name  string
	c     string
	build func(e *uring.SQE, x *args)
}

// call matches the functions that a row needs.
var call = regexp.MustCompile(`io_uring_(prep|sqe)_\w+`)

// program returns the C program for the rows that a header supports, and the missing functions.
func program(rows []row, header string) (source string, missing []string) {
	var b strings.Builder
	b.WriteString(`#define _GNU_SOURCE
#include <liburing.h>
#include <stdio.h>
#include <string.h>
#define P(i) ((void *)(unsigned long)a[i])
int main(void) {
	unsigned long long a[8];
	int row, fixed;
	while (scanf("%d %d", &row, &fixed) == 2) {
		for (int i = 0; i < 8; i++) if (scanf("%llu", &a[i]) != 1) return 1;
		struct io_uring_sqe sqe, *s = &sqe;
		memset(s, 0, sizeof sqe); /* as io_uring_get_sqe leaves it, since 2.4 */
		switch (row) {
`)
next:
	for i, r := range rows {
		for _, f := range call.FindAllString(r.c, -1) {
			if !regexp.MustCompile(`\b` + f + `\b`).MatchString(header) {
				missing = append(missing, r.name+" ("+f+")")
				continue next
			}
		}
		fmt.Fprintf(&b, "\t\tcase %d: %s; break;\n", i, r.c)
	}
	b.WriteString(`		default: printf("absent\n"); fflush(stdout); continue;
		}
		if (fixed) s->flags |= IOSQE_FIXED_FILE;
		s->user_data = 0x1122334455667788;
		for (unsigned i = 0; i < sizeof sqe; i++) printf("%02x", ((unsigned char *)s)[i]);
		printf("\n"); fflush(stdout);
	}
	return 0;
}
`)
	return b.String(), missing
}

// compiler skips the test if there is no C compiler or no header. It returns the compiler and the
// content of the header.
func compiler(t *testing.T) (cc, header string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skipf("needs a C compiler (Debian: apt-get install gcc libc6-dev): %v", err)
	}
	c := exec.Command(cc, "-E", "-P", "-xc", "-")
	c.Stdin = strings.NewReader("#define _GNU_SOURCE\n#include <liburing.h>\n")
	out, err := c.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && strings.Contains(string(exit.Stderr), "liburing.h") {
			t.Skip("needs liburing's header (Debian: apt-get install liburing-dev)")
		}
		t.Fatalf("the preprocessor: %v", err)
	}
	return cc, string(out)
}

// TestBuilders compares each builder with liburing's.
// Promise: uring/builder-encodes-bytes
func TestBuilders(t *testing.T) {
	cc, header := compiler(t)
	source, missing := program(rows, header)
	if len(missing) > 0 {
		t.Logf("not in this header: %s", strings.Join(missing, ", "))
	}
	dir := t.TempDir()
	file, exe := filepath.Join(dir, "build.c"), filepath.Join(dir, "build")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	// All functions are inline in the header, except those that need a ring.
	if out, err := exec.Command(cc, "-O1", "-w", "-fno-strict-aliasing", "-o", exe, file, "-luring").CombinedOutput(); err != nil {
		again, err := exec.Command(cc, "-O1", "-w", "-fno-strict-aliasing", "-o", exe, file).CombinedOutput()
		if err != nil {
			t.Fatalf("the compiler: %v\n%s%s", err, out, again)
		}
	}
	c := exec.Command(exe)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w, lines := bufio.NewWriter(in), bufio.NewScanner(out)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	compared := 0
	for i, r := range rows {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		for range rounds {
			x := &args{Rand: rnd}
			var e uring.SQE // with the content of an earlier use
			*e.Raw() = uring.RawSQE{Opcode: 0xa5, Flags: 0xa5, Ioprio: 0xa5a5, Fd: -3, Off: 5, Addr: 6, Len: 7, OpFlags: 8, UserData: 9,
				BufIndex: 10, Personality: 11, FileIndex: 12, Addr3: 13, Pad2: 14}
			r.build(&e, x)
			e.SetUserData(0x1122334455667788)
			fixed := 0
			if x.fixed {
				fixed = 1
			}
			fmt.Fprint(w, i, " ", fixed)
			for j := range 8 {
				v := uint64(0)
				if j < len(x.a) {
					v = x.a[j]
				}
				fmt.Fprint(w, " ", v)
			}
			fmt.Fprintln(w)
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			if !lines.Scan() {
				t.Fatalf("the program in C has ended: %v", lines.Err())
			}
			if lines.Text() == "absent" {
				break
			}
			if got := hex.EncodeToString(bytesOf(e.Raw())); got != lines.Text() {
				t.Errorf("%s of %x, fixed %v:\nringside %s\nliburing %s", r.name, x.a, x.fixed, got, lines.Text())
				break
			}
			compared++
		}
	}
	_ = in.Close()
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	if compared < rounds*len(rows)/3 {
		t.Errorf("only %d entries were compared", compared)
	}
	t.Logf("%d entries of %d builders are equal", compared, len(rows)-len(missing))
}

// TestComparisonSees checks that a change of any byte of an entry is found.
func TestComparisonSees(t *testing.T) {
	var e uring.SQE
	before := bytesOf(e.Nop().Raw())
	for i, change := range []func(r *uring.RawSQE){
		func(r *uring.RawSQE) { r.Opcode++ }, func(r *uring.RawSQE) { r.Flags++ }, func(r *uring.RawSQE) { r.Ioprio++ },
		func(r *uring.RawSQE) { r.Fd++ }, func(r *uring.RawSQE) { r.Off++ }, func(r *uring.RawSQE) { r.Addr++ },
		func(r *uring.RawSQE) { r.Len++ }, func(r *uring.RawSQE) { r.OpFlags++ }, func(r *uring.RawSQE) { r.UserData++ },
		func(r *uring.RawSQE) { r.BufIndex++ }, func(r *uring.RawSQE) { r.Personality++ }, func(r *uring.RawSQE) { r.FileIndex++ },
		func(r *uring.RawSQE) { r.Addr3++ }, func(r *uring.RawSQE) { r.Pad2++ },
	} {
		change(e.Nop().Raw())
		if after := bytesOf(e.Raw()); len(after) != 64 || string(after) == string(before) {
			t.Errorf("change %d is not in the %d bytes", i, len(after))
		}
	}
}
