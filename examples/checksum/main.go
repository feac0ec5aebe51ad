// SPDX-License-Identifier: MIT

// Command checksum prints the SHA-256 of each file below a directory, as sha256sum does.
//
//	go run ./examples/checksum -j 64 /srv/data > SUMS
//	cd /srv/data && sha256sum --check SUMS
//
// It shows ufile.Root, which opens only files below one directory, also through links,
// and reads of many files at once: -j goroutines wait for the disk without a thread for
// each. Lines are in the order of the names. A signal ends it with code 130.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"sync"
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
		fmt.Fprintln(os.Stderr, "checksum:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("checksum", flag.ContinueOnError)
	jobs := flags.Int("j", 32, "how many files are read at once")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || *jobs < 1 {
		return fmt.Errorf("usage: checksum [-j N] DIRECTORY")
	}
	root, err := ufile.OpenRoot(flags.Arg(0))
	if err != nil {
		return err
	}
	defer root.Close()
	return sums(ctx, root.FS(), *jobs, out)
}

// job is a file whose sum is awaited.
type job struct {
	name string
	done chan struct{}
	sum  []byte
	err  error
}

// sums prints the sums of all regular files in order. Several files are read at a time.
func sums(ctx context.Context, tree fs.FS, readers int, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	work, order := make(chan *job), make(chan *job, 4*readers)
	for range readers {
		wg.Go(func() {
			for j := range work {
				j.sum, j.err = sum(ctx, tree, j.name)
				close(j.done)
			}
		})
	}
	var walked error
	wg.Go(func() {
		defer close(order)
		defer close(work)
		walked = walk(ctx, tree, work, order)
	})
	for j := range order {
		<-j.done
		if j.err != nil {
			return fmt.Errorf("%s: %w", j.name, j.err)
		}
		if _, err := io.WriteString(out, line(j.sum, j.name)); err != nil {
			return err
		}
	}
	return walked // order is closed after walked was set
}

// escapes are how sha256sum writes characters that would end a line, and the backslash.
var escapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`)

// line returns the line of a file. A backslash before it says that the name is escaped.
func line(sum []byte, name string) string {
	escaped := escapes.Replace(name)
	mark := ""
	if escaped != name {
		mark = `\`
	}
	return mark + hex.EncodeToString(sum) + "  " + escaped + "\n"
}

// walk sends each file to the printer and then to the readers.
func walk(ctx context.Context, tree fs.FS, work, order chan<- *job) error {
	return fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		j := &job{name: name, done: make(chan struct{})}
		for _, to := range []chan<- *job{order, work} {
			select {
			case to <- j:
			case <-ctx.Done():
				if to == work { // it is in order already
					j.err = ctx.Err()
					close(j.done)
				}
				return ctx.Err()
			}
		}
		return nil
	})
}

func sum(ctx context.Context, tree fs.FS, name string) ([]byte, error) {
	f, err := tree.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	p := make([]byte, 256<<10)
	for ctx.Err() == nil {
		n, err := f.Read(p)
		h.Write(p[:n])
		if err == io.EOF {
			return h.Sum(nil), nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, ctx.Err()
}
