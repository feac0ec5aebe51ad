// SPDX-License-Identifier: MIT

// Command upload stores files that clients send. The bytes do not pass through the
// process: the kernel moves them from the socket to the file by splice.
//
//	go run ./examples/upload -addr 127.0.0.1:7788 -dir /var/tmp/inbox
//	{ printf 'report.pdf %s\n' "$(stat -c %s report.pdf)"; cat report.pdf; } | nc -N 127.0.0.1 7788
//
// A request is a line with name and length, then the content. The answer is a line,
// "kept", when the file and its name are durable, or the reason for a refusal. It shows
// operations of package reactor on a connection's descriptor, a Root that confines all paths,
// and files that appear whole or not at all. Without io_uring it copies the bytes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/ringside-io/ringside/examples/internal/accept"
	"github.com/ringside-io/ringside/examples/internal/options"
	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/unet"
	"github.com/ringside-io/ringside/uring"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:7788", "where to listen")
	dir := flag.String("dir", "inbox", "`directory` that takes the files")
	most := flag.Int64("max", 1<<30, "the longest file in bytes")
	options.Parse()
	options.Require(*most >= 0, "-max %d: must not be negative", *most)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := listenAndServe(ctx, *addr, *dir, *most); err != nil {
		fmt.Fprintln(os.Stderr, "upload:", err)
		os.Exit(1)
	}
}

func listenAndServe(ctx context.Context, addr, dir string, most int64) error {
	l, err := unet.Listen("tcp", addr)
	if err != nil {
		return err
	}
	in, err := openInbox(dir, most)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	fmt.Fprintf(os.Stderr, "listening on %v, %s\n", l.Addr(), in.how())
	return errors.Join(serve(ctx, l, in), in.close())
}

// newReactor returns rings that are restricted to splice, or nil and the reason.
func newReactor() (*reactor.Reactor, error) {
	if err := features.HaveIOURing(); err != nil {
		return nil, err
	}
	return reactor.New(reactor.Options{Loops: 1, Restrict: []uring.Op{uring.OpSplice}})
}

// serve accepts uploads until the context ends. It then aborts unfinished uploads, which
// leave no file.
func serve(ctx context.Context, l net.Listener, in *inbox) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = c.Close()
			}
			return nil
		}
		if accept.Retry(ctx, err) {
			continue
		}
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer c.Close()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			in.take(c)
		})
	}
}
