// SPDX-License-Identifier: MIT

package unet_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/unet"
)

// TestLiteralsOfNet compiles the code of a program that changes net to unet.
// Promise: unet/code-compiles-net
func TestLiteralsOfNet(t *testing.T) {
	d := unet.Dialer{Timeout: time.Second, KeepAlive: -1}
	lc := unet.ListenConfig{KeepAlive: -1}
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := d.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

// TestFieldsOfNet finds fields of package net's configurations that those of unet lack, and
// fields that are not passed on. It calls every method of the configurations.
// Promise: unet/code-compiles-net
func TestFieldsOfNet(t *testing.T) {
	for _, pair := range [][2]any{
		{net.Dialer{}, unet.Dialer{}},
		{net.ListenConfig{}, unet.ListenConfig{}},
	} {
		theirs, ours := reflect.TypeOf(pair[0]), reflect.TypeOf(pair[1])
		for _, f := range reflect.VisibleFields(theirs) {
			if !f.IsExported() {
				continue
			}
			if g, ok := ours.FieldByName(f.Name); !ok || g.Type != f.Type || len(g.Index) != 1 {
				t.Errorf("%v.%s is not a field of %v with the same type", theirs, f.Name, ours)
			}
		}
		theirs, ours = reflect.PointerTo(theirs), reflect.PointerTo(ours)
		for i := range theirs.NumMethod() {
			if name := theirs.Method(i).Name; !hasMethod(ours, name) {
				t.Errorf("%v.%s is not a method of %v", theirs, name, ours)
			}
		}
	}
}

func hasMethod(t reflect.Type, name string) bool {
	_, ok := t.MethodByName(name)
	return ok
}

// Promise: unet/code-compiles-net
func TestMultipathTCPIsChosen(t *testing.T) {
	var theirs net.Dialer
	var d unet.Dialer
	if d.MultipathTCP() != theirs.MultipathTCP() {
		t.Error("the default of dialing is not that of package net")
	}
	var theirListen net.ListenConfig
	var lc unet.ListenConfig
	if lc.MultipathTCP() != theirListen.MultipathTCP() {
		t.Error("the default of listening is not that of package net")
	}
	for _, use := range []bool{true, false} {
		d.SetMultipathTCP(use)
		lc.SetMultipathTCP(use)
		if d.MultipathTCP() != use || lc.MultipathTCP() != use {
			t.Errorf("multipath TCP %v was requested, got %v and %v", use, d.MultipathTCP(), lc.MultipathTCP())
		}
	}
	d.SetMultipathTCP(true)
	lc.SetMultipathTCP(true)
	d.UserTimeout, lc.UserTimeout = time.Second, time.Second
	if d.MultipathTCP() || lc.MultipathTCP() {
		t.Error("MPTCP with UserTimeout: Linux does not support that")
	}
}

// TestControlIsCalled checks that Control and ControlContext are called as in package net,
// also where unet sets its own socket option.
// Promise: unet/code-compiles-net
func TestControlIsCalled(t *testing.T) {
	l, err := unet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, timeout := range []time.Duration{0, time.Second} {
		if timeout != 0 && runtime.GOOS != "linux" {
			continue
		}
		var called string
		d := unet.Dialer{UserTimeout: timeout, Control: func(string, string, syscall.RawConn) error { called += "Control "; return nil }}
		dialAndClose(t, &d, l)
		d.ControlContext = func(context.Context, string, string, syscall.RawConn) error { called += "ControlContext "; return nil }
		dialAndClose(t, &d, l)
		if called != "Control ControlContext " {
			t.Errorf("UserTimeout %v: called %s", timeout, called)
		}
		called = ""
		lc := unet.ListenConfig{UserTimeout: timeout, Control: func(string, string, syscall.RawConn) error { called += "listen"; return nil }}
		l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		if called != "listen" {
			t.Errorf("UserTimeout %v: ListenConfig called %q", timeout, called)
		}
	}
}

func dialAndClose(t *testing.T, d *unet.Dialer, l net.Listener) {
	t.Helper()
	c, err := d.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

// talks sends a message in each direction between two connections.
func talks(t *testing.T, a, b net.Conn) {
	t.Helper()
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		_ = pair[1].SetReadDeadline(time.Now().Add(patience))
		if _, err := pair[0].Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 8)
		if n, err := pair[1].Read(p); err != nil || string(p[:n]) != "hello" {
			t.Fatalf("read %q, %v", p[:n], err)
		}
	}
}

// TestConcreteTypes calls the functions that return concrete types.
// Promise: unet/functions-return-concrete
func TestConcreteTypes(t *testing.T) {
	loopback := net.IPv4(127, 0, 0, 1)
	t.Run("tcp", func(t *testing.T) {
		l, err := unet.ListenTCP("tcp", &net.TCPAddr{IP: loopback})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		to := l.Addr().(*net.TCPAddr)
		for name, dial := range map[string]func() (*unet.TCPConn, error){
			"DialTCP": func() (*unet.TCPConn, error) { return unet.DialTCP("tcp", nil, to) },
			"Dialer.DialTCP": func() (*unet.TCPConn, error) {
				return new(unet.Dialer).DialTCP(t.Context(), "tcp", netip.AddrPort{}, to.AddrPort())
			},
		} {
			a, err := dial()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			defer a.Close()
			b, err := l.AcceptTCP()
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			talks(t, a, b)
		}
	})
	t.Run("udp", func(t *testing.T) {
		in, err := unet.ListenUDP("udp", &net.UDPAddr{IP: loopback})
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		to := in.LocalAddr().(*net.UDPAddr)
		for name, dial := range map[string]func() (*unet.UDPConn, error){
			"DialUDP": func() (*unet.UDPConn, error) { return unet.DialUDP("udp", nil, to) },
			"Dialer.DialUDP": func() (*unet.UDPConn, error) {
				return new(unet.Dialer).DialUDP(t.Context(), "udp", netip.AddrPort{}, to.AddrPort())
			},
		} {
			out, err := dial()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			defer out.Close()
			answersTo(t, out, in)
		}
	})
	t.Run("unix", func(t *testing.T) {
		name := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"}
		l, err := unet.ListenUnix("unix", name)
		if err != nil {
			t.Skipf("needs Unix sockets: %v", err)
		}
		defer l.Close()
		for what, dial := range map[string]func() (*unet.UnixConn, error){
			"DialUnix": func() (*unet.UnixConn, error) { return unet.DialUnix("unix", nil, name) },
			"Dialer.DialUnix": func() (*unet.UnixConn, error) {
				return new(unet.Dialer).DialUnix(t.Context(), "unix", nil, name)
			},
		} {
			a, err := dial()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			defer a.Close()
			b, err := l.AcceptUnix()
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			talks(t, a, b)
		}
		_ = l.Close()
		if _, err := os.Stat(name.Name); !os.IsNotExist(err) {
			t.Errorf("the listener's file after Close: %v", err)
		}
	})
	t.Run("unixgram", func(t *testing.T) {
		name := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unixgram"}
		in, err := unet.ListenUnixgram("unixgram", name)
		if err != nil {
			t.Skipf("needs Unix datagrams: %v", err)
		}
		defer in.Close()
		out, err := unet.Dial("unixgram", name.Name)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		receives(t, out, in)
		if runtime.GOOS == "linux" {
			if c, err := unet.DialUnix("unixgram", nil, name); err == nil || c != nil {
				t.Errorf("DialUnix of a unixgram socket: %v, %v", c, err)
			}
		}
	})
}

// receives sends a message from out to in and returns the sender.
func receives(t *testing.T, out net.Conn, in net.PacketConn) net.Addr {
	t.Helper()
	_ = in.SetReadDeadline(time.Now().Add(patience))
	if _, err := out.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 8)
	n, from, err := in.ReadFrom(p)
	if err != nil || string(p[:n]) != "hello" {
		t.Fatalf("read %q, %v", p[:n], err)
	}
	return from
}

// answersTo sends a message from out to in, and one back.
func answersTo(t *testing.T, out net.Conn, in net.PacketConn) {
	t.Helper()
	if _, err := in.WriteTo([]byte("answer"), receives(t, out, in)); err != nil {
		t.Fatal(err)
	}
	_ = out.SetReadDeadline(time.Now().Add(patience))
	p := make([]byte, 8)
	if n, err := out.Read(p); err != nil || string(p[:n]) != "answer" {
		t.Fatalf("read %q, %v", p[:n], err)
	}
}

// TestConcreteTypesFailAsNet compares errors with those of package net.
// Promise: unet/functions-return-concrete
func TestConcreteTypesFailAsNet(t *testing.T) {
	far := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	for name, pair := range map[string][2]func() (any, error){
		"DialTCP": {func() (any, error) { return net.DialTCP("udp", nil, far) }, func() (any, error) { return unet.DialTCP("udp", nil, far) }},
		"DialTCP without an address": {func() (any, error) { return net.DialTCP("tcp", nil, nil) },
			func() (any, error) { return unet.DialTCP("tcp", nil, nil) }},
		"DialUDP":   {func() (any, error) { return net.DialUDP("udp", nil, nil) }, func() (any, error) { return unet.DialUDP("udp", nil, nil) }},
		"DialUnix":  {func() (any, error) { return net.DialUnix("tcp", nil, nil) }, func() (any, error) { return unet.DialUnix("tcp", nil, nil) }},
		"ListenTCP": {func() (any, error) { return net.ListenTCP("unix", nil) }, func() (any, error) { return unet.ListenTCP("unix", nil) }},
		"ListenUDP": {func() (any, error) { return net.ListenUDP("tcp", nil) }, func() (any, error) { return unet.ListenUDP("tcp", nil) }},
		"ListenMulticastUDP": {func() (any, error) { return net.ListenMulticastUDP("udp", nil, nil) },
			func() (any, error) { return unet.ListenMulticastUDP("udp", nil, nil) }},
		"ListenUnix":     {func() (any, error) { return net.ListenUnix("tcp", nil) }, func() (any, error) { return unet.ListenUnix("tcp", nil) }},
		"ListenUnixgram": {func() (any, error) { return net.ListenUnixgram("unix", nil) }, func() (any, error) { return unet.ListenUnixgram("unix", nil) }},
		"FileConn":       {func() (any, error) { return net.FileConn(os.Stderr) }, func() (any, error) { return unet.FileConn(os.Stderr) }},
		"FileListener":   {func() (any, error) { return net.FileListener(os.Stderr) }, func() (any, error) { return unet.FileListener(os.Stderr) }},
		"FilePacketConn": {func() (any, error) { return net.FilePacketConn(os.Stderr) }, func() (any, error) { return unet.FilePacketConn(os.Stderr) }},
	} {
		_, theirs := pair[0]()
		c, ours := pair[1]()
		if describe(theirs) != describe(ours) {
			t.Errorf("%s: %s, package net %s", name, describe(ours), describe(theirs))
		}
		if v := reflect.ValueOf(c); c != nil && !v.IsNil() {
			t.Errorf("%s returned a connection and an error", name)
		}
	}
}

// TestConcreteTypesOfNet asks a System that uses package net for types that it cannot
// return.
// Promise: unet/functions-return-concrete
func TestConcreteTypesOfNet(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux, where the types differ from those of package net")
	}
	s := newSystem(t, unet.ModeNet)
	l := listen(t, s, "tcp")
	d := unet.Dialer{System: s}
	c, err := d.DialTCP(t.Context(), "tcp", netip.AddrPort{}, l.Addr().(*net.TCPAddr).AddrPort())
	if c != nil || err == nil || !strings.Contains(err.Error(), "ModeNet was chosen") {
		t.Errorf("%v, %v", c, err)
	}
}

// TestFiles makes connections, listeners and datagram sockets from files.
// Promise: unet/functions-return-concrete
func TestFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs files of sockets, which Windows lacks")
	}
	eachMode(t, func(t *testing.T, s *unet.System) {
		for _, network := range []string{"tcp", "unix"} {
			l := listen(t, s, network)
			f := fileOf(t, l)
			again, err := s.FileListener(f)
			if err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
			if reflect.TypeOf(again) != reflect.TypeOf(l) || again.Addr().String() != l.Addr().String() || again.Addr().Network() != network {
				t.Errorf("%T at %v %v of the file of %T at %v", again, again.Addr().Network(), again.Addr(), l, l.Addr())
			}
			if u, ok := l.(interface{ SetUnlinkOnClose(bool) }); ok {
				u.SetUnlinkOnClose(false)
			}
			_ = l.Close()
			a, err := s.Dial(network, again.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			b, err := again.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			f = fileOf(t, a)
			c, err := s.FileConn(f)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = f.Close()
			if reflect.TypeOf(c) != reflect.TypeOf(a) || c.LocalAddr().Network() != network || c.RemoteAddr().String() != a.RemoteAddr().String() {
				t.Errorf("%T from %v of the file of %T from %v", c, c.RemoteAddr(), a, a.RemoteAddr())
			}
			_ = a.Close()
			talks(t, c, b)
			_ = again.Close()
			if network == "unix" {
				if _, err := os.Stat(again.Addr().String()); err != nil {
					t.Errorf("closing a listener that was made from a file removed the socket's file: %v", err)
				}
			}
		}
		for _, network := range []string{"udp", "unixgram"} {
			name := "127.0.0.1:0"
			if network == "unixgram" {
				name = filepath.Join(t.TempDir(), "s")
			}
			in, err := s.ListenPacket(network, name)
			if err != nil {
				t.Fatal(err)
			}
			f := fileOf(t, in)
			again, err := s.FilePacketConn(f)
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			_, _ = f.Close(), in.Close()
			if reflect.TypeOf(again) != reflect.TypeOf(in) {
				t.Errorf("%T of the file of %T", again, in)
			}
			out, err := s.Dial(network, again.LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			receives(t, out, again)
		}
	})
}

func fileOf(t *testing.T, c any) *os.File {
	t.Helper()
	f, err := c.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// Promise: unet/functions-return-concrete
func TestListenMulticastUDP(t *testing.T) {
	ifi, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skipf("needs the interface lo: %v", err)
	}
	group := &net.UDPAddr{IP: net.IPv4(239, 255, 7, 7)}
	theirs, err := net.ListenMulticastUDP("udp4", ifi, group)
	if err != nil {
		t.Skipf("needs multicast: %v", err)
	}
	defer theirs.Close()
	ours, err := unet.ListenMulticastUDP("udp4", ifi, group)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	to := ours.LocalAddr().(*net.UDPAddr)
	out, err := unet.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: to.Port})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	receives(t, out, ours)
}

// heirEnv makes TestInherited the process that inherits; its value is the way of passing.
const heirEnv = "RINGSIDE_HEIR"

// TestInherited passes a listener and a datagram socket to a new process, as a program that
// restarts itself does and as systemd does.
// Promise: unet/process-takes-descriptors
func TestInherited(t *testing.T) {
	if os.Getenv(heirEnv) != "" {
		inherit(t)
		return
	}
	if runtime.GOOS != "linux" {
		t.Skip("needs the types of Linux")
	}
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("needs the program /bin/sh")
	}
	for _, how := range []string{"PassOn", "PassOn of a process that ends", "systemd", "systemd without names", "another process"} {
		t.Run(how, func(t *testing.T) { passTo(t, how) })
	}
}

func passTo(t *testing.T, how string) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l, err := unet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	in, err := unet.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	files := []unet.NamedFile{{Name: "web", File: fileOf(t, l)}, {Name: "datagrams", File: fileOf(t, in)}}
	args := []string{self, "-test.run=^TestInherited$", "-test.v"}
	var cmd *exec.Cmd
	switch how {
	case "PassOn", "PassOn of a process that ends":
		cmd = exec.CommandContext(ctx, args[0], args[1:]...)
		if err := unet.PassOn(cmd, files...); err != nil {
			t.Fatal(err)
		}
	default: // the shell replaces $$ by its process id, which exec keeps
		pid, names := "$$", "web:datagrams"
		if how == "another process" {
			pid = "1"
		}
		if how == "systemd without names" {
			names = ""
		}
		script := fmt.Sprintf(`LISTEN_PID=%s LISTEN_FDS=2 LISTEN_FDNAMES=%s exec "$0" "$@"`, pid, names)
		cmd = exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", script}, args...)...)
		cmd.ExtraFiles = []*os.File{files[0].File, files[1].File}
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, heirEnv+"="+how)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = l.Close(), in.Close()
	if how != "another process" {
		c, err := unet.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		p := make([]byte, 8)
		if n, err := c.Read(p); err != nil || string(p[:n]) != "heir" {
			t.Errorf("read %q, %v", p[:n], err)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, out.Bytes())
	}
}

// inherit runs in the process that passTo starts.
func inherit(t *testing.T) {
	how := os.Getenv(heirEnv)
	if parent, ok := strings.CutPrefix(how, "child of "); ok {
		for fmt.Sprint(os.Getppid()) == parent {
			time.Sleep(time.Millisecond)
		}
	}
	files, err := unet.Inherited()
	if err != nil {
		t.Fatal(err)
	}
	if how == "PassOn of a process that ends" {
		cmd := exec.Command(os.Args[0], os.Args[1:]...)
		if err := unet.PassOn(cmd, files...); err != nil {
			t.Fatal(err)
		}
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=child of %d", heirEnv, os.Getpid()))
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		os.Exit(0)
	}
	if how == "another process" {
		if len(files) != 0 {
			t.Errorf("took %v, which are for another process", files)
		}
		return
	}
	want := []string{"web", "datagrams"}
	if how == "systemd without names" {
		want = []string{"unknown", "unknown"}
	}
	if len(files) != 2 || files[0].Name != want[0] || files[1].Name != want[1] {
		t.Fatalf("inherited %v", files)
	}
	if env := strings.Join(os.Environ(), " "); strings.Contains(env, "LISTEN_") {
		t.Errorf("the environment still has %s", env)
	}
	if again, err := unet.Inherited(); len(again) != 0 || err != nil {
		t.Errorf("a second call: %v, %v", again, err)
	}
	// A program that the process starts inherits none of the descriptors.
	if out, err := exec.Command("/bin/sh", "-c", "ls -l /proc/self/fd").CombinedOutput(); err != nil || bytes.Contains(out, []byte("socket:")) {
		t.Errorf("another program has sockets: %v\n%s", err, out)
	}
	l, err := unet.FileListener(files[0].File)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	in, err := unet.FilePacketConn(files[1].File)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for _, f := range files {
		_ = f.File.Close()
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("heir")); err != nil {
		t.Fatal(err)
	}
}

// Promise: unet/process-takes-descriptors
func TestPassOnRefuses(t *testing.T) {
	cmd := exec.Command("program")
	for _, name := range []string{"", "a:b"} {
		if err := unet.PassOn(cmd, unet.NamedFile{Name: name, File: os.Stderr}); err == nil {
			t.Errorf("accepted the name %q", name)
		}
		cmd.ExtraFiles = nil
	}
	cmd.ExtraFiles = []*os.File{os.Stderr}
	if err := unet.PassOn(cmd); err == nil {
		t.Error("accepted a command with ExtraFiles")
	}
}

// Promise: unet/process-takes-descriptors
func TestInheritedRefuses(t *testing.T) {
	t.Setenv("LISTEN_FDS", "1")
	t.Setenv("RINGSIDE_LISTEN_FILES", "1") // a file that descriptor 3 is not
	if files, err := unet.Inherited(); len(files) > 0 || err != nil {
		t.Errorf("descriptors of another process: %v, %v", files, err)
	}
	t.Setenv("LISTEN_PID", fmt.Sprint(os.Getpid()))
	for _, n := range []string{"", "x", "-1"} {
		t.Setenv("LISTEN_FDS", n)
		t.Setenv("LISTEN_PID", fmt.Sprint(os.Getpid()))
		if files, err := unet.Inherited(); err == nil {
			t.Errorf("LISTEN_FDS=%q: %v", n, files)
		}
	}
}
