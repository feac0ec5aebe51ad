// SPDX-License-Identifier: MIT

package suite

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/fio"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/sqlitebench"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

// Words are the accepted values of a suite's flags, by the name of the flag without dashes. Flags
// for numbers, sizes and files are not included.
type Words map[string][]string

// FileWords returns the words of the suite "file".
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

// NetWords returns the words of the suite "net".
func NetWords() Words {
	return Words{"workload": netWorkloadNames(), "engine": netKnown, "client": netClients}
}

// WatchWords returns the words of the suite "watch".
func WatchWords() Words {
	return Words{"workload": watchWorks, "engine": watchEngines, "source": watchSources, "mode": modeNames()}
}

// SQLiteWords returns the words of the suite "sqlite".
func SQLiteWords() Words {
	return Words{
		"workload": sqliteWorks,
		"engine":   sqlitebench.Engines,
		"journal":  sqlitebench.Journals,
		"commit":   sqlitebench.TenantWork,
		"cold":     sqlitebench.ColdWork,
	}
}

// RingWords returns the words of the suite "ring".
func RingWords() Words {
	return Words{
		"workload": ringWorks, "ring": {workload.RingDefault, workload.RingDefer}, "cache": {CacheHot, CacheDirect},
	}
}

// check returns an error for a value that the flag does not accept, and for one that is given twice.
func (w Words) check(flag string, given []string) error {
	for i, v := range given {
		switch {
		case !slices.Contains(w[flag], v):
			return fmt.Errorf("--%s %q: must be %s", flag, v, orWords(w[flag]))
		case slices.Contains(given[:i], v):
			return fmt.Errorf("--%s %q: is given twice: leave out one", flag, v)
		}
	}
	return nil
}

// sizeBetween returns an error, in the units of the flag, if a size is out of bounds or not a multiple
// of the lower bound.
func sizeBetween(flag string, values []int, low, high int) error {
	for _, v := range values {
		if v < low || v > high || v%low != 0 {
			return fmt.Errorf("--%s %s: must be a multiple of %s, up to %s", flag, report.FormatBytes(int64(v)), report.FormatBytes(int64(low)), report.FormatBytes(int64(high)))
		}
	}
	return nil
}

// orWords joins words for a sentence.
func orWords(names []string) string {
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "" })
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}
