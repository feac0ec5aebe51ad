// SPDX-License-Identifier: MIT

package filter

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// Environment variables that turn the test binary into the child that installs the filter.
const (
	envErrno = "RINGSIDE_TEST_FILTER_ERRNO"
	envUID   = "RINGSIDE_TEST_FILTER_UID"
)

func TestMain(m *testing.M) {
	number, err := strconv.Atoi(os.Getenv(envErrno))
	if err != nil {
		os.Exit(m.Run())
	}
	if err := child(syscall.Errno(number)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child installs the filter while other threads exist, and checks from each
// of them.
func child(want syscall.Errno) error {
	if uid, err := strconv.Atoi(os.Getenv(envUID)); err == nil {
		if err := syscall.Setresuid(uid, uid, uid); err != nil {
			return err
		}
	}
	const threads = 4
	var ready, done sync.WaitGroup
	install := make(chan struct{})
	results := make([]error, threads)
	for i := range threads {
		ready.Add(1)
		done.Go(func() {
			runtime.LockOSThread()
			ready.Done()
			<-install
			results[i] = check(want)
		})
	}
	ready.Wait()
	err := Install(want)
	close(install)
	done.Wait()
	return errors.Join(append(results, err, check(want))...)
}

func check(want syscall.Errno) error {
	var errs []error
	for _, nr := range []uintptr{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER} {
		// Without a filter the errno is EFAULT or EBADF, or that of an outer filter.
		_, _, got := unix.Syscall6(nr, ^uintptr(0), 0, 0, 0, 0, 0)
		if got != want {
			errs = append(errs, fmt.Errorf("system call %d: %v, want %v", nr, got, want))
		}
	}
	if _, err := os.Stat("/"); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func runChild(t *testing.T, env ...string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("child: %v\n%s", err, out)
	}
}

// EXDEV is among the errnos because the kernel never returns it for these calls: it shows
// that the error comes from the filter.
func TestInstall(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EPERM, syscall.ENOSYS, syscall.EACCES, syscall.EXDEV} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			runChild(t, envErrno+"="+strconv.Itoa(int(errno)))
		})
	}
}

func TestInstallUnprivileged(t *testing.T) {
	env := []string{envErrno + "=" + strconv.Itoa(int(syscall.EXDEV))}
	if os.Geteuid() == 0 {
		const nobody = 65534
		ringtest.NeedUser(t, nobody)
		env = append(env, envUID+"="+strconv.Itoa(nobody))
	}
	runChild(t, env...)
}

func TestInstallRejects(t *testing.T) {
	for _, errno := range []syscall.Errno{0, 4096} {
		if err := Install(errno); err == nil {
			t.Errorf("Install(%d) succeeded", uintptr(errno))
		}
	}
}
