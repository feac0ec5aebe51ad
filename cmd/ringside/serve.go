// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringside-io/ringside/cmd/internal/fileserver"
	"github.com/ringside-io/ringside/ufile"
	"github.com/ringside-io/ringside/unet"
	"github.com/ringside-io/ringside/unet/ktls"
)

const serveLong = `serve serves the files below a directory over HTTP until it is interrupted. Package ufile reads the files, and
unet sends them. serve supports ranges and conditional requests. To clients that accept gzip it sends compressed
files where that saves bytes: NAME.gz for NAME, if it is not older, or a copy that it compresses once and keeps in
memory.

No file outside of the directory is served: not through "..", not through symbolic links that lead out of
it, not through a race. Symbolic links that stay inside are followed. Names that begin with a dot are not
served, except .well-known. For a directory its index.html is served, otherwise nothing; --list shows its
files. After a directory was renamed or a symbolic link changed, files may still come from the old place for
up to a second. A changed, replaced or removed file is noticed at once.

Without --addr only this machine can connect. With --cert and --key the server uses TLS, and HTTP/2 with
clients that support it. With --ktls auto the kernel encrypts what is sent if it has TLS (modprobe tls) and the
client uses TLS 1.3 with AES-GCM; otherwise the server encrypts. With --ktls on other clients are refused. With
either the server offers HTTP/1.1 only. The header of a request may be 16 KiB long and take 10 seconds. A client
that takes no data for a minute is disconnected. After the first interrupt or SIGTERM the server accepts no more
requests, and requests in progress have --grace to finish.

Where io_uring cannot be used the server uses plain system calls, and prints that.`

// serveFlags are the flags of "ringside serve".
type serveFlags struct {
	addr, cert, key, accessLog, ktls string
	grace                            time.Duration
	json                             bool
	opts                             fileserver.Options
}

// newServeCmd returns "ringside serve".
func newServeCmd() *cobra.Command {
	var flags serveFlags
	cmd := &cobra.Command{
		Use:   "serve DIR",
		Short: "Serve the files below a directory over HTTP",
		Long:  serveLong,
		Example: "  ringside serve public                       # http://127.0.0.1:8080/\n" +
			"  ringside serve public --addr :80 --list --access-log -\n" +
			"  ringside serve public --addr :443 --cert cert.pem --key key.pem",
		Args: takes(1, "one directory", "name the one to serve"),
		RunE: func(cmd *cobra.Command, args []string) error { return runServe(cmd, args[0], flags) },
	}
	f := cmd.Flags()
	f.StringVar(&flags.addr, "addr", "127.0.0.1:8080", "listen on this `address`; port 0 lets the system choose")
	f.StringVar(&flags.cert, "cert", "", "speak TLS with the certificate in this PEM `file`")
	f.StringVar(&flags.key, "key", "", "the certificate's key, a PEM `file`")
	f.StringVar(&flags.ktls, "ktls", "off", "let the kernel encrypt: `auto`, on or off; HTTP/1.1 only, unless off")
	f.BoolVar(&flags.opts.List, "list", false, "list directories without index.html")
	f.BoolVar(&flags.opts.Dotfiles, "dotfiles", false, "serve names that begin with a dot too")
	f.BoolVar(&flags.opts.NoGzip, "no-gzip", false, "send files as they are")
	f.StringVar(&flags.accessLog, "access-log", "", "append a line for each request to this `file`, - for standard output")
	f.DurationVar(&flags.grace, "grace", 900*time.Millisecond, "how long requests in progress may take after an interrupt")
	f.BoolVar(&flags.json, "json", false, "print the directory and the address as JSON")
	return cmd
}

// serving describes the running server.
type serving struct {
	Dir           string `json:"dir"`
	URL           string `json:"url"`
	Addr          string `json:"addr"`
	Sockets       string `json:"sockets"`
	SocketsReason string `json:"sockets_reason,omitempty"`
	TLS           string `json:"tls,omitempty"`
	TLSReason     string `json:"tls_reason,omitempty"`
	Files         string `json:"files"`
	FilesReason   string `json:"files_reason,omitempty"`
}

func runServe(cmd *cobra.Command, dir string, flags serveFlags) (err error) {
	if flags.grace < 0 {
		return usagef("--grace %v: must not be negative", flags.grace)
	}
	certificates, err := flags.certificates()
	if err != nil {
		return err
	}
	if err := flags.checkKTLS(); err != nil {
		return err
	}
	files, err := fileserver.Open(dir, flags.opts)
	if err != nil {
		return fmt.Errorf("%w: name a directory that can be read", err)
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	var handler http.Handler = files
	if flags.accessLog != "" {
		out, closeLog, err := flags.openLog(cmd.OutOrStdout())
		if err != nil {
			return err
		}
		defer closeLog()
		handler = fileserver.AccessLog(files, out)
	}
	ln, err := unet.Listen("tcp", flags.addr)
	if err != nil {
		return fmt.Errorf("--addr %s: %w%s", flags.addr, err, listenHint(err))
	}
	fileserver.TuneGC()
	if err := flags.announce(cmd.OutOrStdout(), dir, ln.Addr()); err != nil {
		return errors.Join(err, ln.Close())
	}
	srv := fileserver.NewServer(handler, log.New(cmd.ErrOrStderr(), "ringside: ", 0))
	serve := func() error { return srv.Serve(ln, certificates...) }
	if flags.ktls != "off" {
		serve = func() error { return srv.ServeKTLS(ln, flags.ktls == "on", certificates...) }
	}
	return serveUntil(cmd.Context(), srv, serve, flags.grace)
}

// serveUntil serves until ctx ends. Then it shuts down within the grace period.
func serveUntil(ctx context.Context, srv *fileserver.Server, serve func() error, grace time.Duration) error {
	served := make(chan error, 1)
	go func() { served <- serve() }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := srv.Shutdown(late)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("clients were cut off after %v (--grace)", grace)
	}
	return errors.Join(err, <-served)
}

// certificates loads the certificate, if the flags name one.
func (f *serveFlags) certificates() ([]tls.Certificate, error) {
	switch {
	case f.cert == "" && f.key == "":
		return nil, nil
	case f.key == "":
		return nil, usagef("--cert %s: has no key: name its file with --key", f.cert)
	case f.cert == "":
		return nil, usagef("--key %s: has no certificate: name its file with --cert", f.key)
	}
	c, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("--cert and --key: %w", err)
	}
	return []tls.Certificate{c}, nil
}

// checkKTLS returns an error if --ktls has another value, or asks for what is not there.
func (f *serveFlags) checkKTLS() error {
	switch f.ktls {
	case "off":
		return nil
	case "auto", "on":
	default:
		return usagef("--ktls %q: must be auto, on or off", f.ktls)
	}
	if f.cert == "" {
		return usagef("--ktls %s: needs TLS: name a certificate with --cert and --key", f.ktls)
	}
	if name, reason := ktls.Backend(); f.ktls == "on" && name != "kernel" {
		return fmt.Errorf("--ktls on: %s; --ktls auto encrypts without the kernel", reason)
	}
	return nil
}

// openLog opens the access log.
func (f *serveFlags) openLog(stdout io.Writer) (io.Writer, func(), error) {
	if f.accessLog == "-" {
		return stdout, func() {}, nil
	}
	file, err := os.OpenFile(f.accessLog, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return nil, nil, fmt.Errorf("--access-log: %w", err)
	}
	return file, func() { _ = file.Close() }, nil
}

// announce prints the server's address and its backends.
func (f *serveFlags) announce(out io.Writer, dir string, addr net.Addr) error {
	s := serving{Dir: dir, Addr: addr.String(), URL: serveURL(addr, f.cert != "")}
	s.Sockets, s.SocketsReason = unet.Backend()
	s.Files, s.FilesReason = ufile.Backend()
	if f.ktls != "off" {
		s.TLS, s.TLSReason = ktls.Backend()
	}
	if f.json {
		return json.NewEncoder(out).Encode(s)
	}
	text := fmt.Sprintf("%s is served on %s\nsockets: %s\nfiles: %s\n", s.Dir, s.URL,
		because(s.Sockets, s.SocketsReason), because(s.Files, s.FilesReason))
	if s.TLS != "" {
		text += fmt.Sprintf("tls: %s\n", because(s.TLS, s.TLSReason))
	}
	_, err := io.WriteString(out, text)
	return err
}

func because(name, reason string) string {
	if reason == "" {
		return name
	}
	return name + ", because " + reason
}

// serveURL returns the URL of the server for a browser on this machine.
func serveURL(addr net.Addr, secure bool) string {
	scheme := "http"
	if secure {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "localhost"
	}
	return fmt.Sprintf("%s://%s/", scheme, net.JoinHostPort(cmp.Or(host, "localhost"), port))
}

// listenHint returns the remedy if listening on an address failed.
func listenHint(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return ": choose another port, or 127.0.0.1:0 for any"
	case errors.Is(err, syscall.EACCES):
		return ": ports below 1024 take privileges, choose another one"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return ": name an address of this machine"
	}
	return ": want HOST:PORT, such as 127.0.0.1:8080 or :80"
}
