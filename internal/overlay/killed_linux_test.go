// SPDX-License-Identifier: MIT

package overlay

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// server is the part of program that is killed: it locks a file with flock(2) and reads from it all the time what
// is not cached. It tells how many records its journal has, and appends one for each byte that it receives. The
// answer is the record's number after fsync(2).
const server = `package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

type journal struct {
	sync.Mutex
	f *os.File
	n int64
}

const block = 512

func record(n int64) []byte { return []byte(fmt.Sprintf("%0*d\n", block-1, n)) }

func serve(path, cold, address, direct string) {
	flags := os.O_RDONLY
	if direct == "true" {
		flags |= syscall.O_DIRECT
	}
	data, err := os.OpenFile(cold, flags, 0)
	check(err)
	check(syscall.Flock(int(data.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	check(err)
	j := &journal{f: f}
	for p := make([]byte, block); ; j.n++ {
		if _, err := f.ReadAt(p, j.n*block); err == io.EOF {
			break
		} else if check(err); string(p) != string(record(j.n)) {
			panic(fmt.Sprintf("record %d is %q", j.n, p))
		}
	}
	l, err := net.Listen("tcp", address)
	check(err)
	readCold(data)
	fmt.Println("ready", j.n)
	for {
		c, err := l.Accept()
		check(err)
		go j.answer(c)
	}
}

func (j *journal) answer(c net.Conn) {
	for p := make([]byte, 1); ; {
		if _, err := c.Read(p); err != nil {
			return
		}
		j.Lock()
		n := j.n
		_, err := j.f.WriteAt(record(n), n*block)
		check(err)
		j.n++
		j.Unlock()
		check(j.f.Sync())
		if _, err := fmt.Fprintln(c, n); err != nil {
			return
		}
	}
}

func readCold(f *os.File) {
	for i := range int64(8) {
		go func() {
			const page = 4096
			p := make([]byte, 2*page)
			p = p[-uintptr(unsafe.Pointer(&p[0]))%page:][:page]
			for {
				const dontNeed = 4
				syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, dontNeed, 0, 0)
				_, err := f.ReadAt(p, i%3*page)
				check(err)
			}
		}()
	}
}
`

// deaths kills the server under load and starts it again at once, with the same journal and address.
type deaths struct {
	p                          builtProgram
	dir, address, backend      string
	direct                     bool         // the file that is locked is read with O_DIRECT
	acknowledged               atomic.Int64 // records
	longestLock, longestUnseen time.Duration
}

// testKilled checks, after each SIGKILL, that the journal has what was acknowledged and is whole, that the
// address is free as soon as the process has been waited for, and that the clients see the end.
func testKilled(t *testing.T, p builtProgram) {
	for _, tc := range []struct {
		backend string
		direct  bool
	}{{"", false}, {"", true}, {"off", false}} {
		d := &deaths{p: p, dir: t.TempDir(), backend: tc.backend, direct: tc.direct}
		d.address = ringtest.FreeAddresses(t, ringtest.OwnHost(), 1)[0]
		if f, err := os.OpenFile(p.file, os.O_RDONLY|syscall.O_DIRECT, 0); err == nil {
			f.Close()
		} else if tc.direct {
			t.Log("the file system has no O_DIRECT")
			continue
		}
		for range ringtest.Rounds(100, 8) {
			d.die(t)
		}
		d.stop(t, d.start(t))
		t.Logf("backend %q, O_DIRECT %v: %d records; flock held for %v, connections open for %v after the death",
			d.backend, d.direct, d.acknowledged.Load(), d.longestLock, d.longestUnseen)
		if d.acknowledged.Load() == 0 {
			t.Error("no record was acknowledged")
		}
		said, _ := os.ReadFile(filepath.Join(d.dir, "log"))
		for _, name := range []string{"ufile ", "unet "} {
			if used := strings.Contains(string(said), name); used != (d.backend == "") {
				t.Errorf("backend %q: the log has %q", d.backend, said)
			}
		}
	}
}

// start starts the server and waits until it has read its journal.
func (d *deaths) start(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(d.p.exe, "serve", filepath.Join(d.dir, "journal"), d.p.file, d.address, fmt.Sprint(d.direct))
	cmd.Env = append(cmd.Environ(), "RINGSIDE_BACKEND="+d.backend, "RINGSIDE_LOG="+filepath.Join(d.dir, "log"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var records int64
	said, _ := bufio.NewReader(out).ReadString('\n')
	if _, err := fmt.Sscan(strings.TrimPrefix(said, "ready "), &records); err != nil {
		d.stop(t, cmd)
		t.Fatalf("the server says %q\n%s", said, &stderr)
	}
	if want := d.acknowledged.Load(); records < want {
		t.Errorf("the journal has %d records, and %d were acknowledged", records, want)
	}
	return cmd
}

func (d *deaths) stop(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// die loads the server, and kills it after a random number of answers.
func (d *deaths) die(t *testing.T) {
	t.Helper()
	cmd := d.start(t)
	var clients sync.WaitGroup
	enough := make(chan struct{}, 1)
	before, last := d.acknowledged.Load(), int64(1+rand.IntN(40))
	for range 4 {
		clients.Go(func() {
			c, err := net.Dial("tcp", d.address)
			if err != nil {
				return // it has been killed
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(ringtest.Patience))
			for lines := bufio.NewReader(c); ; {
				if _, err := io.WriteString(c, "x"); err != nil {
					break
				}
				var n int64
				if _, err := fmt.Fscanln(lines, &n); err != nil {
					if net, ok := err.(net.Error); ok && net.Timeout() {
						t.Errorf("a client waits for the end of its connection: %v", err)
					}
					break
				}
				for was := d.acknowledged.Load(); was <= n && !d.acknowledged.CompareAndSwap(was, n+1); {
					was = d.acknowledged.Load()
				}
				if n >= before+last {
					select {
					case enough <- struct{}{}:
					default:
					}
				}
			}
		})
	}
	select {
	case <-enough:
	case <-time.After(ringtest.Patience):
		t.Error("the server answers no more")
	}
	d.stop(t, cmd)
	begin := time.Now()
	d.free(t)
	clients.Wait()
	d.longestUnseen = max(d.longestUnseen, time.Since(begin))
}

// free checks that the address is free and waits until the lock is.
func (d *deaths) free(t *testing.T) {
	t.Helper()
	begin := time.Now()
	l, err := net.Listen("tcp", d.address)
	if err != nil {
		t.Errorf("after its death: %v", err)
		return
	}
	defer l.Close()
	f, err := os.Open(d.p.file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		if time.Sleep(time.Millisecond); time.Since(begin) > ringtest.Patience {
			t.Fatal("the file of a dead process is locked")
		}
	}
	d.longestLock = max(d.longestLock, time.Since(begin))
}
