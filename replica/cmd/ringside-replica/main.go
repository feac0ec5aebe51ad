// SPDX-License-Identifier: MIT

// Ringside-replica runs a node of a cluster and administers it.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"expvar"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/ringside-io/ringside/internal/cli"
	"github.com/ringside-io/ringside/replica"
)

const usage = `Usage: ringside-replica COMMAND [flags] [arguments]

Commands:
  run -id ID -dir DIR -listen ADDRESS   run a node until it is interrupted
  status -dir DIR                       show a node, and the members of its cluster
  add -dir DIR ID ADDRESS               make a node a member, and wait until it has caught up
                                        and votes; DIR is the leader's
  remove -dir DIR ID                    remove a member; DIR is the leader's
  transfer -dir DIR [ID]                hand the leadership to a member; DIR is the leader's
  verify -dir DIR                       compare the pages of all databases on all nodes
  backup -dir DIR TO                    write all databases into an empty directory
  restore -dir DIR FROM                 create the databases of a backup; DIR is the leader's
  version                               print the version

DIR is the directory of a node that runs. All commands but run and version reach it by the socket
"control" in it, so they run on its machine, as its user. "COMMAND -h" shows the flags.

Exit status: 0 success, 1 failure, 2 a wrong command line, 130 interrupted.
`

// Exit codes.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal has its usual effect
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// errUsage is in the errors of the command line (errors.Is).
var errUsage = errors.New("see ringside-replica -h")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	out := cli.NewOutput(stdout)
	err := execute(ctx, args[0], args[1:], out)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		err = out.Err()
	}
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "ringside-replica: interrupted")
		return exitInterrupted
	}
	fmt.Fprintf(stderr, "ringside-replica: %v\n", err)
	if errors.Is(err, errUsage) {
		return exitUsage
	}
	return exitFailure
}

func execute(ctx context.Context, command string, args []string, stdout io.Writer) (err error) {
	switch command {
	case "help", "-h", "--help":
		_, err = io.WriteString(stdout, usage)
		return err
	case "version", "-version", "--version":
		_, err = io.WriteString(stdout, cli.Own().Line("ringside-replica"))
		return err
	case "run":
		return runNode(ctx, args, stdout)
	case "status", "add", "remove", "transfer", "verify", "backup", "restore":
		return ask(ctx, command, args, stdout)
	}
	return fmt.Errorf("unknown command %q: %w", command, errUsage)
}

// parse parses flags; help goes to stdout.
func parse(f *flag.FlagSet, args []string, stdout io.Writer) error {
	var said strings.Builder
	f.SetOutput(&said)
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, said.String())
		return err
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %w", f.Name(), err, errUsage)
	}
	return nil
}

// runNode runs a node until the context is done.
func runNode(ctx context.Context, args []string, stdout io.Writer) (err error) {
	f := flag.NewFlagSet("run", flag.ContinueOnError)
	var o replica.Options
	var peers, cert, key, ca, metrics string
	f.StringVar(&o.ID, "id", "", "`name` of the node")
	f.StringVar(&o.Dir, "dir", "", "`directory` of the node")
	f.StringVar(&o.Listen, "listen", "", "`address` for the other nodes, host:port")
	f.StringVar(&o.Advertise, "advertise", "", "`address` by which the others reach this node, if it is another one")
	f.StringVar(&peers, "peers", "", "all members of a new cluster: `ID=ADDRESS,...`; none for a node that joins one")
	f.BoolVar(&o.PlainText, "plain-text", false, "allow connections between machines without TLS")
	f.StringVar(&cert, "cert", "", "`file` with the node's certificate; with -key and -ca the nodes use TLS")
	f.StringVar(&key, "key", "", "`file` with the key of the certificate")
	f.StringVar(&ca, "ca", "", "`file` with the certificates of the authority of all nodes")
	f.DurationVar(&o.Election, "election", time.Second, "`time` without a leader after which another one is elected")
	f.IntVar(&o.MaxTransaction, "max-transaction", 64<<20, "`bytes` of pages that a transaction may change; the same on all nodes")
	f.StringVar(&metrics, "metrics", "", "`address` of an HTTP server for /debug/vars; none if empty")
	if err := parse(f, args, stdout); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("run: unexpected argument %q: %w", f.Arg(0), errUsage)
	}
	for item := range strings.SplitSeq(peers, ",") {
		if item == "" {
			continue
		}
		id, address, ok := strings.Cut(item, "=")
		if !ok || id == "" || address == "" {
			return fmt.Errorf("run: -peers: %q is not ID=ADDRESS: %w", item, errUsage)
		}
		if o.Peers == nil {
			o.Peers = make(map[string]string)
		}
		if o.Peers[id] != "" {
			return fmt.Errorf("run: -peers: %q is named twice: name each node once: %w", id, errUsage)
		}
		o.Peers[id] = address
	}
	if cert != "" || key != "" || ca != "" {
		if o.TLS, err = tlsConfig(cert, key, ca); err != nil {
			return err
		}
	}
	var web net.Listener
	if metrics != "" {
		if web, err = net.Listen("tcp", metrics); err != nil {
			return flagError(fmt.Errorf("-metrics: %w", err))
		}
		defer web.Close()
	}
	n, err := replica.Open(o)
	if text := strings.TrimPrefix(fmt.Sprint(err), "replica: "); fieldFlags.Replace(text) != text {
		return flagError(renamed{err, fieldFlags.Replace(text)})
	} else if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	l, err := listenControl(filepath.Join(o.Dir, controlSocket))
	if err != nil {
		return err
	}
	defer serveControl(l, n)()
	if web != nil {
		expvar.Publish("replica", expvar.Func(func() any { return n.Stats() }))
		server := &http.Server{Handler: expvar.Handler(), ReadHeaderTimeout: 10 * time.Second}
		defer server.Close()
		go func() {
			if err := server.Serve(web); !errors.Is(err, http.ErrServerClosed) {
				slog.Error("the metrics server failed", "error", err)
			}
		}()
		fmt.Fprintf(stdout, "metrics at http://%s/debug/vars\n", web.Addr())
	}
	fmt.Fprintf(stdout, "node %s listens at %s\n", n.ID(), n.Address())
	<-ctx.Done()
	return nil
}

// fieldFlags replaces the fields of Options in errors of replica by the flags of run.
var fieldFlags = strings.NewReplacer("Options.ID", "-id", "Options.Dir", "-dir", "Options.Listen", "-listen", "Options.Peers", "-peers",
	"Options.TLS", "-cert, -key and -ca", "Options.PlainText", "-plain-text", "Options.Election", "-election", "Options.MaxTransaction", "-max-transaction")

// renamed is an error with another text.
type renamed struct {
	error
	text string
}

func (r renamed) Error() string { return r.text }
func (r renamed) Unwrap() error { return r.error }

// flagError returns an error about a flag of run. The command line is wrong unless a system call failed.
func flagError(err error) error {
	if _, failed := errors.AsType[*os.SyscallError](err); failed {
		return fmt.Errorf("run: %w", err)
	}
	return fmt.Errorf("run: %w: %w", err, errUsage)
}

func tlsConfig(cert, key, ca string) (*tls.Config, error) {
	for _, f := range []struct{ name, value string }{{"-cert", cert}, {"-key", key}, {"-ca", ca}} {
		if f.value == "" {
			return nil, fmt.Errorf("run: %s is missing: TLS needs -cert, -key and -ca: %w", f.name, errUsage)
		}
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("run: -cert, -key: %w", err)
	}
	p, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("run: -ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(p) {
		return nil, fmt.Errorf("run: -ca: %s has no certificates", ca)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}, nil
}

// ask sends a command to a running node and prints the answer.
func ask(ctx context.Context, command string, args []string, stdout io.Writer) error {
	f := flag.NewFlagSet(command, flag.ContinueOnError)
	dir := f.String("dir", "", "`directory` of the node that runs")
	asJSON, offline := false, false
	switch command {
	case "status":
		f.BoolVar(&asJSON, "json", false, "print JSON")
	case "add":
		f.BoolVar(&offline, "offline", false, "do not ask the node whether it runs, but wait until it does and has caught up")
	}
	if err := parse(f, args, stdout); err != nil {
		return err
	}
	least, most, want := 0, 0, "no arguments"
	switch command {
	case "add":
		least, most, want = 2, 2, "ID ADDRESS"
	case "remove":
		least, most, want = 1, 1, "ID"
	case "backup", "restore":
		least, most, want = 1, 1, "a directory"
	case "transfer":
		most, want = 1, "at most one ID"
	}
	switch {
	case *dir == "":
		return fmt.Errorf("%s: -dir is missing: name the directory of the node: %w", command, errUsage)
	case f.NArg() < least || f.NArg() > most:
		return fmt.Errorf("%s: got %q, want %s: %w", command, strings.Join(f.Args(), " "), want, errUsage)
	}
	r := request{Command: command, Args: f.Args(), Offline: offline}
	if command == "backup" || command == "restore" {
		path, err := filepath.Abs(r.Args[0])
		if err != nil {
			return err
		}
		r.Args[0] = path // the node has another working directory
	}
	status, err := askControl(ctx, filepath.Join(*dir, controlSocket), r)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", command, err)
	case command == "verify":
		fmt.Fprintln(stdout, "all databases have the same pages on all nodes")
	case asJSON:
		e := json.NewEncoder(stdout)
		e.SetIndent("", "\t")
		return e.Encode(status)
	case status != nil:
		return show(stdout, status)
	}
	return nil
}

func show(out io.Writer, s *replica.Status) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	role := "follower"
	if s.Leads {
		role = "leader"
	}
	leader := s.Leader
	if leader == "" {
		leader = "none"
	}
	fmt.Fprintf(w, "node\t%s at %s (%s)\nleader\t%s\nterm\t%d\nlog\tentry %d, applied %d, %d bytes\ndatabases\t%d\ncluster\t%s\n",
		s.ID, s.Address, role, leader, s.Term, s.LastEntry, s.Applied, s.LogBytes, s.Databases, s.Cluster)
	for _, name := range s.Broken {
		fmt.Fprintf(w, "broken\t%s\n", name)
	}
	for _, m := range s.Members {
		votes := ""
		if !m.Voter {
			votes = " (does not vote yet; add waits until it does)"
		}
		fmt.Fprintf(w, "member\t%s at %s%s\n", m.ID, m.Address, votes)
	}
	return w.Flush()
}
