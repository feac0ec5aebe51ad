// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/ringside-io/ringside/replica"
)

// serveWeb serves the state of a node by HTTP until the returned function is called.
func serveWeb(l net.Listener, n *service) (stop func()) {
	mux := http.NewServeMux()
	vars := expvar.Func(func() any { return n.Stats() })
	mux.HandleFunc("GET /debug/vars", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		fmt.Fprintf(w, "{\"replica\": %s", vars)
		if b := n.backupState(); b != nil {
			text, _ := json.Marshal(b)
			fmt.Fprintf(w, ",\n\"backup\": %s", text)
		}
		expvar.Do(func(v expvar.KeyValue) { fmt.Fprintf(w, ",\n%q: %s", v.Key, v.Value) })
		fmt.Fprintln(w, "}")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		writeMetrics(w, n)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := n.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("the metrics server failed", "error", err)
		}
	}()
	return func() { _ = server.Close() }
}

// writeMetrics writes the state and the counters of a node in the text format of Prometheus.
func writeMetrics(w io.Writer, n *service) {
	s, c := n.Status(), n.Stats()
	number := func(b bool) uint64 {
		if b {
			return 1
		}
		return 0
	}
	behind := uint64(0)
	if s.LastEntry > s.Applied {
		behind = s.LastEntry - s.Applied
	}
	for _, m := range []struct {
		name, kind, help string
		value            uint64
	}{
		{"term", "gauge", "raft's term", s.Term},
		{"leader", "gauge", "1 if this node leads and is ready to write", number(s.Leads)},
		{"leader_known", "gauge", "1 if this node knows a leader", number(s.Leader != "")},
		{"ready", "gauge", "1 if this node has caught up since its start, knows a leader, and its disk works", number(n.Ready() == nil)},
		{"fit", "gauge", "1 if this node can lead, 0 for example if its disk fails", number(s.Unfit == "")},
		{"last_entry", "gauge", "index of the last entry in raft's log", s.LastEntry},
		{"applied", "gauge", "index of the last entry that this node has applied", s.Applied},
		{"lag_entries", "gauge", "entries that this node has and has not applied", behind},
		{"log_bytes", "gauge", "size of raft's log", uint64(s.LogBytes)},
		{"members", "gauge", "members of the cluster, as this node knows them", uint64(len(s.Members))},
		{"databases", "gauge", "databases of the cluster", uint64(c.Databases)},
		{"unserved", "gauge", "databases that this node does not serve until they are complete", uint64(c.Unserved)},
		{"commits_total", "counter", "transactions of connections of this node", c.Commits},
		{"uncertain_total", "counter", "commits of this node whose outcome was unknown to their callers", c.Uncertain},
		{"applied_total", "counter", "transactions of other nodes, written into files", c.Applied},
		{"entries_total", "counter", "raft entries that this node proposed", c.Entries},
		{"verified_total", "counter", "checks with a majority for linearizable reads", c.Verified},
		{"forwarded_total", "counter", "statements that this node ran for others", c.Forwarded},
		{"broken_total", "counter", "databases whose files differed or failed", c.Broken},
		{"redone_total", "counter", "databases that were repaired from raft's log", c.Redone},
		{"fetched_total", "counter", "databases that were fetched from another node", c.Fetched},
	} {
		name := "ringside_replica_" + m.name
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s %d\n", name, m.help, name, m.kind, name, m.value)
	}
	n.writeBackupMetrics(w)
	const silence = "ringside_replica_leader_silence_seconds"
	fmt.Fprintf(w, "# HELP %s for how long nothing was heard of the leader, -1 if nothing ever was\n# TYPE %s gauge\n%s %g\n",
		silence, silence, silence, seconds(s.Silence))
}

// seconds returns a duration for a metric; a negative one is -1.
func seconds(d time.Duration) float64 {
	if d < 0 {
		return -1
	}
	return d.Seconds()
}

// certificates has the certificate of a node and its authority. The files are read again when they have
// changed, so certificates can be renewed while the node runs. If new files cannot be used, the old
// ones stay.
type certificates struct {
	cert, key, ca string

	mu     sync.Mutex
	looked time.Time // when the files were last looked at
	stamps [3]stamp
	pair   *tls.Certificate
	pool   *x509.CertPool
}

// stamp tells versions of a file apart.
type stamp struct {
	size int64
	time time.Time
}

// recheck is how often the files are looked at, at most.
const recheck = time.Second

// tlsConfig returns the configuration of a node with certificates that are renewed.
func tlsConfig(cert, key, ca string) (*tls.Config, error) {
	for _, f := range []struct{ name, value string }{{"-cert", cert}, {"-key", key}, {"-ca", ca}} {
		if f.value == "" {
			return nil, fmt.Errorf("run: %s is missing: TLS needs -cert, -key and -ca: %w", f.name, errUsage)
		}
	}
	s := &certificates{cert: cert, key: key, ca: ca}
	if err := s.read(); err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	c := &tls.Config{RootCAs: s.pool, ClientCAs: s.pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.now().pair, nil }
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return s.now().pair, nil }
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := c.Clone()
		now.ClientCAs, now.GetConfigForClient = s.now().pool, nil
		now.InsecureSkipVerify, now.VerifyConnection = false, nil
		return now, nil
	}
	// A client verifies with the authority of this moment.
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(state tls.ConnectionState) error {
		o := x509.VerifyOptions{Roots: s.now().pool, DNSName: state.ServerName, Intermediates: x509.NewCertPool()}
		for _, more := range state.PeerCertificates[1:] {
			o.Intermediates.AddCert(more)
		}
		_, err := state.PeerCertificates[0].Verify(o)
		return err
	}
	return c, nil
}

// read reads the files.
func (s *certificates) read() error {
	pair, err := tls.LoadX509KeyPair(s.cert, s.key)
	if err != nil {
		return fmt.Errorf("-cert, -key: %w", err)
	}
	p, err := os.ReadFile(s.ca)
	if err != nil {
		return fmt.Errorf("-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(p) {
		return fmt.Errorf("-ca: %s has no certificates", s.ca)
	}
	s.pair, s.pool = &pair, pool
	return nil
}

// loaded are the certificates at one moment.
type loaded struct {
	pair *tls.Certificate
	pool *x509.CertPool
}

// now returns the certificates, and reads the files first if they have changed.
func (s *certificates) now() loaded {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.looked) >= recheck {
		s.looked = time.Now()
		stamps := s.stamps
		for i, name := range []string{s.cert, s.key, s.ca} {
			if info, err := os.Stat(name); err == nil {
				stamps[i] = stamp{info.Size(), info.ModTime()}
			}
		}
		if first := s.stamps == [3]stamp{}; stamps != s.stamps {
			if err := s.read(); err != nil {
				slog.Error("the certificates cannot be read again, the old ones stay", "error", err)
			} else if s.stamps = stamps; !first {
				slog.Info("the certificates were read again")
			}
		}
	}
	return loaded{s.pair, s.pool}
}

// setLog sets the level and the format of the log, which goes to standard error.
func setLog(level, format string) error {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return fmt.Errorf("run: -log-level: %q is none of debug, info, warn and error: %w", level, errUsage)
	}
	o := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, o)))
	case "json":
		slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, o)))
	default:
		return fmt.Errorf("run: -log-format: %q is neither text nor json: %w", format, errUsage)
	}
	return nil
}

// recoverNode makes a node that does not run the only member of a new cluster.
func recoverNode(ctx context.Context, args []string, stdout io.Writer) error {
	f := newFlags("recover")
	var o replica.Options
	f.StringVar(&o.ID, "id", "", "`name` of the node")
	f.StringVar(&o.Dir, "dir", "", "`directory` of the node, which must not run")
	f.StringVar(&o.Listen, "listen", "", "`address` for the other nodes, host:port")
	f.StringVar(&o.Advertise, "advertise", "", "`address` by which the others reach this node, if it is another one")
	f.IntVar(&o.MaxTransaction, "max-transaction", 64<<20, "`bytes` of pages that a transaction may change, as for run")
	yes := f.Bool("yes", false, "accept the loss that is printed without it")
	if err := parse(f, args, stdout); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("recover: unexpected argument %q: %w", f.Arg(0), errUsage)
	}
	err := replica.Recover(o, func(l replica.Loss) error {
		fmt.Fprintln(stdout, l)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !*yes:
			return errors.New("nothing was changed: repeat the command with -yes to accept this")
		}
		return nil
	})
	if err != nil {
		return optionError("recover", err)
	}
	fmt.Fprintf(stdout, "node %s is the only member of a new cluster: start it with ringside-replica run, and add others with empty directories\n", o.ID)
	return nil
}
