// SPDX-License-Identifier: MIT

// Ringside-replica runs a node of a cluster and administers it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
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
  restore -dir DIR FROM                 create the databases of a backup; DIR is the leader's. FROM is a
                                        directory, or the target of run -backup, then also as it
                                        was -before a time
  list -dir DIR                         print the names of the databases
  create -dir DIR NAME                  create an empty database; DIR is the leader's
  delete -dir DIR NAME                  delete a database on all nodes; DIR is the leader's
  import -dir DIR NAME FILE             create a database from an SQLite file; DIR is the leader's
  exec -dir DIR NAME SQL                execute statements on the leader, and print the changes
  query -dir DIR NAME SQL               print the rows of a query on the leader, or of -stale
  recover -id ID -dir DIR -listen ADDRESS
                                        a majority is lost for good: make a node that does not
                                        run the only member of a new cluster; says what is lost
  version                               print the version

DIR is the directory of a node that runs. All commands but run, recover and version reach it by the
socket "control" in it, so they run on its machine, as its user. "COMMAND -h" shows the flags.

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
	case "recover":
		return recoverNode(ctx, args, stdout)
	case "status", "add", "remove", "transfer", "verify", "backup", "restore", "list", "create", "delete", "import", "exec", "query":
		return ask(ctx, command, args, stdout)
	}
	return fmt.Errorf("unknown command %q: %w", command, errUsage)
}

func newFlags(command string) *flag.FlagSet { return flag.NewFlagSet(command, flag.ContinueOnError) }

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
	var keep backupFlags
	var peers, addresses, cert, key, ca, metrics, level, format string
	f.StringVar(&o.ID, "id", "", "`name` of the node")
	f.StringVar(&o.Dir, "dir", "", "`directory` of the node")
	f.StringVar(&o.Listen, "listen", "", "`address` for the other nodes, host:port")
	f.StringVar(&o.Advertise, "advertise", "", "`address` by which the others reach this node, if it is another one")
	f.StringVar(&peers, "peers", "", "all members of a new cluster: `ID=ADDRESS,...`; none for a node that joins one")
	f.StringVar(&addresses, "addresses", "", "addresses of members that have all changed: `ID=ADDRESS,...`")
	f.BoolVar(&o.PlainText, "plain-text", false, "allow connections between machines without TLS")
	f.StringVar(&cert, "cert", "", "`file` with the node's certificate; with -key and -ca the nodes use TLS")
	f.StringVar(&key, "key", "", "`file` with the key of the certificate")
	f.StringVar(&ca, "ca", "", "`file` with the certificates of the authority of all nodes")
	f.DurationVar(&o.Election, "election", time.Second, "`time` without a leader after which another one is elected")
	f.IntVar(&o.MaxTransaction, "max-transaction", 64<<20, "`bytes` of pages that a transaction may change; the same on all nodes")
	f.IntVar(&o.SnapshotEntries, "snapshot-entries", 8192, "`number` of raft entries after which a snapshot is taken and the log is cut")
	f.Int64Var(&o.LogBytes, "log-bytes", 512<<20, "size of raft's log, in `bytes`, at which it is cut")
	f.IntVar(&o.OpenDatabases, "open-databases", 256, "`number` of databases whose files a follower keeps open for writing")
	f.StringVar(&metrics, "metrics", "", "`address` of an HTTP server for /metrics (Prometheus), /healthz, /readyz and /debug/vars; none if empty")
	f.StringVar(&keep.target, "backup", "", "`target` of a continuous backup by the node that leads, the same on all nodes: a directory that all reach, or s3://BUCKET/PREFIX?endpoint=URL&region=NAME; none if empty")
	f.DurationVar(&keep.time, "backup-keep", 24*time.Hour, "`time` for which older states of a database can be restored")
	f.StringVar(&level, "log-level", "info", "least `level` of the log: debug, info, warn or error")
	f.StringVar(&format, "log-format", "text", "`format` of the log: text or json")
	if err := parse(f, args, stdout); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("run: unexpected argument %q: %w", f.Arg(0), errUsage)
	}
	if level != "info" || format != "text" {
		if err := setLog(level, format); err != nil {
			return err
		}
	}
	o.Forward = true // for exec and query
	if o.Peers, err = parseMembers("-peers", peers); err != nil {
		return err
	}
	if o.Addresses, err = parseMembers("-addresses", addresses); err != nil {
		return err
	}
	if cert != "" || key != "" || ca != "" {
		if o.TLS, err = tlsConfig(cert, key, ca); err != nil {
			return err
		}
	}
	var web net.Listener
	if metrics != "" {
		if web, err = net.Listen("tcp", metrics); err != nil {
			return flagError("run", fmt.Errorf("-metrics: %w", err))
		}
		defer web.Close()
	}
	target, err := keep.parse()
	if err != nil {
		return err
	}
	n, err := openNode(o)
	if err != nil {
		return optionError("run", err)
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if err := n.follow(target, keep.time); err != nil {
		return err
	}
	defer n.unfollow()
	l, err := listenControl(filepath.Join(o.Dir, controlSocket))
	if err != nil {
		return err
	}
	defer serveControl(l, n)()
	if web != nil {
		defer serveWeb(web, n)()
		fmt.Fprintf(stdout, "metrics at http://%s/metrics and /debug/vars\n", web.Addr())
	}
	fmt.Fprintf(stdout, "node %s listens at %s\n", n.ID(), n.Address())
	<-ctx.Done()
	return nil
}

// parseMembers parses addresses by the IDs of members.
func parseMembers(name, list string) (members map[string]string, err error) {
	for item := range strings.SplitSeq(list, ",") {
		if item == "" {
			continue
		}
		id, address, ok := strings.Cut(item, "=")
		if !ok || id == "" || address == "" {
			return nil, fmt.Errorf("run: %s: %q is not ID=ADDRESS: %w", name, item, errUsage)
		}
		if members == nil {
			members = make(map[string]string)
		}
		if members[id] != "" {
			return nil, fmt.Errorf("run: %s: %q is named twice: name each node once: %w", name, id, errUsage)
		}
		members[id] = address
	}
	return members, nil
}

// optionError returns an error of replica in which flags have taken the place of options.
func optionError(command string, err error) error {
	text := strings.TrimPrefix(err.Error(), "replica: ")
	if flags := fieldFlags.Replace(text); flags != text {
		return flagError(command, renamed{err, flags})
	}
	return err
}

// fieldFlags replaces the fields of Options in errors of replica by the flags of run.
var fieldFlags = strings.NewReplacer("Options.ID", "-id", "Options.Dir", "-dir", "Options.Listen", "-listen", "Options.Peers", "-peers", "Options.Addresses", "-addresses",
	"Options.TLS", "-cert, -key and -ca", "Options.PlainText", "-plain-text", "Options.Election", "-election", "Options.MaxTransaction", "-max-transaction",
	"Options.SnapshotEntries", "-snapshot-entries", "Options.LogBytes", "-log-bytes", "Options.OpenDatabases", "-open-databases")

// renamed is an error with another text.
type renamed struct {
	error
	text string
}

func (r renamed) Error() string { return r.text }
func (r renamed) Unwrap() error { return r.error }

// flagError returns an error about a flag of run. The command line is wrong unless a system call failed.
func flagError(command string, err error) error {
	if _, failed := errors.AsType[*os.SyscallError](err); failed {
		return fmt.Errorf("%s: %w", command, err)
	}
	return fmt.Errorf("%s: %w: %w", command, err, errUsage)
}

// ask sends a command to a running node and prints the answer.
func ask(ctx context.Context, command string, args []string, stdout io.Writer) error {
	f := flag.NewFlagSet(command, flag.ContinueOnError)
	dir := f.String("dir", "", "`directory` of the node that runs")
	asJSON, offline, missing, page, stale, before := false, false, false, 0, time.Duration(-1), time.Time{}
	timeout := 30 * time.Second
	switch command {
	case "add", "verify", "backup", "restore", "import", "exec", "query":
		timeout = 0 // as long as it takes
	}
	f.DurationVar(&timeout, "timeout", timeout, "`time` after which the command is given up; 0 is none")
	switch command {
	case "status", "list":
		f.BoolVar(&asJSON, "json", false, "print JSON")
	case "query":
		f.BoolVar(&asJSON, "json", false, "print JSON")
		f.DurationVar(&stale, "stale", -1, "read on this node, which may be behind by this `time`; a negative one reads on the leader")
	case "create":
		f.IntVar(&page, "page-size", 4096, "`bytes` of a page")
	case "restore":
		f.Func("before", "of a continuous backup, the state before this `time`, such as 2026-05-04T10:00:00Z, or 90m ago",
			func(text string) (err error) {
				before, err = parseBefore(text, time.Now())
				return err
			})
		f.BoolVar(&missing, "missing", false, "of a continuous backup, only the databases that the cluster lacks")
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
	case "create", "delete":
		least, most, want = 1, 1, "NAME"
	case "import":
		least, most, want = 2, 2, "NAME FILE"
	case "exec", "query":
		least, most, want = 2, 2, "NAME SQL"
	case "transfer":
		most, want = 1, "at most one ID"
	}
	switch {
	case *dir == "":
		return fmt.Errorf("%s: -dir is missing: name the directory of the node: %w", command, errUsage)
	case f.NArg() < least || f.NArg() > most || slices.Contains(f.Args(), ""): // "" would be the working directory
		return fmt.Errorf("%s: got %q, want %s: %w", command, strings.Join(f.Args(), " "), want, errUsage)
	}
	r := request{Command: command, Args: f.Args(), Offline: offline, PageSize: page, Stale: stale, Missing: missing, Before: before}
	if (command == "backup" || command == "restore" || command == "import") && !strings.Contains(r.Args[len(r.Args)-1], "://") {
		path, err := filepath.Abs(r.Args[len(r.Args)-1])
		if err != nil {
			return err
		}
		r.Args[len(r.Args)-1] = path // the node has another working directory
	}
	if timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		ctx = limited
	}
	a, err := askControl(ctx, filepath.Join(*dir, controlSocket), r)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: the node has not answered within %v, see -timeout: %w", command, timeout, err)
	case err != nil:
		return fmt.Errorf("%s: %w", command, err)
	}
	return printAnswer(stdout, command, asJSON, a)
}

// printAnswer prints the answer of a node.
func printAnswer(stdout io.Writer, command string, asJSON bool, a *answer) error {
	e := json.NewEncoder(stdout)
	e.SetIndent("", "\t")
	switch {
	case command == "verify":
		fmt.Fprintln(stdout, "all databases have the same pages on all nodes")
	case command == "status" && asJSON:
		return e.Encode(a.Status)
	case command == "status":
		return show(stdout, a)
	case command == "list" && asJSON:
		return e.Encode(append([]string{}, a.Names...))
	case command == "list":
		for _, name := range a.Names {
			fmt.Fprintln(stdout, name)
		}
	case command == "exec":
		fmt.Fprintf(stdout, "%d rows changed\n", a.Changes)
	case command == "query" && asJSON:
		return e.Encode(struct {
			Columns []string `json:"columns"`
			Rows    [][]any  `json:"rows"`
		}{a.Columns, append([][]any{}, a.Rows...)})
	case command == "query":
		w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, strings.Join(a.Columns, "\t"))
		for _, row := range a.Rows {
			for i, v := range row {
				if i > 0 {
					fmt.Fprint(w, "\t")
				}
				if v == nil {
					v = "NULL"
				}
				fmt.Fprint(w, v)
			}
			fmt.Fprintln(w)
		}
		return w.Flush()
	}
	return nil
}

func show(out io.Writer, a *answer) error {
	s := a.Status
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
	if s.Unfit != "" {
		fmt.Fprintf(w, "cannot lead\t%s\n", s.Unfit)
	}
	for _, name := range s.Broken {
		fmt.Fprintf(w, "broken\t%s\n", name)
	}
	if b := a.Backup; b != nil {
		fmt.Fprintf(w, "backup\t%s\n", b)
	}
	for _, m := range s.Members {
		more := ""
		if m.Version > 0 {
			more = fmt.Sprintf(", protocol %d", m.Version)
		}
		if !m.Voter {
			more += " (does not vote yet; add waits until it does)"
		}
		fmt.Fprintf(w, "member\t%s at %s%s\n", m.ID, m.Address, more)
	}
	return w.Flush()
}
