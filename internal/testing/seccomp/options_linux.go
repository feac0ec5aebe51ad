// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// options are the command line.
type options struct {
	errno    syscall.Errno // 0: no filter
	memlock  int64         // bytes; negative: as it is
	nofile   int64         // negative: as it is
	uid      int           // negative: as it is
	loopback bool
	command  []string
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var opt options
	fs := flag.NewFlagSet("seccomp", flag.ContinueOnError)
	fs.SetOutput(stderr)
	name := fs.String("errno", "EPERM", "what the io_uring system calls answer: EPERM, ENOSYS, EACCES or another `name`; none for no filter")
	fs.Int64Var(&opt.memlock, "memlock", -1, "limit of locked memory in `bytes`")
	fs.Int64Var(&opt.nofile, "nofile", -1, "limit of open `files`")
	fs.IntVar(&opt.uid, "uid", -1, "user and group `id` to become")
	fs.BoolVar(&opt.loopback, "loopback", false, "bring up the loopback interface, which is down in a new network namespace")
	if err := fs.Parse(args); err != nil {
		return opt, err
	}
	opt.command = fs.Args()
	err := opt.finish(*name)
	if err != nil {
		fmt.Fprintln(stderr, "seccomp:", err)
	}
	return opt, err
}

func (o *options) finish(errno string) error {
	if errno != "none" {
		if o.errno = errnoByName(errno); o.errno == 0 {
			return fmt.Errorf("-errno %s: no such error", errno)
		}
	}
	if len(o.command) == 0 {
		return errors.New("no command given")
	}
	return nil
}

// errnoByName returns 0 for an unknown name.
func errnoByName(name string) syscall.Errno {
	for e := range syscall.Errno(4096) {
		if unix.ErrnoName(e) == name {
			return e
		}
	}
	return 0
}
