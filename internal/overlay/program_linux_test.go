// SPDX-License-Identifier: MIT

package overlay

import (
	"bufio"
	"go/version"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// program reads a file that is not cached, and is a client of an echo server. It imports only packages
// that ringside needs itself. It prints what it sees. With a third argument it forbids io_uring to
// itself, and then does the same again.
const program = `package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

func main() {
	if os.Args[1] == "serve" {
		serve(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	}
	kept, err := net.Dial("tcp", os.Args[2])
	check(err)
	files()
	sockets()
	if len(os.Args) > 3 {
		forbid()
		kept.Write([]byte("kept\n"))
		p := make([]byte, 10)
		n, err := kept.Read(p)
		fmt.Printf("%q %v\n", p[:n], err)
		files()
		sockets()
	}
}

func files() {
	f, err := os.Open(os.Args[1])
	check(err)
	const dontNeed = 4
	syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, dontNeed, 0, 0)
	var wg sync.WaitGroup
	for i := range int64(8) {
		wg.Go(func() {
			p := make([]byte, 1000)
			for j := range int64(20) {
				n, err := f.ReadAt(p, i*2000+j)
				if check(err); n != len(p) || p[0] != byte((i*2000+j)%251) {
					panic(fmt.Sprint(n, p[0]))
				}
			}
		})
	}
	wg.Wait()
	n, err := f.ReadAt(make([]byte, 100), 15990)
	fmt.Println(n, err == io.EOF)
	_, err = f.ReadAt(make([]byte, 1), -1)
	fmt.Println(err)
	check(f.Close())
	_, err = f.ReadAt(make([]byte, 1), 0)
	fmt.Println(err)
}

func sockets() {
	c, err := net.Dial("tcp", os.Args[2])
	check(err)
	check(c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)))
	_, err = c.Read(make([]byte, 1))
	fmt.Println(os.IsTimeout(err))
	check(c.SetReadDeadline(time.Time{}))
	from := &io.LimitedReader{R: strings.NewReader("hello\nworld"), N: 6}
	_, err = c.(*net.TCPConn).ReadFrom(from)
	check(err)
	_, same := from.R.(*strings.Reader)
	p := make([]byte, 10)
	n, err := c.Read(p)
	fmt.Printf("%q %v %d %v\n", p[:n], err, from.N, same)
	ended := make(chan error)
	go func() {
		_, err := c.Read(p)
		ended <- err
	}()
	check(c.Close())
	fmt.Println((<-ended).(*net.OpError).Err == net.ErrClosed)
	for range (runtime.GOMAXPROCS(0)+3)/4 { // the only socket of a driver has two descriptors
		c, err := net.Dial("tcp", os.Args[2])
		check(err)
		defer c.Close()
	}
	var before, after uintptr
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { before = fd })
	}}
	c, err = d.Dial("tcp", os.Args[2])
	check(err)
	raw, err := c.(*net.TCPConn).SyscallConn()
	check(err)
	check(raw.Control(func(fd uintptr) { after = fd }))
	fmt.Println(before == after)
	check(c.Close())
	for _, flags := range []int{0, syscall.O_APPEND} {
		copies(memory(flags))
	}
}

// copies copies from a TCP connection to a file, and from that to a Unix connection.
func copies(f *os.File) {
	c, err := net.Dial("tcp", os.Args[2])
	check(err)
	data := []byte(strings.Repeat(strings.Repeat("x", 9999)+"\n", 3))
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := c.Write(data)
		check(err)
	})
	limited := &io.LimitedReader{R: c, N: 25000}
	n, err := io.Copy(f, limited)
	at, _ := f.Seek(0, io.SeekCurrent)
	fmt.Println(n, limited.N, at, chain(err))
	rest := make([]byte, 5000)
	_, err = io.ReadFull(c, rest)
	check(err)
	wg.Wait()
	check(c.SetReadDeadline(time.Unix(1, 0)))
	n, err = io.Copy(f, c)
	fmt.Println(n, chain(err))
	check(c.Close())
	n, err = f.ReadFrom(c)
	fmt.Println(n, chain(err))

	to, from := unixPair()
	wg.Go(func() {
		got, err := io.ReadAll(from)
		fmt.Println(string(got) == string(data[:25000]), err)
	})
	_, err = f.Seek(0, io.SeekStart)
	check(err)
	n, err = f.WriteTo(to)
	at, _ = f.Seek(0, io.SeekCurrent)
	fmt.Println(n, at, chain(err))
	check(to.Close())
	wg.Wait()
	_, err = f.Seek(0, io.SeekStart)
	check(err)
	n, err = f.WriteTo(to)
	fmt.Println(n, chain(err))
	check(f.Close())
}

// chain tells the types of an error and of those that it wraps.
func chain(err error) string {
	all := []string{fmt.Sprintf("%T", err)}
	for ; errors.Unwrap(err) != nil; err = errors.Unwrap(err) {
		all = append(all, fmt.Sprintf("%T", errors.Unwrap(err)))
	}
	switch err := err.(type) {
	case nil:
		return "nil"
	case *net.OpError, syscall.Errno:
		return strings.Join(all, " ")
	default:
		return strings.Join(all, " ") + " " + err.Error()
	}
}

// memory returns an empty file that has no name.
func memory(flags int) *os.File {
	name := [2]byte{'m'}
	number := map[string]uintptr{"amd64": 319, "arm64": 279}[ARCH]
	fd, _, e := syscall.Syscall(number, uintptr(unsafe.Pointer(&name[0])), 0, 0)
	if e != 0 {
		panic(e)
	}
	_, _, e = syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_SETFL, uintptr(flags))
	if e != 0 {
		panic(e)
	}
	return os.NewFile(fd, "memory")
}

func unixPair() (a, b net.Conn) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	check(err)
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		ends[i], err = net.FileConn(f)
		check(err)
		check(f.Close())
	}
	return ends[0], ends[1]
}

// forbid makes the system calls 425 to 427 fail with EPERM in all threads.
func forbid() {
	type op struct {
		code   uint16
		yes, no uint8
		k      uint32
	}
	ops := []op{{0x20, 0, 0, 0}, {0x15, 2, 0, 425}, {0x15, 1, 0, 426}, {0x15, 0, 1, 427}, {6, 0, 0, 0x50001}, {6, 0, 0, 0x7fff0000}}
	filter := struct {
		n   uint16
		ops *op
	}{uint16(len(ops)), &ops[0]}
	const setNoNewPrivs, all = 38, 1
	number := map[string]uintptr{"amd64": 317, "arm64": 277}[ARCH]
	syscall.AllThreadsSyscall6(syscall.SYS_PRCTL, setNoNewPrivs, 1, 0, 0, 0, 0)
	if _, _, e := syscall.Syscall(number, 1, all, uintptr(unsafe.Pointer(&filter))); e != 0 {
		panic(e)
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
`

// wanted is what program prints with each backend, "off" included, with which it is Go's.
const wanted = "10 true\nreadat FILE: negative offset\nread FILE: file already closed\ntrue\n\"hello\\n\" <nil> 0 true\ntrue\n" +
	"true\n" + // the number of the descriptor
	"25000 0 25000 nil\n" +
	"0 *net.OpError *fs.PathError *poll.DeadlineExceededError i/o timeout\n" + // of splice(2)
	"0 *fs.PathError poll.errNetClosing use of closed network connection\n" + wantedSent +
	"25000 0 25000 nil\n" +
	"0 *net.OpError *net.OpError *poll.DeadlineExceededError i/o timeout\n" + // the file appends
	"0 *net.OpError *net.OpError poll.errNetClosing use of closed network connection\n" + wantedSent

const wantedSent = "25000 25000 nil\ntrue <nil>\n0 *net.OpError poll.errNetClosing use of closed network connection\n"

// builtProgram is program as it was built, with the file that it reads and the server that it asks.
type builtProgram struct{ dir, exe, file, echo string }

// buildProgram builds program with all that the overlay changes, without cgo.
func buildProgram(t *testing.T) builtProgram {
	if testing.Short() {
		t.Skip("compiles the standard library: left out with -short")
	}
	dir, cache := t.TempDir(), t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // other users run the program
		t.Fatal(err)
	}
	t.Setenv("CGO_ENABLED", "0")
	tools, err := Select(dir, cache)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "go.mod"), "module program\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "main.go"), strings.ReplaceAll(program, "ARCH", `"`+tools.GOARCH+`"`))
	p := builtProgram{dir, filepath.Join(dir, "program"), filepath.Join(dir, "data"), echoServer(t)}
	write(t, filepath.Join(dir, "server.go"), server)
	cmd, err := tools.Command(cache, Options{Files: true, Sockets: true}, "build", []string{"-C", dir, "-tags", "mine", "-o", p.exe})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	data := make([]byte, 16000)
	for i := range data {
		data[i] = byte(i % 251)
	}
	write(t, p.file, string(data))
	if out, err := exec.Command("sync", p.file).CombinedOutput(); err != nil { // else its pages stay cached
		t.Fatalf("sync: %v %s", err, out)
	}
	return p
}

// run runs the program with an environment, and returns what it appended to RINGSIDE_LOG.
func (p builtProgram) run(t *testing.T, want string, cmd *exec.Cmd, env ...string) (said string) {
	t.Helper()
	log := filepath.Join(p.dir, "log")
	write(t, log, "")
	if err := os.Chmod(log, 0o666); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(append(os.Environ(), "RINGSIDE_LOG="+log), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if got := strings.ReplaceAll(string(out), p.file, "FILE"); err != nil || got != want {
		t.Errorf("%v: %v, %s, want %s\n%s", cmd, err, out, want, &stderr)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// runBackends runs the program with each backend.
func (p builtProgram) runBackends(t *testing.T) {
	t.Helper()
	for _, backend := range []string{"", "plain", "off"} {
		said := p.run(t, wanted, exec.Command(p.exe, p.file, p.echo), "RINGSIDE_BACKEND="+backend)
		files, sockets := strings.Contains(said, "ufile "), strings.Contains(said, "unet ")
		if files != (backend == "") || sockets != (backend != "off") {
			t.Errorf("backend %q: the log has %q", backend, said)
		}
	}
}

// TestNewest builds the program with the newest Go that the module proxy serves, a release candidate included. If
// a rule has no match there, Versions lacks that release for a reason.
func TestNewest(t *testing.T) {
	if !ringtest.Long() {
		t.Skip("downloads a toolchain and compiles the standard library: only with RINGSIDE_LONG=1")
	}
	t.Setenv("GOWORK", "off")
	list := exec.Command("go", "list", "-m", "-versions", "golang.org/toolchain")
	list.Dir = t.TempDir()
	out, err := list.Output()
	if err != nil {
		t.Skipf("needs the module proxy: %v: %v", list, err)
	}
	newest := ""
	for _, v := range strings.Fields(string(out)) {
		v, _ = strings.CutPrefix(v, "v0.0.1-")
		if v, ok := strings.CutSuffix(v, ".linux-"+runtime.GOARCH); ok && version.Compare(v, newest) > 0 {
			newest = v
		}
	}
	t.Setenv("GOTOOLCHAIN", newest)
	p := buildProgram(t)
	if out, err := exec.Command("go", "version", p.exe).Output(); err != nil || !strings.Contains(string(out), newest) {
		t.Errorf("go version: %v, %s, want %s", err, out, newest)
	}
	p.runBackends(t)
	t.Logf("the overlay fits %s", newest)
}

// TestProgram runs a program with each backend as the only process that uses the sockets' other ends,
// and then where io_uring is forbidden or lacks what it needs.
func TestProgram(t *testing.T) {
	p := buildProgram(t)
	if out, err := exec.Command("go", "version", "-m", p.exe).Output(); err != nil || !strings.Contains(string(out), "-tags=mine,ringside.files.sockets") {
		t.Errorf("go version -m: %v\n%s", err, out)
	}
	p.runBackends(t)
	t.Run("forbidden after the start", func(t *testing.T) {
		ringtest.NeedRing(t)
		said := p.run(t, wanted+"\"kept\\n\" <nil>\n"+wanted, exec.Command(p.exe, p.file, p.echo, "forbid"))
		if strings.Count(said, " io_uring") != 2 {
			t.Errorf("the log has %q", said)
		}
	})
	limits := filepath.Join(p.dir, "limits")
	if out, err := exec.Command("go", "build", "-o", limits, "../testing/seccomp").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, args := range map[string]string{
		"forbidden":             "-errno EPERM",
		"no io_uring":           "-errno ENOSYS",
		"64 descriptors":        "-errno none -nofile 64",
		"64 KiB locked, a user": "-errno none -memlock 65536 -uid 65534",
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(args, "-uid") {
				ringtest.NeedUser(t, 65534)
			}
			said := p.run(t, wanted, exec.Command(limits, append(strings.Fields(args), p.exe, p.file, p.echo)...))
			if plain := !strings.Contains(said, "ufile io_uring"); plain != !strings.Contains(args, "none") {
				t.Errorf("the log has %q", said)
			}
		})
	}
	t.Run("killed", func(t *testing.T) { testKilled(t, p) })
	t.Run("container from scratch", func(t *testing.T) {
		if os.Getuid() != 0 {
			t.Skip("needs root, which may use chroot")
		}
		cmd := exec.Command("/program", "/data", p.echo)
		cmd.SysProcAttr, cmd.Dir = &syscall.SysProcAttr{Chroot: p.dir}, "/"
		p.run(t, strings.ReplaceAll(wanted, "FILE", "/data"), cmd)
	})
}

// echoServer returns the address of a server that answers each line.
func echoServer(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewReader(c); ; {
					line, err := lines.ReadString('\n')
					if err != nil {
						return
					}
					_, _ = c.Write([]byte(line))
				}
			}()
		}
	}()
	return l.Addr().String()
}
