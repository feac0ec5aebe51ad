// SPDX-License-Identifier: MIT

// Command tenants is an HTTP service with one SQLite database for each of its
// tenants: handlers of net/http on a listener of package unet, databases by package
// sqlitevfs/tenants. It includes a load generator to compare VFSes.
//
//	go run ./examples/tenants                             serve on 127.0.0.1:8080
//	go run ./examples/tenants -vfs ringside-log -for 5s   serve, run a load, print the result
//	go run ./examples/tenants -compare                    the default VFS and ringside-log in turn
//	go run ./examples/tenants -dir data -backup saved     serve, and back up each commit to a directory
//	go run ./examples/tenants -dir new -restore saved     serve what the backup has
//
//	curl -d hello 127.0.0.1:8080/tenants/alice/items      store an item: {"id":1}
//	curl 127.0.0.1:8080/tenants/alice/items/1             fetch it
//	curl 127.0.0.1:8080/tenants/alice                     how many there are
//	curl 127.0.0.1:8080/stats                             counters of service and VFS
//
// An item is durable when the answer comes (journal_mode=WAL, synchronous=FULL).
//
// It shows the parts of a multi-tenant service: names from requests that are checked
// before they become paths, bounds for open databases and memory, and an end on a signal
// that lets requests finish and closes the databases. It has no authentication: every
// client that reaches it can create tenants, each of which takes space on the disk.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// options are set by the command line.
type options struct {
	config
	load    load
	restore string
	compare bool
	pairs   int
	stdin   bool
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("tenants: ")
	o, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the next one ends the program at once.
	context.AfterFunc(ctx, stop)
	if err := run(ctx, o, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func parse(args []string, out io.Writer) (o options, err error) {
	f := flag.NewFlagSet("tenants", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.addr, "addr", "127.0.0.1:8080", "where to listen")
	f.StringVar(&o.dir, "dir", "", "`directory` of the databases (default: one in $TMPDIR, else /var/tmp, that is removed at the end; a load makes one below it)")
	f.StringVar(&o.vfs, "vfs", "ringside-log", "the VFS: default, or one of package sqlitevfs")
	f.IntVar(&o.open, "open", 256, "how many databases are open at a time")
	f.StringVar(&o.backup, "backup", "", "back up each commit to this `directory`, which is made if it is missing")
	f.StringVar(&o.restore, "restore", "", "first restore all databases of the backup in this `directory`")
	f.DurationVar(&o.load.span, "for", 0, "put the service, in a process of its own, under load for so long")
	f.BoolVar(&o.compare, "compare", false, "measure the default VFS and -vfs in turn")
	f.IntVar(&o.pairs, "pairs", 5, "how often -compare measures each")
	f.IntVar(&o.load.tenants, "tenants", 64, "tenants under load")
	f.IntVar(&o.load.conns, "conns", 0, "connections that ask, one request at a time each (default: one for each tenant)")
	f.IntVar(&o.load.reads, "reads", 50, "how many requests out of a hundred fetch an item; the others store one")
	f.BoolVar(&o.stdin, "stdin", false, "also end when the standard input does: for the process under load")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if err := o.check(f.NArg()); err != nil {
		fmt.Fprintln(out, "tenants:", err)
		return o, err
	}
	return o, nil
}

// check returns an error for invalid options, and fills in those that depend on others.
func (o *options) check(rest int) error {
	l := &o.load
	if l.conns == 0 {
		l.conns = l.tenants
	}
	if o.compare && l.span == 0 {
		l.span = 3 * time.Second
	}
	switch {
	case rest > 0:
		return errors.New("takes no arguments, only flags")
	case o.open < 1 || o.pairs < 1 || l.tenants < 1 || l.conns < 1:
		return errors.New("-open, -pairs, -tenants and -conns must be at least 1")
	case l.reads < 0 || l.reads > 99:
		return errors.New("-reads must be between 0 and 99")
	case l.span < 0:
		return errors.New("-for must not be negative")
	case o.restore != "" && l.span > 0:
		return errors.New("-restore does not go with -for and -compare, which use new databases")
	}
	return checkVFS(o.vfs)
}

// run serves, measures or compares, as the options ask, until ctx ends.
func run(ctx context.Context, o options, out io.Writer) error {
	switch {
	case o.compare:
		return compare(ctx, o, out)
	case o.load.span > 0:
		r, err := measure(ctx, o)
		if err != nil {
			return err
		}
		return r.print(out, o)
	}
	dir, remove, err := workDir(o.dir)
	if err != nil {
		return err
	}
	defer remove()
	o.dir = dir
	if o.stdin {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
	}
	if o.restore != "" {
		if err := restore(ctx, o.restore, o.dir); err != nil {
			return err
		}
	}
	s, err := listen(o.config)
	if err != nil {
		return err
	}
	log.Print(s)
	fmt.Fprintf(out, "%s%v\n", listening, s.addr())
	return s.run(ctx)
}

// listening is what the service prints before its address.
const listening = "listening on http://"

// workDir returns the given directory, or a new temporary one.
func workDir(dir string) (string, func(), error) {
	if dir != "" {
		return dir, func() {}, os.MkdirAll(dir, 0o700)
	}
	return scratch("")
}

// scratch makes a directory and returns a function that removes it.
func scratch(base string) (string, func(), error) {
	if base == "" {
		base = os.Getenv("TMPDIR")
	}
	if base == "" && runtime.GOOS == "linux" {
		base = "/var/tmp" // /tmp is in memory on many systems
	}
	dir, err := os.MkdirTemp(base, "tenants-")
	if err != nil {
		return "", nil, err
	}
	return dir, func() {
		if err := os.RemoveAll(dir); err != nil {
			log.Print(err)
		}
	}, nil
}
