// SPDX-License-Identifier: MIT

package liburing

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

func TestEchoServer(t *testing.T) {
	ringtest.NeedKernel(t, "deferred task work", "6.1")
	p, err := BuildEcho(t.Context())
	if errors.Is(err, ErrNoCompiler) || errors.Is(err, ErrNoLibrary) {
		t.Skipf("the peer in C: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Remove(); err != nil {
			t.Error(err)
		}
	}()
	cmd := exec.CommandContext(t.Context(), p.Command()[0], p.Command()[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bufio.NewReader(out))
	var hello struct{ Addr string }
	if err := dec.Decode(&hello); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", hello.Addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(ringtest.Patience))
	for _, n := range []int{1, 5000, 100_000} {
		go func() { _, _ = c.Write(make([]byte, n)) }()
		if _, err := io.ReadFull(c, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	_ = c.Close()
	var count struct{ Enters int64 }
	if _, err := io.WriteString(in, "count\n"); err != nil {
		t.Fatal(err)
	}
	if err := dec.Decode(&count); err != nil || count.Enters < 3 {
		t.Errorf("%d enters, %v", count.Enters, err)
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
