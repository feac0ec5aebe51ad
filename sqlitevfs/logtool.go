// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"github.com/ringside-io/ringside/sqlitevfs/internal/grouplog"
)

// LogReport describes the log of commits in a directory: its contents, and what
// a replay would do or did.
type LogReport struct {
	Path     string `json:"path"`
	Size     int64  `json:"size,omitempty"`     // bytes
	Segments int    `json:"segments,omitempty"` // of the file
	Closed   bool   `json:"closed"`             // it holds nothing
	InUse    bool   `json:"inUse"`              // by a process, which may change it
	Commits  int    `json:"commits"`
	Batches  int    `json:"batches"`
	Torn     bool   `json:"torn,omitempty"` // the newest batch is not whole: it was never acknowledged
	// Missing is how many commits the WALs lack, which a replay writes into them;
	// after a replay how many it wrote.
	Missing int `json:"missing"`
	// Damage describes the unreadable parts of the log, a line for each place.
	Damage []string `json:"damage,omitempty"`
	// WALs are those with commits in the log, by path.
	WALs []LogWAL `json:"wals,omitempty"`
	// Skipped are commits that cannot be brought back, with the reason.
	Skipped []LogProblem `json:"skipped,omitempty"`
	// Refused are the WALs whose databases cannot be opened, because they may lack
	// commits, with the reason.
	Refused []LogProblem `json:"refused,omitempty"`
}

// LogWAL describes the commits of a log for one WAL.
type LogWAL struct {
	Path    string `json:"path"`
	Commits int    `json:"commits"`
	Bytes   int64  `json:"bytes"`   // of their frames
	Present int    `json:"present"` // commits that the WAL, or its database, has
	Missing int    `json:"missing"` // that it lacks, and that a replay writes
	Lost    int    `json:"lost"`    // that a replay cannot write: see Skipped and Refused
}

// LogProblem is why commits of a WAL cannot be replayed, or not now.
type LogProblem struct {
	WAL     string `json:"wal"`
	Commits int    `json:"commits"`
	Reason  string `json:"reason"`
}

// Sound reports whether the log is not damaged and nothing stands in the way of a
// replay of all that it holds.
func (r *LogReport) Sound() bool {
	return len(r.Damage) == 0 && len(r.Skipped) == 0 && len(r.Refused) == 0
}

// InspectLog reads the log of a directory and compares it with the databases. It
// changes nothing, and only needs to read the files. Another process may change them
// meanwhile, which the report may show. The error matches fs.ErrNotExist where there is no log.
func InspectLog(dir string) (LogReport, error) {
	s, err := grouplog.Inspect(dir, grouplog.Options{})
	r := LogReport{Path: s.Path, Size: s.Size, Segments: s.Segments, Closed: s.Clean, InUse: s.InUse}
	r.add(&s.Report)
	for _, w := range s.WALs {
		w := LogWAL{Path: w.Path, Commits: w.Commits, Bytes: w.Bytes, Present: w.Report.Present + w.Report.Old, Missing: w.Report.Applied}
		w.Lost = w.Commits - w.Present - w.Missing
		r.WALs = append(r.WALs, w)
	}
	return r, err
}

// ReplayLog writes the commits in the log of a directory into the databases, as opening one
// of them does, and empties the log, unless a database is refused: see Refused. No process
// may use the log.
func ReplayLog(dir string) (LogReport, error) {
	report, err := grouplog.Recover(dir, grouplog.Options{})
	r := LogReport{Path: grouplog.Path(dir, grouplog.Options{})}
	r.add(&report)
	return r, err
}

// SalvageLog replays the readable commits of a damaged log, renames the log, and returns
// its new name. The databases can be opened then. The report has their lost commits. While a
// WAL cannot be completed for another reason, the log keeps its name and aside is "".
func SalvageLog(dir string) (r LogReport, aside string, err error) {
	report, aside, err := grouplog.Salvage(dir, grouplog.Options{})
	r = LogReport{Path: grouplog.Path(dir, grouplog.Options{})}
	r.add(&report)
	return r, aside, err
}

func (r *LogReport) add(from *grouplog.Report) {
	r.Commits, r.Batches, r.Torn, r.Missing, r.Damage = from.Records, from.Batches, from.Torn, from.Applied, from.Damage
	for _, s := range from.Skipped {
		r.Skipped = append(r.Skipped, LogProblem{s.WAL, s.Commits, s.Why})
	}
	for _, u := range from.Unresolved {
		r.Refused = append(r.Refused, LogProblem{u.WAL, u.Commits, u.Err.Error()})
	}
	if len(from.Unresolved) == 0 && from.Pending() != nil {
		r.Refused = append(r.Refused, LogProblem{"*", 0, from.Pending().Error()})
	}
}
