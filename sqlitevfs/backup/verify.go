// SPDX-License-Identifier: MIT

package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/superfly/ltx"
)

// Report is what a target has of a database.
type Report struct {
	Name     string    `json:"name"`
	TXID     uint64    `json:"txid"`     // the newest transaction that can be restored
	Last     time.Time `json:"last"`     // of its commit, or when a store got it
	Objects  int       `json:"objects"`  // of the stream
	Bytes    int64     `json:"bytes"`    // in them
	Chain    int       `json:"chain"`    // objects that a restore reads
	Problems []string  `json:"problems"` // damaged objects, and gaps
	// Deleted is when the deletion of the database was noted; zero: it exists, or package sqlitevfs serves it.
	Deleted time.Time `json:"deleted,omitzero"`

	end File // of TXID
}

// Gone reports whether the database had been deleted at a time; the zero Time means now.
func (r Report) Gone(at time.Time) bool {
	return !r.Deleted.IsZero() && (at.IsZero() || r.Deleted.Before(at))
}

// Look reports what a target has of a database by the names of the objects, without reading them.
func Look(ctx context.Context, t Target, database string) (Report, error) {
	files, err := Files(ctx, patiently(t), database)
	if err != nil {
		return Report{Name: database}, err
	}
	return look(database, files), nil
}

// Databases returns a Report of each database of a target, sorted by name. It lists the target, and reads no object.
func Databases(ctx context.Context, t Target) ([]Report, error) { return databases(ctx, patiently(t)) }

func databases(ctx context.Context, t Target) ([]Report, error) {
	objects, err := t.List(ctx, "")
	if err != nil {
		return nil, err
	}
	streams := make(map[string][]File)
	ends := make(map[string]Object)
	for _, o := range objects {
		if name, f, ok := parseObject(o); ok {
			streams[name] = append(streams[name], f)
		} else if name, _, ok := parseDeleted(o); ok && o.Name > ends[name].Name {
			ends[name] = o
		}
	}
	reports := make([]Report, 0, len(streams))
	for _, name := range slices.Sorted(maps.Keys(streams)) {
		streams[name] = sorted(streams[name])
		r := look(name, streams[name])
		if _, at, ok := parseDeleted(ends[name]); ok && at >= newest(streams[name]) {
			r.Deleted = ends[name].Time
		}
		reports = append(reports, r)
	}
	return reports, nil
}

// Current reports whether the newest state that a target has of a database is that of a database file and its WAL. It
// reads these whole. A database that is written meanwhile, or whose newest commit is younger than the interval of
// its Backup, may seem to differ. A file with a hot rollback journal differs.
func Current(ctx context.Context, t Target, database, path string) (bool, error) {
	t = patiently(t)
	files, err := Files(ctx, t, database)
	if err != nil {
		return false, err
	}
	chain, err := plan(files)
	if err != nil {
		return false, fmt.Errorf("%s: %w", database, err)
	}
	want, err := tail(ctx, t, database, chain[len(chain)-1])
	if err != nil {
		return false, fmt.Errorf("%s: %w", database, err)
	}
	b, err := readBase(path)
	return err == nil && b.last().checksum() == want, err
}

func look(database string, files []File) Report {
	r := Report{Name: database, Objects: len(files)}
	for _, f := range files {
		r.Bytes += f.Size
	}
	chain, err := plan(files)
	if err != nil {
		r.Problems = append(r.Problems, err.Error())
	}
	if r.Chain = len(chain); r.Chain > 0 {
		r.end = chain[r.Chain-1]
		r.TXID, r.Last = uint64(r.end.Max), r.end.Time
	}
	return r
}

// Verify reads every object of a database, and compares the checksums of pages, objects and states. An object that is
// lost, damaged, copied to another name or exchanged is a problem, also if only older states need it. The last objects
// cannot be missed: compare Report.Last. An error means that the target could not be read, after reads that failed were
// repeated as Restore does. A backup may run meanwhile.
func Verify(ctx context.Context, t Target, database string) (Report, error) {
	t = patiently(t)
	files, err := Files(ctx, t, database)
	if err != nil {
		return Report{Name: database}, err
	}
	r := look(database, files)
	if len(r.Problems) == 0 {
		cluster, err := ofCluster(ctx, t)
		if err != nil {
			return r, err
		}
		if n := gap(files, cluster); n != 0 {
			r.Problems = append(r.Problems, fmt.Sprintf("%v for older states: transaction %d", ErrGap, n))
		}
	}
	before := make(map[ltx.TXID]ltx.Checksum) // the states that objects begin with, by transaction
	after := make(map[ltx.TXID]ltx.Checksum)
	for _, f := range files {
		name := f.Object(database)
		dec, err := decode(ctx, t, database, f, func(ltx.Header, uint32, []byte) error { return ctx.Err() })
		switch {
		case ctx.Err() != nil:
			return r, ctx.Err()
		case errors.Is(err, fs.ErrNotExist) && removed(ctx, t, database, f):
			continue
		case isTarget(err) && !errors.Is(err, fs.ErrNotExist):
			return r, fmt.Errorf("%s: %w", name, err)
		case err != nil:
			r.Problems = append(r.Problems, fmt.Sprintf("%s: %v", name, err))
			continue
		case dec.Header().NoChecksum():
			continue // written by Litestream
		}
		sum := dec.Trailer().PostApplyChecksum
		if old, ok := after[f.Max]; ok && old != sum {
			r.Problems = append(r.Problems, fmt.Sprintf("%s: another object has another state of transaction %d", name, f.Max))
		}
		after[f.Max] = sum
		if f.Min > 1 {
			before[f.Min-1] = dec.Header().PreApplyChecksum
		}
	}
	for n, sum := range before {
		if old, ok := after[n]; ok && old != sum {
			r.Problems = append(r.Problems, fmt.Sprintf("%s: the object after transaction %d does not follow it", database, n))
		}
	}
	if len(r.Problems) == 0 {
		if chain, err := plan(files); err == nil {
			switch err := check(ctx, t, database, chain); {
			case err == nil, errors.Is(err, fs.ErrNotExist):
			case ctx.Err() != nil, isTarget(err):
				return r, err
			default:
				r.Problems = append(r.Problems, err.Error())
			}
		}
	}
	return r, nil
}

// ofCluster reports whether a target has the databases of a Source.
func ofCluster(ctx context.Context, t Target) (bool, error) {
	r, err := t.Get(ctx, clusterObject, 0, 1)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, r.Close()
}

// gap returns the first transaction after the oldest snapshot that no file has, or 0. A snapshot after it ends a gap only
// for later states. Two processes of a cluster may each begin a stream with a snapshot: one of these needs no
// continuation.
func gap(files []File, cluster bool) ltx.TXID {
	var at ltx.TXID
	for _, f := range files { // snapshots are in the order of their transactions
		if f.Min == 1 && (at == 0 || cluster && !continues(files, at)) {
			at = f.Max
		}
	}
	for end := newest(files); at < end; {
		next := at
		for _, f := range files {
			if f.Max > next && f.Min <= at+1 && (f.Min > 1 || f.Max == at+1) {
				next = f.Max
			}
		}
		if next == at {
			return at + 1
		}
		at = next
	}
	return 0
}

// continues reports whether a file continues the state of a transaction.
func continues(files []File, at ltx.TXID) bool {
	return slices.ContainsFunc(files, func(f File) bool { return f.Min > 1 && f.Min <= at+1 && f.Max > at })
}

// removed reports whether a file is not listed any more: retention has removed it while Verify ran.
func removed(ctx context.Context, t Target, database string, f File) bool {
	files, err := Files(ctx, t, database)
	return err == nil && !slices.ContainsFunc(files, func(g File) bool { return g.Object("") == f.Object("") })
}

// check computes the state after each file of a plan without storing it.
func check(ctx context.Context, t Target, database string, chain []File) error {
	var all sums
	for _, f := range chain {
		dec, err := decode(ctx, t, database, f, func(_ ltx.Header, n uint32, p []byte) error {
			all.set(n, pageSum(n, p))
			return ctx.Err()
		})
		if err != nil {
			return err
		}
		all.resize(dec.Header().Commit)
		if !dec.Header().NoChecksum() && all.checksum() != dec.Trailer().PostApplyChecksum {
			return errors.Join(ltx.ErrChecksumMismatch, errors.New(f.Object(database)))
		}
	}
	return nil
}
