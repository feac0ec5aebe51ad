// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"github.com/ringside-io/ringside/sqlitevfs/internal/grouplog"
)

// LogReport describes the log of commits in a directory: its contents, and what
// a replay would do, or did.
type LogReport struct {
	Path     string `json:"path"`               // the file of the log
	Size     int64  `json:"size,omitempty"`     // bytes of the file
	Segments int    `json:"segments,omitempty"` // segments of the file
	Closed   bool   `json:"closed"`             // the log is closed and holds no commits
	InUse    bool   `json:"inUse"`              // a process uses the log and may change it
	Commits  int    `json:"commits"`            // commits in the log
	Batches  int    `json:"batches"`            // writes that the commits shared
	Torn     bool   `json:"torn,omitempty"`     // the newest batch is incomplete: it was never acknowledged
	// Missing is the number of commits that the WALs lack and that a replay writes into
	// them. In the report of a replay it is the number of commits that the replay wrote.
	Missing int `json:"missing"`
	// Damage describes the unreadable parts of the log, one line for each.
	Damage []string `json:"damage,omitempty"`
	// WALs are the WALs that have commits in the log, sorted by path. Only InspectLog sets it.
	WALs []LogWAL `json:"wals,omitempty"`
	// Skipped are the commits that can never be restored.
	Skipped []LogProblem `json:"skipped,omitempty"`
	// Refused are the WALs whose databases cannot be opened, because they may lack commits.
	// The WAL "*" means that it is not known which databases may lack commits.
	Refused []LogProblem `json:"refused,omitempty"`
}

// LogWAL describes the commits of a log for one WAL.
type LogWAL struct {
	Path    string `json:"path"`    // the path of the WAL
	Commits int    `json:"commits"` // commits of the WAL in the log
	Bytes   int64  `json:"bytes"`   // bytes of their WAL frames
	Present int    `json:"present"` // of Commits: already in the WAL or in its database
	Missing int    `json:"missing"` // of Commits: not in the WAL; a replay writes them
	Lost    int    `json:"lost"`    // of Commits: a replay cannot write them, see Skipped and Refused of LogReport
}

// LogProblem describes commits of a WAL that cannot be replayed, or cannot be replayed now.
type LogProblem struct {
	WAL     string `json:"wal"`
	Commits int    `json:"commits"`
	Reason  string `json:"reason"`
}

// Sound reports whether the log is undamaged and all of its commits can be, or were, replayed.
func (r *LogReport) Sound() bool {
	return len(r.Damage) == 0 && len(r.Skipped) == 0 && len(r.Refused) == 0
}

// InspectLog reads the log of a directory and compares it with the databases. It changes
// nothing, and needs only permission to read the files. If another process changes them
// meanwhile, the report may be inconsistent. Without a log the error matches fs.ErrNotExist.
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

// ReplayLog writes the commits in the log of a directory into the WALs of the databases, as
// opening one of the databases does. It then empties the log, unless the report has Refused
// entries. It fails while a process uses the log. Without a log the error matches
// fs.ErrNotExist.
func ReplayLog(dir string) (LogReport, error) {
	report, err := grouplog.Recover(dir, grouplog.Options{})
	r := LogReport{Path: grouplog.Path(dir, grouplog.Options{})}
	r.add(&report)
	return r, err
}

// SalvageLog replays the readable commits of a damaged log, renames the log, and returns
// the new name as aside. The databases can then be opened, without the lost commits, which
// the report lists. If a WAL cannot be completed for another reason than the damage, the log
// keeps its name, aside is "" and err has the reason. SalvageLog fails while a process uses the
// log.
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
