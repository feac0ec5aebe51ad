// SPDX-License-Identifier: MIT

package suite

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/sqlitebench"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

// These are the workloads of the suite "sqlite".
const (
	SpeedWork   = "speed"
	TenantsWork = "tenants"
	ColdWork    = "cold"
)

var sqliteWorks = []string{SpeedWork, TenantsWork, ColdWork}

// SQLiteOptions are the options of the suite "sqlite". The zero value is the brief run.
type SQLiteOptions struct {
	// Dir holds the databases, in a subdirectory that is removed. If it is empty, [DefaultDir]
	// chooses it.
	Dir string
	// Workloads are the workloads that are measured in full. If it is empty, commits and cold reads
	// are measured briefly.
	Workloads []string
	// Engines, if not empty, restricts the engines.
	Engines []string
	// Databases, Connections, Journals and Commits replace axes of the workload "tenants". Cold
	// replaces the operations of the workload "cold".
	Databases   []int
	Connections []int
	Journals    []string
	Commits     []string
	Cold        []string
	// Scale is the percentage of statements and rows (0: 100).
	Scale int
	// Timing.Duration is the length of a window of commits.
	Timing
	// Seed selects rows and keys.
	Seed uint64

	// brief reports whether no workload was named.
	brief bool
}

// maxTenants bounds --databases and --connections.
const maxTenants = 1000

// Validate returns an error that names the first option that is not valid.
func (o SQLiteOptions) Validate() error {
	words := SQLiteWords()
	if err := cmp.Or(words.check("workload", o.Workloads), words.check("engine", o.Engines),
		words.check("journal", o.Journals), words.check("commit", o.Commits), words.check("cold", o.Cold)); err != nil {
		return err
	}
	if len(o.withDefaults().points()) == 0 {
		return fmt.Errorf("--engine %s: none of them runs the chosen workloads and journal modes: ringside-log needs WAL mode, ringside-group and memory do not have it, and memory runs only the workload speed",
			strings.Join(o.Engines, ","))
	}
	return cmp.Or(between("databases", o.Databases, 1, maxTenants, 1), between("connections", o.Connections, 1, maxTenants, 1),
		between("scale", []int{o.Scale}, 0, 1000, 1), o.validate())
}

// withDefaults sets the options that are zero.
func (o SQLiteOptions) withDefaults() SQLiteOptions {
	if o.Dir == "" {
		o.Dir = DefaultDir()
	}
	if len(o.Workloads) == 0 {
		o.Workloads, o.brief = []string{TenantsWork, ColdWork}, true
	}
	if o.Scale == 0 {
		o.Scale = 100
	}
	o.setDefaults()
	return o
}

// These are approximate sizes in bytes: of a row of a cold database, of a tenant with its WAL, of
// one that stores blobs, and of the speed tests.
const (
	rowSpace    = 700
	tenantSpace = 6 << 20
	blobSpace   = 32 << 20
	speedSpace  = 64 << 20
)

// Space returns the directory of the databases and about how many bytes they need.
func (o SQLiteOptions) Space() (dir string, bytes int64) {
	o = o.withDefaults()
	for _, p := range o.points() {
		switch p.work {
		case SpeedWork:
			bytes = max(bytes, speedSpace)
		case TenantsWork:
			space := int64(tenantSpace)
			t := p.round.(*sqlitebench.Tenants)
			if t.Work == sqlitebench.Blob {
				space = blobSpace
			}
			bytes = max(bytes, int64(t.Databases)*space)
		}
	}
	if slices.Contains(o.Workloads, ColdWork) { // four databases and a copy of one, which stay until the end
		bytes += 5 * rowSpace * int64(o.rows())
	}
	return o.Dir, bytes
}

// among returns the engines that the user selected.
func (o SQLiteOptions) among(engines ...string) []string {
	if len(o.Engines) == 0 {
		return engines
	}
	return slices.DeleteFunc(engines, func(e string) bool { return !slices.Contains(o.Engines, e) })
}

// sqlitePoint is one series of interleaved rounds.
type sqlitePoint struct {
	work   string
	params report.Params
	series []sqliteSeries
	round  workload.Work // without its directory and what a series changes
}

// sqliteSeries is one row: an engine with a journal mode.
type sqliteSeries struct {
	name, engine, journal string
}

// points returns the points of all workloads.
func (o SQLiteOptions) points() (out []sqlitePoint) {
	for _, work := range o.Workloads {
		switch work {
		case SpeedWork:
			out = append(out, o.speed())
		case TenantsWork:
			out = append(out, o.tenants()...)
		case ColdWork:
			out = append(out, o.cold()...)
		}
	}
	return slices.DeleteFunc(out, func(p sqlitePoint) bool { return len(p.series) == 0 })
}

// speed returns one point. Each of its rounds runs all tests.
func (o SQLiteOptions) speed() sqlitePoint {
	p := sqlitePoint{work: SpeedWork}
	if len(o.among(sqlitebench.Memory)) > 0 {
		p.series = append(p.series, sqliteSeries{sqlitebench.Memory, sqlitebench.Memory, sqlitebench.Rollback})
	}
	inWAL := []string{sqlitebench.Default, sqlitebench.Ringside, sqlitebench.Log, sqlitebench.Modernc, sqlitebench.Mattn}
	others := []string{sqlitebench.Default, sqlitebench.Plain, sqlitebench.Ringside, sqlitebench.Modernc, sqlitebench.Mattn}
	for _, e := range []string{sqlitebench.NoDirSync, sqlitebench.Group} { // They are measured on request only.
		if slices.Contains(o.Engines, e) {
			others = append(others, e)
		}
	}
	for _, journal := range orThese(o.Journals, sqlitebench.Rollback, sqlitebench.WAL) {
		list := others
		if sqlitebench.UsesWAL(journal) {
			list = inWAL
		}
		for _, e := range o.among(slices.Clone(list)...) {
			p.series = append(p.series, sqliteSeries{e + "-" + journal, e, journal})
		}
	}
	p.round = &sqlitebench.Speed{Scale: o.Scale, Seed: o.Seed}
	return p
}

// orThese returns values, or the others if values is empty.
func orThese[T any](values []T, otherwise ...T) []T {
	if len(values) == 0 {
		return otherwise
	}
	return values
}

// tenants returns points with many databases of one connection each, then points with one database
// and many connections.
func (o SQLiteOptions) tenants() (out []sqlitePoint) {
	databases, connections := []int{1, 4, 16, 64}, []int{4, 16}
	if o.brief {
		databases, connections = []int{1, 16}, nil
	}
	if len(o.Connections) > 0 && len(o.Databases) == 0 {
		databases = nil
	} else if len(o.Databases) > 0 && len(o.Connections) == 0 {
		connections = nil
	}
	for _, journal := range orThese(o.Journals, sqlitebench.Extra, sqlitebench.Persist, sqlitebench.WAL) {
		for _, work := range o.commits(journal) {
			databases := databases
			if o.brief && journal == sqlitebench.Extra && len(databases) > 0 {
				databases = databases[1:] // one alone is like PERSIST
			}
			for _, n := range orThese(o.Databases, databases...) {
				out = append(out, o.tenant(sqlitebench.Tenants{Journal: journal, Work: work, Databases: n, Connections: 1}))
			}
			for _, n := range orThese(o.Connections, connections...) {
				out = append(out, o.tenant(sqlitebench.Tenants{Journal: journal, Work: work, Databases: 1, Connections: n}))
			}
			if journal == sqlitebench.Persist && work == "" && !o.brief && len(o.Connections) == 0 { // syncfs also writes the data of other processes.
				for _, n := range orThese(o.Databases, 16, 64) {
					out = append(out, o.tenant(sqlitebench.Tenants{Journal: journal, Databases: n, Connections: 1, Writer: true}))
				}
			}
		}
	}
	if len(o.Journals)+len(o.Databases)+len(o.Connections)+len(o.Commits) == 0 && !o.brief {
		out = append(out, o.tenant(sqlitebench.Tenants{Journal: sqlitebench.WALNormal, Databases: 16, Connections: 1}))
	}
	return out
}

// commits returns the kinds of commits; "" inserts a row. Orders and blobs are measured in full in
// WAL mode only.
func (o SQLiteOptions) commits(journal string) []string {
	work := orThese(o.Commits, sqlitebench.Row)
	if len(o.Commits) == 0 && !o.brief && journal == sqlitebench.WAL {
		work = sqlitebench.TenantWork
	}
	work = slices.Clone(work)
	for i := range work {
		if work[i] == sqlitebench.Row {
			work[i] = ""
		}
	}
	return work
}

// tenant returns the point of a job, with the engines that support its journal mode.
func (o SQLiteOptions) tenant(job sqlitebench.Tenants) sqlitePoint {
	p := sqlitePoint{
		work:   TenantsWork,
		params: report.Params{"journal": job.Journal, "databases": job.Databases, "connections": job.Connections},
	}
	if job.Work != "" {
		p.params["commit"] = job.Work
	}
	if job.Writer {
		p.params["writer"] = sqlitebench.WriterRate
	}
	own := []string{sqlitebench.Ringside, sqlitebench.Group}
	if sqlitebench.UsesWAL(job.Journal) {
		own[1] = sqlitebench.Log
	}
	if o.brief { // what the documentation recommends
		own = own[:1]
		if sqlitebench.UsesWAL(job.Journal) {
			own = []string{sqlitebench.Log}
		}
	}
	engines := append([]string{sqlitebench.Default}, own...)
	for _, e := range o.among(append(engines, sqlitebench.Modernc, sqlitebench.Mattn)...) {
		p.series = append(p.series, sqliteSeries{e, e, job.Journal})
	}
	job.Journal = "" // The series has the journal mode.
	p.round = &job
	return p
}

// coldRows is the number of rows in the databases: about 60 MiB.
const coldRows = 100_000

// rows returns the scaled number of rows.
func (o SQLiteOptions) rows() int { return max(coldRows*o.Scale/100, sqlitebench.MinRows) }

func (o SQLiteOptions) cold() (out []sqlitePoint) {
	all := sqlitebench.ColdWork
	if o.brief {
		all = []string{sqlitebench.Scan, sqlitebench.Contiguous}
	}
	for _, what := range orThese(o.Cold, all...) {
		p := sqlitePoint{
			work: ColdWork, params: report.Params{"what": what, "rows": o.rows()},
			round: &sqlitebench.Cold{What: what, Rows: o.rows(), Seed: o.Seed},
		}
		for _, e := range o.among(sqlitebench.Default, sqlitebench.Ringside, sqlitebench.Modernc, sqlitebench.Mattn) {
			p.series = append(p.series, sqliteSeries{e, e, sqlitebench.Rollback})
		}
		out = append(out, p)
	}
	return out
}
