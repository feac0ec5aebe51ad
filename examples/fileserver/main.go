// SPDX-License-Identifier: MIT

// Command fileserver serves the files below a directory over HTTP, or over TLS that the kernel
// encrypts, so that files are sent by sendfile.
//
//	go run ./examples/fileserver -addr 127.0.0.1:8080 -dir public
//	go run ./examples/fileserver -addr 127.0.0.1:8443 -dir public -cert cert.pem -key key.pem
//
// os.Root keeps each name below the directory, also where a symbolic link leads out.
package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/examples/internal/options"
	"github.com/ringside-io/ringside/unet"
	"github.com/ringside-io/ringside/unet/ktls"
)

const (
	grace = 800 * time.Millisecond // for requests that are in progress at the end
	stall = time.Minute            // how long a client may take no data
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to listen")
	dir := flag.String("dir", ".", "the `directory` whose files are served")
	cert := flag.String("cert", "", "certificate `file` in PEM: serve over TLS")
	key := flag.String("key", "", "its key `file` in PEM")
	options.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := listenAndServe(ctx, *addr, *dir, *cert, *key); err != nil {
		fmt.Fprintln(os.Stderr, "fileserver:", err)
		os.Exit(1)
	}
}

func listenAndServe(ctx context.Context, addr, dir, cert, key string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	l, err := unet.Listen("tcp", addr)
	if err != nil {
		return err
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		l = ktls.NewListener(l, &ktls.Config{TLS: &tls.Config{Certificates: []tls.Certificate{pair}}})
	}
	fmt.Fprintf(os.Stderr, "listening on %v\n", l.Addr())
	return serve(ctx, l, root)
}

// serve runs until the context ends, and lets requests finish.
func serve(ctx context.Context, l net.Listener, root *os.Root) error {
	handler := http.FileServer(files{root})
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(patient{w}, r) }),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	ended := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		err := server.Shutdown(last)
		if errors.Is(err, context.DeadlineExceeded) { // slower clients are cut off
			err = server.Close()
		}
		ended <- err
	})
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-ended
}

// patient disconnects clients that take no data for a while: each MiB gets a deadline of its own. A
// deadline for the whole response would cut off clients that are only slow.
type patient struct{ http.ResponseWriter }

// Unwrap is for http.ResponseController.
func (w patient) Unwrap() http.ResponseWriter { return w.ResponseWriter }
func (w patient) Write(p []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(p)
}

// ReadFrom implements io.ReaderFrom. net/http passes the file in an io.LimitedReader, and the socket
// sends it by sendfile.
func (w patient) ReadFrom(src io.Reader) (n int64, err error) {
	all, ok := src.(*io.LimitedReader)
	to, sends := w.ResponseWriter.(io.ReaderFrom)
	if !ok || !sends {
		return io.Copy(struct{ io.Writer }{w}, src)
	}
	for all.N > 0 && err == nil {
		w.extend()
		var part int64
		part, err = to.ReadFrom(&io.LimitedReader{R: all.R, N: min(all.N, 1<<20)})
		n, all.N = n+part, all.N-part
		if part == 0 {
			break // the file has become shorter
		}
	}
	return n, err
}

func (w patient) extend() { _ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(stall)) }

// files are the regular files and directories below a root. Names that begin with a dot are hidden.
type files struct{ root *os.Root }

// Open implements http.FileSystem. The file is an *os.File, which can be sent by sendfile: those of
// http.FS are hidden from the socket.
func (f files) Open(name string) (http.File, error) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if strings.HasPrefix(name, ".") || strings.Contains(name, "/.") {
		return nil, fs.ErrNotExist
	}
	file, err := f.root.OpenFile(cmp.Or(name, "."), os.O_RDONLY|syscall.O_NONBLOCK, 0) // no FIFO blocks
	if err != nil {
		return nil, err
	}
	if st, err := file.Stat(); err != nil || !st.IsDir() && !st.Mode().IsRegular() {
		return nil, errors.Join(fs.ErrNotExist, err, file.Close())
	}
	return file, nil
}
