// SPDX-License-Identifier: MIT

package metrics_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	_ "github.com/ncruces/go-sqlite3/driver"
	"github.com/ringside-io/ringside/appendlog"
	"github.com/ringside-io/ringside/metrics"
	"github.com/ringside-io/ringside/metrics/otelmetric"
	"github.com/ringside-io/ringside/metrics/prom"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/replica"
	"github.com/ringside-io/ringside/sqlitevfs"
	"github.com/ringside-io/ringside/sqlitevfs/backup"
	"github.com/ringside-io/ringside/ufile"
	"github.com/ringside-io/ringside/unet"
	"github.com/ringside-io/ringside/unet/event"
	"github.com/ringside-io/ringside/watch"
)

// types are the Stats types of all packages.
var types = []any{
	ufile.Stats{}, reactor.Stats{}, unet.Stats{}, event.Stats{}, watch.Stats{}, appendlog.Stats{}, sqlitevfs.Stats{}, backup.Stats{},
	replica.Stats{},
}

// TestOneShape checks each Stats type: counters are uint64, gauges int, times
// time.Duration, a nested struct is another Stats, and text names the source. Each
// field but text has a metric and a JSON name, each metric a field, and Plus adds.
func TestOneShape(t *testing.T) {
	fields := map[string]metrics.Metric{}
	for _, m := range metrics.Metrics() {
		fields[m.Package+"."+m.Field] = m
	}
	for _, s := range types {
		typ := reflect.TypeOf(s)
		pkg := path.Base(typ.PkgPath())
		v := reflect.New(typ).Elem()
		for i := range typ.NumField() {
			f := typ.Field(i)
			name := pkg + "." + f.Name
			m, listed := fields[name]
			delete(fields, name)
			if want := strings.ToLower(f.Name[:1]) + f.Name[1:]; f.Tag.Get("json") != want && f.Type.Kind() != reflect.String &&
				!strings.EqualFold(f.Tag.Get("json"), want) {
				t.Errorf("%s: JSON name %q", name, f.Tag.Get("json"))
			}
			switch {
			case f.Type.Kind() == reflect.String, f.Type.Kind() == reflect.Struct && f.Type.Name() == "Stats":
				if listed {
					t.Errorf("%s is no metric", name)
				}
				continue
			case !listed:
				t.Errorf("%s has no metric", name)
			case f.Type == reflect.TypeFor[time.Duration]():
				if !m.Seconds {
					t.Errorf("%s: not in seconds", name)
				}
				v.Field(i).SetInt(int64(i + 1))
			case f.Type.Kind() == reflect.Uint64:
				if m.Kind != metrics.Counter {
					t.Errorf("%s: a uint64 is a counter", name)
				}
				v.Field(i).SetUint(uint64(i + 1))
			case f.Type.Kind() == reflect.Int:
				if m.Kind != metrics.Gauge {
					t.Errorf("%s: an int is a gauge", name)
				}
				v.Field(i).SetInt(int64(i + 1))
			default:
				t.Errorf("%s: type %v", name, f.Type)
			}
		}
		sum := v.MethodByName("Plus").Call([]reflect.Value{v})[0]
		for i := range typ.NumField() {
			switch f := typ.Field(i); {
			case strings.HasPrefix(f.Name, "L") && !sum.Field(i).CanUint() && sum.Field(i).CanInt(): // maxima
				if sum.Field(i).Int() != int64(i+1) {
					t.Errorf("%s.%s: Plus does not keep the maximum", pkg, f.Name)
				}
			case sum.Field(i).CanUint() && sum.Field(i).Uint() != uint64(2*(i+1)), sum.Field(i).CanInt() && sum.Field(i).Int() != int64(2*(i+1)):
				t.Errorf("%s.%s: Plus does not add", pkg, f.Name)
			}
		}
	}
	for name := range fields {
		t.Errorf("%s has a metric and no field", name)
	}
}

// TestPage compares the table of docs/metrics.md with the metrics.
func TestPage(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range metrics.Metrics() {
		if strings.HasSuffix(m.Name, "_total") != (m.Kind == metrics.Counter) {
			t.Errorf("the name %s does not show its kind", m.Name)
		}
		if row := fmt.Sprintf("| `%s` | %s |", m.Name, m.Help); !strings.Contains(string(text), row+"\n") {
			t.Errorf("docs/metrics.md lacks the row\n%s", row)
		}
	}
	for _, name := range regexp.MustCompile("`(ringside_[a-z_]+)`").FindAllStringSubmatch(string(text), -1) {
		if !bytes.Contains([]byte(strings.Join(names(), " ")+" ringside_backend_info "), []byte(name[1]+" ")) {
			t.Errorf("docs/metrics.md names %s, which does not exist", name[1])
		}
	}
}

// TestMessages looks for each message that a package logs in docs/metrics.md.
func TestMessages(t *testing.T) {
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	logged := regexp.MustCompile(`[lL]ogger(?:\(\))?\.(Info|Warn|Error)\("([^";,]*)`)
	found := 0
	for _, dir := range []string{"reactor", "ufile", "unet", "unet/event", "watch", "appendlog", "sqlitevfs"} {
		files, err := filepath.Glob("../" + dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range logged.FindAllSubmatch(source, -1) {
				found++
				if row := fmt.Sprintf("| %s | `%s` |", strings.ToUpper(string(m[1])), m[2]); !strings.Contains(string(page), row) {
					t.Errorf("%s: docs/metrics.md lacks a row that begins with\n%s", file, row)
				}
			}
		}
	}
	if rows := regexp.MustCompile(`(?m)^\| (INFO|WARN|ERROR) \|`).FindAll(page, -1); found != len(rows) {
		t.Errorf("docs/metrics.md has %d messages, the packages log %d", len(rows), found)
	}
}

func names() []string {
	var all []string
	for _, m := range metrics.Metrics() {
		all = append(all, m.Name)
	}
	return append(all, "")
}

// load adds a source of each package to the set, lets it work, and returns the least
// value that each metric must have then.
func load(t *testing.T, set *metrics.Set) map[string]float64 {
	dir := t.TempDir()
	want := map[string]float64{}
	loadFiles(t, set, dir, want)
	loadLog(t, set, dir, want)
	loadSockets(t, set, want)
	loadEvents(t, set, want)
	loadWatch(t, set, want)
	loadSQLite(t, set, dir, want)
	loadBackup(t, set, dir, want)
	loadReplica(t, set, dir, want)
	return want
}

func loadFiles(t *testing.T, set *metrics.Set, dir string, want map[string]float64) {
	sys, err := ufile.NewSystem(ufile.Options{})
	check(t, err)
	metrics.Add(set, "files", sys)
	f, err := sys.Create(filepath.Join(dir, "file"))
	check(t, err)
	t.Cleanup(func() { f.Close() })
	for range 10 {
		_, err = f.WriteAt(make([]byte, 4096), 0)
		check(t, err)
	}
	want["ringside_ufile_plain_total"] = 10 // buffered writes are plain calls
}

func loadLog(t *testing.T, set *metrics.Set, dir string, want map[string]float64) {
	l, err := appendlog.Open(filepath.Join(dir, "log"), appendlog.Options{})
	check(t, err)
	t.Cleanup(func() { l.Close() })
	metrics.Add(set, "log", l)
	for range 3 {
		_, err = l.Append(make([]byte, 100))
		check(t, err)
	}
	want["ringside_appendlog_records_total"] = 3
	want["ringside_appendlog_bytes_total"] = 300
	want["ringside_appendlog_groups_total"] = 3
	want["ringside_appendlog_syncs_total"] = 3
	want["ringside_appendlog_largest_group"] = 1
	want["ringside_appendlog_sync_seconds_total"] = 1e-9
	want["ringside_appendlog_longest_sync_seconds"] = 1e-9
}

// exchange sends a message through c and waits for its echo.
func exchange(t *testing.T, c net.Conn) {
	for range 10 {
		_, err := c.Write([]byte("ping"))
		check(t, err)
		_, err = io.ReadFull(c, make([]byte, 4))
		check(t, err)
	}
}

func loadSockets(t *testing.T, set *metrics.Set, want map[string]float64) {
	sys, err := unet.NewSystem(unet.Options{})
	check(t, err)
	metrics.Add(set, "sockets", sys)
	lc := unet.ListenConfig{System: sys}
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	check(t, err)
	t.Cleanup(func() { c.Close() })
	exchange(t, c)
	if name, _ := sys.Backend(); name == "net" {
		return
	}
	want["ringside_unet_events_total"] = 1
	want["ringside_unet_passes_total"] = 1
	want["ringside_unet_open"] = 2 // the listener and the accepted connection
}

func loadEvents(t *testing.T, set *metrics.Set, want map[string]float64) {
	srv, err := event.Listen("tcp", "127.0.0.1:0", event.Handler{
		OnData: func(c *event.Conn, p []byte) { _, _ = c.Write(p) },
	}, event.Options{Loops: 1})
	check(t, err)
	t.Cleanup(func() { srv.Close() })
	metrics.Add(set, "server", srv)
	c, err := net.Dial("tcp", srv.Addr().String())
	check(t, err)
	t.Cleanup(func() { c.Close() })
	exchange(t, c)
	want["ringside_event_accepted_total"] = 1
	want["ringside_event_open"] = 1
}

func loadWatch(t *testing.T, set *metrics.Set, want map[string]float64) {
	w, err := watch.New(watch.Options{})
	check(t, err)
	t.Cleanup(func() { w.Close() })
	metrics.Add(set, "watcher", w)
	r, s, err := os.Pipe()
	check(t, err)
	t.Cleanup(func() { r.Close(); s.Close() })
	fd, err := watch.FD(r)
	check(t, err)
	check(t, w.Add(fd, watch.Read, watch.Edge, nil))
	for range 3 {
		_, err = s.Write([]byte("x"))
		check(t, err)
		for n := 0; n == 0; {
			n, err = w.Poll(-1, func(watch.Event) {})
			check(t, err)
		}
	}
	want["ringside_watch_turns_total"] = 3
	want["ringside_watch_events_total"] = 3
	want["ringside_watch_enters_total"] = 1
	want["ringside_watch_watched"] = 1
}

func loadSQLite(t *testing.T, set *metrics.Set, dir string, want map[string]float64) {
	metrics.AddFunc(set, "databases", sqlitevfs.Total)
	before := sqlitevfs.Total().Syncs
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, "db")+"?vfs=ringside&_pragma=synchronous(full)")
	check(t, err)
	t.Cleanup(func() { db.Close() })
	_, err = db.Exec("CREATE TABLE t(x); INSERT INTO t VALUES (1)")
	check(t, err)
	want["ringside_sqlitevfs_syncs_total"] = float64(before) + 2
}

func loadBackup(t *testing.T, set *metrics.Set, dir string, want map[string]float64) {
	dir = filepath.Join(dir, "backed-up")
	check(t, os.Mkdir(dir, 0o777))
	b, err := backup.Start(backup.Options{Dir: dir, Target: backup.Dir(filepath.Join(t.TempDir(), "target"))})
	check(t, err)
	t.Cleanup(func() { check(t, b.Close()) })
	metrics.Add(set, "backup", b)
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, "db")+"?vfs=ringside&_pragma=synchronous(full)")
	check(t, err)
	t.Cleanup(func() { db.Close() })
	_, err = db.Exec("CREATE TABLE t(x)")
	check(t, err)
	check(t, b.Sync(t.Context()))
	want["ringside_backup_databases"] = 1
	want["ringside_backup_longest_lag_seconds"] = 1e-9
	want["ringside_backup_objects_total"] = 1
	want["ringside_backup_bytes_total"] = 100
	want["ringside_backup_requests_total"] = 1
}

func loadReplica(t *testing.T, set *metrics.Set, dir string, want map[string]float64) {
	n, err := replica.Open(replica.Options{ID: "a", Dir: filepath.Join(dir, "node"), Listen: "127.0.0.1:0",
		Peers: map[string]string{"a": "127.0.0.1:1"}, Election: 100 * time.Millisecond}) // the only member needs no address
	if errors.Is(err, errors.ErrUnsupported) {
		return
	}
	check(t, err)
	t.Cleanup(func() { n.Close() })
	metrics.Add(set, "node", n)
	_, _, err = n.WaitLeader(t.Context())
	check(t, err)
	db, err := n.Open("db")
	check(t, err)
	defer db.Close()
	_, err = db.Exec("CREATE TABLE t(x)")
	check(t, err)
	var rows int
	check(t, db.QueryRow("SELECT count(*) FROM t").Scan(&rows))
	want["ringside_replica_commits_total"] = 1
	want["ringside_replica_entries_total"] = 2
	want["ringside_replica_verified_total"] = 1
	want["ringside_replica_databases"] = 1
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func compare(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for name, least := range want {
		if v, ok := got[name]; !ok || v < least {
			t.Errorf("%s is %v, want at least %v", name, v, least)
		}
	}
}

// TestPrometheus scrapes real values by HTTP, after real work.
func TestPrometheus(t *testing.T) {
	set := metrics.NewSet()
	reg := prometheus.NewPedanticRegistry()
	check(t, reg.Register(prom.Collector(set)))
	want := load(t, set)
	srv := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	defer srv.Close()
	resp, err := http.Get(srv.URL)
	check(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	check(t, err)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s\n%s", resp.Status, body)
	}
	got := map[string]float64{}
	for _, m := range regexp.MustCompile(`(?m)^(ringside_\w+)\{source="\w+"\} (\S+)$`).FindAllStringSubmatch(string(body), -1) {
		got[m[1]], err = strconv.ParseFloat(m[2], 64)
		check(t, err)
	}
	if len(got) != len(metrics.Metrics()) {
		t.Errorf("%d metrics, want %d", len(got), len(metrics.Metrics()))
	}
	compare(t, got, want)
	for _, pkg := range []string{"ufile", "unet", "event", "watch"} {
		if n := bytes.Count(body, []byte(`ringside_backend_info{backend="`)); !bytes.Contains(body, []byte(`package="`+pkg+`"`)) || n != 4 {
			t.Errorf("%s has no backend, or there are %d", pkg, n)
		}
	}
}

// TestOpenTelemetry collects real values, after real work.
func TestOpenTelemetry(t *testing.T) {
	set := metrics.NewSet()
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	reg, err := otelmetric.Register(provider.Meter("ringside"), set)
	check(t, err)
	want := load(t, set)
	var data metricdata.ResourceMetrics
	check(t, reader.Collect(context.Background(), &data))
	byName, units := map[string]float64{}, map[string]string{}
	for _, m := range data.ScopeMetrics[0].Metrics {
		units[m.Name] = m.Unit
		switch d := m.Data.(type) {
		case metricdata.Sum[float64]:
			if !d.IsMonotonic {
				t.Errorf("%s is not monotonic", m.Name)
			}
			byName[m.Name] = d.DataPoints[0].Value
		case metricdata.Gauge[float64]:
			byName[m.Name] = d.DataPoints[0].Value
		}
	}
	got := map[string]float64{}
	for _, m := range metrics.Metrics() {
		short := strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(m.Name, "ringside_"+m.Package+"_"), "_total"), "_seconds")
		if v, ok := byName["ringside."+m.Package+"."+short]; ok {
			got[m.Name] = v
		}
		// An exporter for Prometheus takes 1 for a ratio, and appends _ratio to the name.
		if unit := units["ringside."+m.Package+"."+short]; unit != map[bool]string{true: "s"}[m.Seconds] {
			t.Errorf("%s: unit %q", m.Name, unit)
		}
	}
	if len(got) != len(metrics.Metrics()) || byName["ringside.backend"] != 1 {
		t.Errorf("%d metrics, want %d; backend %v", len(got), len(metrics.Metrics()), byName["ringside.backend"])
	}
	compare(t, got, want)
	check(t, reg.Unregister())
	check(t, provider.Shutdown(context.Background()))
}

// TestExpvar reads the published map as a program over HTTP would.
func TestExpvar(t *testing.T) {
	set := metrics.NewSet()
	load(t, set)
	set.Publish("ringside")
	rec := httptest.NewRecorder()
	expvar.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/debug/vars", nil))
	var vars struct {
		Ringside map[string]map[string]struct {
			Stats   map[string]any
			Backend string
		}
	}
	check(t, json.Unmarshal(rec.Body.Bytes(), &vars))
	if n := vars.Ringside["appendlog"]["log"].Stats["records"]; n != 3.0 {
		t.Errorf("records: %v", n)
	}
	if b := vars.Ringside["watch"]["watcher"].Backend; b == "" {
		t.Error("no backend")
	}
}

// TestRemove removes a source and adds another one under its name.
func TestRemove(t *testing.T) {
	set := metrics.NewSet()
	metrics.AddFunc(set, "a", func() watch.Stats { return watch.Stats{Turns: 1} })
	metrics.AddFunc(set, "a", func() watch.Stats { return watch.Stats{Turns: 2} })
	if s := set.Samples(); len(s) != 5 || s[0].Value != 2 {
		t.Errorf("%v", s)
	}
	set.Remove("a")
	if s := set.Samples(); len(s) != 0 {
		t.Errorf("%v", s)
	}
	defer func() {
		if recover() == nil {
			t.Error("a type that is no Stats was accepted")
		}
	}()
	metrics.AddFunc(set, "b", func() time.Time { return time.Time{} })
}

// TestOneName adds a reactor and a System, whose Stats contain those of its own reactor, under one
// name. A scrape has one sample for each metric.
func TestOneName(t *testing.T) {
	set := metrics.NewSet()
	metrics.AddFunc(set, "a", func() ufile.Stats { return ufile.Stats{Ring: 1, Reactor: reactor.Stats{Submitted: 2}} })
	metrics.AddFunc(set, "a", func() reactor.Stats { return reactor.Stats{Submitted: 3} })
	reg := prometheus.NewPedanticRegistry()
	check(t, reg.Register(prom.Collector(set)))
	families, err := reg.Gather()
	check(t, err)
	for _, f := range families {
		if f.GetName() == "ringside_reactor_submitted_total" && (len(f.Metric) != 1 || f.Metric[0].Counter.GetValue() != 5) {
			t.Errorf("%v", f)
		}
	}
	if len(families) != 4+8 {
		t.Errorf("%d metrics", len(families))
	}
}

// TestNameOfBytes adds a source whose name, such as a file's, is not UTF-8, and one whose backend has
// such a reason.
func TestNameOfBytes(t *testing.T) {
	set := metrics.NewSet()
	metrics.Add(set, "log \xff", badText{})
	reg := prometheus.NewPedanticRegistry()
	check(t, reg.Register(prom.Collector(set)))
	if families, err := reg.Gather(); err != nil || len(families) != 5+1 {
		t.Errorf("%d metrics, %v", len(families), err)
	}
	if set.Remove("log \xff"); len(set.Samples()) > 0 {
		t.Error("the source was not removed")
	}
}

type badText struct{}

func (badText) Stats() watch.Stats             { return watch.Stats{} }
func (badText) Backend() (name, reason string) { return "epoll", "because of \xff" }

// TestPromlint lets the linter of Prometheus judge the names, kinds and descriptions.
func TestPromlint(t *testing.T) {
	set := metrics.NewSet()
	load(t, set)
	reg := prometheus.NewPedanticRegistry()
	check(t, reg.Register(prom.Collector(set)))
	families, err := reg.Gather()
	check(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	check(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestDefaultsHaveABackend is the example of docs/metrics.md: its first alert needs the
// backends of the default systems, and no others.
func TestDefaultsHaveABackend(t *testing.T) {
	set := metrics.NewSet()
	metrics.AddFunc(set, "default", ufile.Total)
	metrics.AddFunc(set, "default", unet.Total)
	metrics.AddFunc(set, "own", func() ufile.Stats { return ufile.Stats{} })
	got := set.Backends()
	if len(got) != 2 || got[0].Package != "ufile" || got[1].Package != "unet" {
		t.Fatalf("backends %+v, want those of ufile and unet", got)
	}
	if name, reason := ufile.Backend(); got[0].Name != name || got[0].Reason != reason || name == "" {
		t.Errorf("ufile: %+v, want %q, %q", got[0], name, reason)
	}
}
