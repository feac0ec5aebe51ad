// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

const topLong = `top shows the counters of a running Go program that publishes them by package expvar, such as
expvar.Publish("reactor", r) for a reactor.Reactor: their values, and the growth of each per second.
Text, such as a backend and its reason, is shown unchanged.

The program is named by its process ID (on Linux: the sockets on which it listens are tried), by an address
such as localhost:8080, by the path of a Unix socket, or by the URL of its variables. On a terminal the
view is renewed until it is interrupted; elsewhere it is printed --count times.`

// newTopCmd returns "ringside top".
func newTopCmd() *cobra.Command {
	var every time.Duration
	var count int
	var all bool
	cmd := &cobra.Command{
		Use:   "top PID|ADDRESS",
		Short: "Watch the counters of a running program",
		Long:  topLong,
		Example: "  ringside top 4711\n" +
			"  ringside top localhost:8080 --every 5s\n" +
			"  ringside top http://localhost:6060/debug/vars --count 1",
		Args: takes(1, "one process ID or address", "name one program"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case every <= 0:
				return usagef("--every %v: must be positive", every)
			case count < 0:
				return usagef("--count %d: must not be negative", count)
			}
			v, err := findVars(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			screen := isTerminal(out)
			if count == 0 && !screen {
				count = 1
			}
			return v.watch(cmd.Context(), out, every, count, screen, all)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&every, "every", time.Second, "time between two views")
	f.IntVar(&count, "count", 0, "end after this `number` of views (default: on a terminal no limit, otherwise 1)")
	f.BoolVar(&all, "all", false, "show all variables, also those of the Go runtime")
	return cmd
}

// vars is the address at which a program publishes its variables.
type vars struct {
	url    string
	client *http.Client
}

const varsPath = "/debug/vars"

// findVars returns the variables of a process ID or an address.
func findVars(ctx context.Context, name string) (*vars, error) {
	if pid, err := strconv.Atoi(name); err == nil {
		return varsOf(ctx, pid)
	}
	v := &vars{url: name, client: http.DefaultClient}
	switch {
	case strings.HasPrefix(name, "http://"), strings.HasPrefix(name, "https://"):
	case strings.HasPrefix(name, "/"), strings.HasPrefix(name, "@"):
		v = varsAt("unix", name)
	default:
		if _, _, err := net.SplitHostPort(name); err != nil || strings.Contains(name, "/") {
			return nil, usagef("top %q: must be a process ID, HOST:PORT, the path of a Unix socket, or a URL", name)
		}
		v = varsAt("tcp", name)
	}
	_, err := v.read(ctx)
	if failed, ok := errors.AsType[*url.Error](err); ok && ctx.Err() == nil {
		err = fmt.Errorf("top %s: no answer: %w: name a program that serves %s", name, failed.Err, varsPath)
	}
	return v, err
}

// varsAt returns the variables served at an address.
func varsAt(network, address string) *vars {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	host := address
	if network == "unix" {
		host = "localhost"
	}
	return &vars{"http://" + host + varsPath, &http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// varsOf tries the sockets on which a process listens.
func varsOf(ctx context.Context, pid int) (*vars, error) {
	sockets, err := listening(pid)
	if err != nil {
		return nil, err
	}
	var tried []string
	for _, s := range sockets {
		v := varsAt(s[0], s[1])
		if _, err := v.read(ctx); err == nil {
			return v, nil
		}
		tried = append(tried, s[1])
	}
	if len(tried) == 0 {
		return nil, fmt.Errorf("process %d listens on no socket: import expvar in it, and serve http.DefaultServeMux", pid)
	}
	return nil, fmt.Errorf("process %d publishes no variables at %s on %s: import expvar in it, and serve http.DefaultServeMux",
		pid, varsPath, strings.Join(tried, ", "))
}

// listening returns network and address of each socket on which a process listens.
func listening(pid int) (out [][2]string, err error) {
	dir := fmt.Sprintf("/proc/%d", pid)
	files, err := os.ReadDir(dir + "/fd")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no process %d here, or no /proc", pid)
	case err != nil:
		return nil, err
	}
	own := map[string]bool{}
	for _, f := range files {
		if to, err := os.Readlink(filepath.Join(dir, "fd", f.Name())); err == nil && strings.HasPrefix(to, "socket:[") {
			own[strings.Trim(to, "socket:[]")] = true
		}
	}
	for _, network := range []string{"tcp", "tcp6", "unix"} {
		b, err := os.ReadFile(dir + "/net/" + network)
		if err != nil {
			continue // such as a kernel without IPv6
		}
		for line := range strings.Lines(string(b)) {
			if address := listener(network, strings.Fields(line), own); address != "" {
				out = append(out, [2]string{strings.TrimSuffix(network, "6"), address})
			}
		}
	}
	return out, nil
}

// listener returns the address in a line of /proc/PID/net if the socket listens and its inode is in
// inodes.
func listener(network string, fields []string, inodes map[string]bool) string {
	const listens, accepts = "0A", "00010000" // TCP_LISTEN; the flag of Unix sockets
	if network == "unix" {
		if len(fields) < 8 || fields[3] != accepts || !inodes[fields[6]] {
			return ""
		}
		return fields[7]
	}
	if len(fields) < 10 || fields[3] != listens || !inodes[fields[9]] {
		return ""
	}
	host, port, _ := strings.Cut(fields[1], ":")
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return ""
	}
	ip := make(net.IP, 0, net.IPv6len)
	for ; len(host) >= 8; host = host[8:] { // words in host byte order, which is little-endian
		word, err := strconv.ParseUint(host[:8], 16, 32)
		if err != nil {
			return ""
		}
		ip = append(ip, byte(word), byte(word>>8), byte(word>>16), byte(word>>24))
	}
	if ip.IsUnspecified() {
		ip = net.IPv4(127, 0, 0, 1)
	}
	return net.JoinHostPort(ip.String(), strconv.FormatUint(n, 10))
}

// reading has the variables at one moment, by their paths in the JSON.
type reading struct {
	at      time.Time
	numbers map[string]float64
	texts   map[string]string
}

// read requests the variables.
func (v *vars) read(ctx context.Context) (*reading, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.url, nil)
	if err != nil {
		return nil, err
	}
	res, err := v.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var tree map[string]any
	if err := json.NewDecoder(io.LimitReader(res.Body, 64<<20)).Decode(&tree); err != nil || res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s has no variables of package expvar: %s", v.url, printable(res.Status))
	}
	r := &reading{at: time.Now(), numbers: map[string]float64{}, texts: map[string]string{}}
	r.add("", tree)
	return r, nil
}

// add stores a value and the values in it.
func (r *reading) add(path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			r.add(strings.TrimPrefix(path+"."+name, "."), inner)
		}
	case []any:
		for i, inner := range v {
			r.add(fmt.Sprintf("%s[%d]", path, i), inner)
		}
	case float64:
		r.numbers[path] = v
	case string:
		r.texts[path] = v
	case bool:
		r.texts[path] = strconv.FormatBool(v)
	}
}

// ofGo reports whether package expvar publishes the variable by itself.
func ofGo(path string) bool {
	return strings.HasPrefix(path, "memstats.") || strings.HasPrefix(path, "cmdline[")
}

// watch prints views until the context ends, or until it has printed count views.
func (v *vars) watch(ctx context.Context, out io.Writer, every time.Duration, count int, screen, all bool) error {
	before, err := v.read(ctx)
	if err != nil {
		return err
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil // An interrupt is the normal end.
		case <-tick.C:
		}
		now, err := v.read(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		var view bytes.Buffer
		if screen {
			view.WriteString("\x1b[H\x1b[2J")
		}
		fmt.Fprintf(&view, "%s  %s\n\n", v.url, now.at.Format(time.TimeOnly))
		now.print(&view, before, all)
		text := view.Bytes()
		if screen {
			columns, lines := screenSize(out)
			text = fit(text, columns, lines)
		}
		if _, err := out.Write(text); err != nil || n == count {
			return err
		}
		before = now
	}
}

// fit cuts a view to the columns and lines of the terminal, and says how many lines are missing.
func fit(view []byte, columns, height int) []byte {
	if columns == 0 {
		return view
	}
	lines := strings.Split(strings.TrimSuffix(string(view), "\n"), "\n")
	if n := len(lines) - (height - 1); n > 0 && height > 2 {
		lines = append(lines[:height-2], fmt.Sprintf("%d more lines: --count 1 shows all", n+1))
	}
	for i, line := range lines {
		if r := []rune(line); len(r) > columns && i > 0 { // the first one begins with control sequences
			lines[i] = string(r[:columns-1]) + "…"
		}
	}
	return []byte(strings.Join(lines, "\n") + "\n")
}

// printable returns text of another program for one line of a terminal: control characters, which
// the terminal would obey, are escaped as in Go.
func printable(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

// print writes a line for each variable.
func (r *reading) print(w io.Writer, before *reading, all bool) {
	shown := func(path string) bool { return all || !ofGo(path) }
	for _, path := range slices.Sorted(maps.Keys(r.texts)) {
		if shown(path) && r.texts[path] != "" {
			fmt.Fprintf(w, "%s: %s\n", printable(path), printable(r.texts[path]))
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "value\tper second\t  variable")
	seconds := r.at.Sub(before.at).Seconds()
	for _, path := range slices.Sorted(maps.Keys(r.numbers)) {
		if !shown(path) {
			continue
		}
		rate := "-"
		if old, ok := before.numbers[path]; ok && old != r.numbers[path] {
			rate = strconv.FormatFloat((r.numbers[path]-old)/seconds, 'f', 1, 64)
		}
		fmt.Fprintf(t, "%s\t%s\t  %s\n", strconv.FormatFloat(r.numbers[path], 'f', -1, 64), rate, printable(path))
	}
	_ = t.Flush() // to memory, so it does not fail
	if _, published := r.numbers["memstats.Mallocs"]; published && !all {
		fmt.Fprintf(w, "\nGo: heap %.1f MiB, %.0f collections (--all shows the runtime's variables)\n",
			r.numbers["memstats.HeapInuse"]/(1<<20), r.numbers["memstats.NumGC"])
	}
}
