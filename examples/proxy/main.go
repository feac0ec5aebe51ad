// SPDX-License-Identifier: MIT

// Command proxy forwards TCP connections to backends.
//
//	go build ./examples/proxy
//	./proxy -addr 127.0.0.1:8443 -backends 127.0.0.1:8080,127.0.0.1:8081 -metrics 127.0.0.1:9090
//	curl http://127.0.0.1:9090/debug/vars
//	kill -HUP PID    # the proxy prints its PID; a new process of ./proxy takes over
//
// For TLS on this machine, with a certificate for a test:
//
//	openssl req -x509 -newkey rsa:2048 -nodes -days 30 -keyout key.pem -out cert.pem \
//		-subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1
//	./proxy -backends 127.0.0.1:8080 -cert cert.pem -key key.pem
//	curl --cacert cert.pem https://localhost:8443/
//
// A connection goes to the backend with the fewest connections among those that are up.
// The proxy checks backends by connecting to them, which the kernel answers even if the
// process is stopped; with -check PATH it also sends an HTTP request, which must get a
// status of 2xx or 3xx within -timeout. A backend that refuses a connection is down at
// once, and the connection goes to another. New connections go to a backend that is down
// only if all are. Between two TCP sockets the data stays in the kernel (splice). With -callbacks the loops of
// unet/event forward instead of goroutines, which takes less processor time for small messages. With
// -cert and -key the clients use TLS and the backends do not.
//
// On SIGHUP a new process inherits the listeners; the old process serves its connections
// until they end, for -drain at most. On SIGINT and SIGTERM the connections are closed
// after a short time.
package main

import (
	"crypto/tls"
	"errors"
	"expvar"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/ringside-io/ringside/examples/internal/handover"
	"github.com/ringside-io/ringside/examples/internal/options"
	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/unet"
)

// grace is the time that connections have to finish at the end.
const grace = 500 * time.Millisecond

type config struct {
	addr, backends, metrics  string
	check                    string
	cert, key                string
	mode                     features.Mode
	callbacks                bool
	interval, timeout, drain time.Duration
}

func main() {
	var c config
	flag.StringVar(&c.addr, "addr", "127.0.0.1:8443", "where clients connect, unless the listener is inherited")
	flag.StringVar(&c.backends, "backends", "", "addresses of the backends, with commas between them")
	flag.StringVar(&c.metrics, "metrics", "", "where /debug/vars and /healthy are served; none if empty")
	flag.StringVar(&c.check, "check", "", "`path` of the HTTP request that checks a backend, such as /healthy; without it the proxy only connects")
	flag.StringVar(&c.cert, "cert", "", "certificate `file` in PEM: the clients speak TLS")
	flag.StringVar(&c.key, "key", "", "its key `file` in PEM")
	flag.DurationVar(&c.interval, "interval", 2*time.Second, "time between two checks of a backend")
	flag.DurationVar(&c.timeout, "timeout", time.Second, "for connecting to a backend, and for the answer to -check")
	flag.DurationVar(&c.drain, "drain", time.Minute, "how long connections go on after a restart")
	flag.Func("mode", "auto, io_uring, plain or net (default auto)", func(name string) (err error) {
		c.mode, err = features.ParseMode(name)
		return err
	})
	flag.BoolVar(&c.callbacks, "callbacks", false, "serve the connections by callbacks: less processor time for small messages, no splice, no TLS")
	options.Parse()
	if err := run(&c); err != nil {
		fmt.Fprintln(os.Stderr, "proxy:", err)
		os.Exit(1)
	}
}

func run(c *config) error {
	if err := c.valid(); err != nil {
		return err
	}
	process, err := handover.New()
	if err != nil {
		return err
	}
	p, err := c.proxy()
	if err != nil {
		return err
	}
	l, err := process.Listen(p.dialer.System, "clients", c.addr)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	stopMetrics := func() error { return nil }
	if c.metrics != "" {
		m, err := process.Listen(p.dialer.System, "metrics", c.metrics)
		if err != nil {
			return err
		}
		stopMetrics = m.Close // after that the new process answers
		expvar.Publish("proxy", expvar.Func(func() any { return p.stats() }))
		fmt.Fprintf(os.Stderr, "metrics on http://%v/debug/vars\n", m.Addr())
		go func() { failed <- http.Serve(m, p.metrics()) }()
	}
	p.checkAll() // before the first client
	go p.keepChecking(c.interval)
	served := make(chan error, 1)
	go func() { served <- p.serve(l) }()
	fmt.Fprintf(os.Stderr, "listening on %v, process %d\n", l.Addr(), os.Getpid())
	if err := process.Ready(); err != nil {
		return err
	}
	replaced, err := process.Wait(served, failed, func(err error) { fmt.Fprintln(os.Stderr, "proxy:", err) })
	switch {
	case err != nil:
		return err
	case replaced:
		return errors.Join(stopMetrics(), p.end(l, served, c.drain, process.Signals))
	}
	return p.end(l, served, grace, nil)
}

// valid returns an error that names the first option with a bad value.
func (c *config) valid() error {
	const positive = "must be more than 0, such as 2s"
	switch {
	case c.backends == "":
		return errors.New("-backends is empty: list at least one HOST:PORT")
	case c.cert == "" && c.key != "":
		return errors.New("-key needs -cert, the file of its certificate")
	case c.cert != "" && c.key == "":
		return errors.New("-cert needs -key, the file of its key")
	case c.callbacks && c.cert != "":
		return errors.New("-callbacks and -cert exclude each other: leave out -callbacks")
	case c.interval <= 0:
		return fmt.Errorf("-interval %v: %s", c.interval, positive)
	case c.timeout <= 0:
		return fmt.Errorf("-timeout %v: %s", c.timeout, positive)
	case c.drain < 0:
		return fmt.Errorf("-drain %v: must not be negative", c.drain)
	}
	if c.check != "" && (c.check[0] != '/' || strings.ContainsAny(c.check, " \r\n")) {
		return fmt.Errorf("-check %q: a path begins with a slash and has no spaces", c.check)
	}
	for _, address := range strings.Split(c.backends, ",") {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return fmt.Errorf("-backends: %q: want HOST:PORT: %w", address, err)
		}
	}
	return nil
}

func (c *config) proxy() (*proxy, error) {
	s, err := unet.NewSystem(unet.Options{Mode: c.mode})
	if err != nil {
		return nil, fmt.Errorf("-mode %v: %w", c.mode, err)
	}
	p := &proxy{dialer: unet.Dialer{System: s, Timeout: c.timeout}, path: c.check, patience: c.timeout,
		open: make(map[net.Conn]struct{})}
	for _, address := range strings.Split(c.backends, ",") {
		p.backends = append(p.backends, &backend{address: address})
	}
	if c.cert != "" || c.key != "" {
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, fmt.Errorf("-cert and -key: %w", err)
		}
		p.tls = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	if c.callbacks {
		if err := p.startCallbacks(c.mode); err != nil {
			return nil, fmt.Errorf("-mode %v with -callbacks: %w", c.mode, err)
		}
	}
	return p, nil
}

// metrics serves the variables of expvar, and whether any backend is up.
func (p *proxy) metrics() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/debug/vars", expvar.Handler())
	mux.HandleFunc("/healthy", func(w http.ResponseWriter, _ *http.Request) {
		for _, b := range p.backends {
			if b.up.Load() {
				fmt.Fprintln(w, "ok")
				return
			}
		}
		http.Error(w, "no backend is up", http.StatusServiceUnavailable)
	})
	return mux
}

// end stops accepting and waits until the connections have ended. After some time, or
// a signal, it cuts them.
func (p *proxy) end(l net.Listener, served <-chan error, patience time.Duration, signals <-chan os.Signal) error {
	err := l.Close()
	if serveErr := <-served; !errors.Is(serveErr, net.ErrClosed) {
		err = errors.Join(err, serveErr)
	}
	done := make(chan struct{})
	go func() { defer close(done); p.all.Wait() }()
	select {
	case <-done:
	case <-time.After(patience):
	case <-signals:
	}
	p.cut() // also ends the loops of -callbacks
	<-done
	return err
}
