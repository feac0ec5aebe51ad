// SPDX-License-Identifier: MIT

// Command cat writes files to standard output, one after the other.
//
//	go run ./examples/cat README.md LICENSE
//	go run ./examples/cat -direct big.bin | sha256sum
//
// It shows ufile.Reader, which keeps the next blocks in flight while the last one is
// being written. With -direct the reads bypass the page cache, so that a backup does not
// evict the data of other programs. A signal ends it with code 130.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/ufile"
)

const (
	interrupted = 130                    // the exit code after a signal
	grace       = 500 * time.Millisecond // for an orderly end
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { // a write may wait forever for a reader
		time.AfterFunc(grace, func() { os.Exit(interrupted) })
	})
	err := run(ctx, os.Args[1:], os.Stdout)
	if ctx.Err() != nil {
		os.Exit(interrupted)
	}
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "cat:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("cat", flag.ContinueOnError)
	direct := flags.Bool("direct", false, "read past the page cache")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("name a file, as in: cat [-direct] FILE")
	}
	var failed error
	for _, name := range flags.Args() {
		if err := cat(ctx, name, *direct, out); err != nil {
			failed = errors.Join(failed, err) // as cat does: the other files are still written
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return failed
}

func cat(ctx context.Context, name string, direct bool, out io.Writer) error {
	f, err := open(name, direct)
	if err != nil {
		return err
	}
	defer f.Close()
	r := ufile.NewReader(f, ufile.ReaderOptions{Blocks: 8})
	defer r.Close()
	_, err = io.Copy(out, &interruptible{ctx, r})
	return err
}

// interruptible stops between two reads when the context ends.
type interruptible struct {
	ctx context.Context
	r   io.Reader
}

func (i *interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.r.Read(p)
}
