// SPDX-License-Identifier: MIT

package suite

import (
	"fmt"
	"slices"

	"github.com/ringside-io/ringside/cmd/internal/fio"
	"github.com/ringside-io/ringside/cmd/internal/sqlitebench"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

// Words are what the flags of a suite may be given, by the name of the flag without dashes. Flags
// that take numbers, sizes or files are not among them.
type Words map[string][]string

// FileWords are those of the suite "file".
func FileWords() Words {
	var works []string
	for _, w := range fileWorkloads {
		works = append(works, w.name())
	}
	return Words{
		"workload": works,
		"cache":    {CacheHot, CacheDirect, CacheCold},
		"fast":     {string(FastAdd), string(FastOnly), string(FastNone)},
		"fio-also": {fio.NameFixed, fio.NameBatched},
	}
}

// NetWords are those of the suite "net".
func NetWords() Words {
	return Words{"workload": netWorkloadNames(), "engine": netKnown, "client": netClients}
}

// WatchWords are those of the suite "watch".
func WatchWords() Words {
	return Words{"workload": watchWorks, "engine": watchEngines, "source": watchSources, "mode": modeNames()}
}

// SQLiteWords are those of the suite "sqlite".
func SQLiteWords() Words {
	return Words{
		"workload": sqliteWorks,
		"engine":   sqlitebench.Engines,
		"journal":  {sqlitebench.Rollback, sqlitebench.Persist, sqlitebench.WAL},
		"cold":     sqlitebench.ColdWork,
	}
}

// RingWords are those of the suite "ring".
func RingWords() Words {
	return Words{"ring": {workload.RingDefault, workload.RingDefer}}
}

// check refuses what the flag may not be given, and what it is given twice.
func (w Words) check(flag string, given []string) error {
	for i, v := range given {
		switch {
		case !slices.Contains(w[flag], v):
			return fmt.Errorf("--%s %q: must be %s", flag, v, orWords(w[flag]))
		case slices.Contains(given[:i], v):
			return fmt.Errorf("--%s: %q is named twice", flag, v)
		}
	}
	return nil
}
