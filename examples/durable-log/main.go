// SPDX-License-Identifier: MIT

// Command durable-log stores lines. It reads them from standard input and prints the number
// of each line when it is durable.
//
//	seq 1000 | go run ./examples/durable-log -j 64 /var/tmp/lines
//	go run ./examples/durable-log -print /var/tmp/lines
//
// It shows appendlog.Log: -j goroutines append, and one sync makes the records of all
// waiting goroutines durable. Kill it at any time: every printed record is found again. A
// signal ends it with code 130.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/appendlog"
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
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	if ctx.Err() != nil {
		os.Exit(interrupted)
	}
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "durable-log:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("durable-log", flag.ContinueOnError)
	jobs := flags.Int("j", 16, "how many lines are on their way at once")
	show := flags.Bool("print", false, "print the lines that are kept")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || *jobs < 1 {
		return errors.New("usage: durable-log [-j N] [-print] DIRECTORY")
	}
	if *show {
		return printAll(flags.Arg(0), out)
	}
	l, err := appendlog.Open(flags.Arg(0), appendlog.Options{})
	if err != nil {
		return err
	}
	return errors.Join(keep(ctx, l, *jobs, in, out), l.Close())
}

// keep appends the lines of in, several at a time, until they end or the context does.
func keep(ctx context.Context, l *appendlog.Log, jobs int, in io.Reader, out io.Writer) error {
	lines := make(chan []byte)
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex // guards the variables below
		first error
	)
	for range jobs {
		wg.Go(func() {
			for line := range next(ctx, lines) {
				at, err := l.Append(line)
				mu.Lock()
				if err == nil {
					_, err = fmt.Fprintln(out, at.Seq)
				}
				if first == nil {
					first = err
				}
				mu.Unlock()
			}
		})
	}
	read := make(chan error, 1)
	go func() { // keep does not wait for it: a read from a terminal or pipe may never end
		defer close(lines)
		read <- split(ctx, in, lines)
	}()
	wg.Wait()
	select {
	case err := <-read:
		return errors.Join(first, err)
	default: // the context has ended
		return first
	}
}

// next yields lines until there are no more or the context ends.
func next(ctx context.Context, lines <-chan []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for {
			select {
			case line, ok := <-lines:
				if !ok || !yield(line) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// split sends the lines of in.
func split(ctx context.Context, in io.Reader, lines chan<- []byte) error {
	scanner := bufio.NewScanner(in)
	for scanner.Scan() {
		select {
		case lines <- []byte(scanner.Text()):
		case <-ctx.Done():
			return nil
		}
	}
	return scanner.Err()
}

func printAll(dir string, out io.Writer) error {
	for r, err := range appendlog.Read(dir, appendlog.ReadOptions{}) {
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%d %s\n", r.Seq, r.Data); err != nil {
			return err
		}
	}
	return nil
}
