// SPDX-License-Identifier: MIT

package limits

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/ufile"
	"github.com/ringside-io/ringside/unet"
	"github.com/ringside-io/ringside/unet/event"
)

// heldAfterDeath are the resources that a process holds when it dies. take takes one in the
// process with a backend, and again returns whether it is free for the next process. Names of Unix
// sockets are abstract: a path in the file system stays, with every backend and with package net.
var heldAfterDeath = []struct {
	name     string
	network  string // "" for a file
	ring     bool   // a ring holds it, with ModeRing
	backends []features.Mode
	take     func(mode features.Mode, network, name string) error
	again    func(network, name string) error
}{
	{"flock", "", true, filesModes, takeFlock, againLock(func(f *ufile.File) (bool, error) { return f.TryFlock(ufile.LockExclusive) })},
	{"OFD lock", "", true, filesModes, takeRange, againLock(func(f *ufile.File) (bool, error) { return f.TryLockRange(ufile.LockExclusive, 0, 0) })},
	{"unet", "tcp", false, filesModes, takeListener, againListen},
	{"unet Unix", "unix", false, filesModes, takeListener, againListen},
	{"unet UDP", "udp", false, filesModes, takePackets, againPackets},
	{"unet unixgram", "unixgram", false, filesModes, takePackets, againPackets},
	{"event", "tcp", true, eventModes, takeServer, againListen},
	{"event Unix", "unix", true, eventModes, takeServer, againListen},
	{"event UDP", "udp", true, eventModes, takeServerPackets, againPackets},
	{"event unixgram", "unixgram", true, eventModes, takeServerPackets, againPackets},
	{"event with connections of Enroll", "tcp", false, eventModes, takeEnrolled, againListen},
}

var (
	filesModes = []features.Mode{features.ModeRing, features.ModePlain}
	eventModes = []features.Mode{features.ModeRing, features.ModeEpoll, features.ModeNet}
)

// kept keeps what a child has taken.
var kept []any

func takeFlock(mode features.Mode, _, name string) error {
	return takeFile(mode, name, func(f *ufile.File) error { return f.Flock(ufile.LockExclusive) })
}

func takeRange(mode features.Mode, _, name string) error {
	return takeFile(mode, name, func(f *ufile.File) error { return f.LockRange(ufile.LockExclusive, 0, 0) })
}

// takeFile locks a file and reads it all the time.
func takeFile(mode features.Mode, name string, lock func(*ufile.File) error) error {
	s, err := ufile.NewSystem(ufile.Options{Mode: mode})
	if err != nil {
		return err
	}
	f, err := s.OpenFile(name, os.O_RDWR|syscall.O_DIRECT, 0)
	if errors.Is(err, syscall.EINVAL) { // a tmpfs before Linux 6.6
		f, err = s.OpenFile(name, os.O_RDWR, 0)
	}
	if err != nil {
		return err
	}
	kept = append(kept, f)
	for i := range int64(8) {
		go func() {
			for p := ufile.AlignedBuffer(4096); ; {
				if _, err := f.ReadAt(p, i*4096); err != nil {
					return
				}
			}
		}()
	}
	return lock(f)
}

func againLock(try func(*ufile.File) (bool, error)) func(network, name string) error {
	return func(_, name string) error {
		f, err := ufile.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		if ok, err := try(f); !ok {
			return errors.Join(errors.New("locked"), err)
		}
		return nil
	}
}

func takeListener(mode features.Mode, network, name string) error {
	s, err := unet.NewSystem(unet.Options{Mode: mode})
	if err != nil {
		return err
	}
	l, err := s.Listen(network, name)
	kept = append(kept, l)
	if err == nil {
		go func() { _, _ = l.Accept() }()
	}
	return err
}

func takePackets(mode features.Mode, network, name string) error {
	s, err := unet.NewSystem(unet.Options{Mode: mode})
	if err != nil {
		return err
	}
	pc, err := s.ListenPacket(network, name)
	kept = append(kept, pc)
	if err == nil {
		go func() { _, _, _ = pc.ReadFrom(make([]byte, 1)) }()
	}
	return err
}

func takeServer(mode features.Mode, network, name string) error {
	s, err := event.Listen(network, name, event.Handler{}, event.Options{Mode: mode, Loops: 1})
	kept = append(kept, s)
	return err
}

func takeServerPackets(mode features.Mode, network, name string) error {
	s, err := event.New(nil, event.Handler{}, event.Options{Mode: mode, Loops: 1})
	if err != nil {
		return err
	}
	pc, err := s.ListenPacket(network, name, event.PacketHandler{})
	kept = append(kept, s, pc)
	return err
}

// takeEnrolled accepts with package net. The server has the connections.
func takeEnrolled(mode features.Mode, network, name string) error {
	s, err := event.New(nil, event.Handler{}, event.Options{Mode: mode, Loops: 1})
	if err != nil {
		return err
	}
	l, err := net.Listen(network, name)
	if err != nil {
		return err
	}
	client, err := net.Dial(network, name)
	if err != nil {
		return err
	}
	c, err := l.Accept()
	if err == nil {
		_, err = s.Enroll(c, event.ConnOptions{})
	}
	kept = append(kept, s, l, client)
	return err
}

func againListen(network, name string) error {
	l, err := net.Listen(network, name)
	if err == nil {
		err = l.Close()
	}
	return err
}

func againPackets(network, name string) error {
	pc, err := net.ListenPacket(network, name)
	if err == nil {
		err = pc.Close()
	}
	return err
}

const heldEnv = "RINGSIDE_TEST_HELD"

// TestHeldAfterDeath ends processes that hold locks and listeners, by SIGKILL and by an exit
// without Close. What no ring holds is free when the process has been waited for, and the rest
// soon afterwards.
// Promise: unet/event/held-after-death
func TestHeldAfterDeath(t *testing.T) {
	if held := os.Getenv(heldEnv); held != "" {
		holdUntilDeath(t, strings.Split(held, ","))
	}
	for i, r := range heldAfterDeath {
		for _, mode := range r.backends {
			if mode == features.ModeRing {
				if err := features.HaveIOURing(); err != nil {
					continue
				}
			}
			for _, kill := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%v/kill=%v", r.name, mode, kill), func(t *testing.T) {
					var longest time.Duration
					for range ringtest.Rounds(4, 1) {
						longest = max(longest, deathOf(t, i, mode, kill))
					}
					t.Logf("held for %v", longest)
				})
			}
		}
	}
}

func holdUntilDeath(t *testing.T, held []string) {
	var i, mode int
	if _, err := fmt.Sscan(held[0]+" "+held[1], &i, &mode); err != nil {
		t.Fatal(err)
	}
	if err := heldAfterDeath[i].take(features.Mode(mode), heldAfterDeath[i].network, held[2]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// deathOf returns how long a resource was held after its process had been waited for.
func deathOf(t *testing.T, i int, mode features.Mode, kill bool) time.Duration {
	t.Helper()
	r := heldAfterDeath[i]
	name := ""
	switch r.network {
	case "":
		name = filepath.Join(directory(t), "file")
		if err := os.WriteFile(name, make([]byte, 64<<10), 0o600); err != nil {
			t.Fatal(err)
		}
	case "unix", "unixgram":
		name = fmt.Sprintf("@ringside-%d-%d-%v", os.Getpid(), i, mode)
	default:
		name = ringtest.FreeAddresses(t, ringtest.OwnHost(), 1)[0]
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestHeldAfterDeath$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d,%d,%s", heldEnv, i, mode, name))
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the process says %q", line)
	}
	if err := r.again(r.network, name); err == nil {
		t.Error("it is free while its process lives")
	}
	if in.Close(); kill {
		_ = cmd.Process.Kill()
	}
	_ = cmd.Wait()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		err := r.again(r.network, name)
		switch held := time.Since(start); {
		case err == nil:
			return held
		case mode != features.ModeRing || !r.ring:
			t.Fatalf("held although no ring has it: %v", err)
		case held > ringtest.Patience:
			t.Fatalf("held for %v: %v", held, err)
		}
	}
}
