// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/ncruces/go-sqlite3/vfs"
)

// Switch turns a part of the VFS on or off.
type Switch int

const (
	// Auto uses the part where it is available and measured to be faster. The fields of
	// [Options] state exceptions.
	Auto Switch = iota
	// On uses the part wherever it is available. Where it is not, the database is opened
	// without it, and [Stats] has the reason.
	On
	// Off never uses the part.
	Off
)

// String returns auto, on or off.
func (s Switch) String() string {
	switch s {
	case Auto:
		return "auto"
	case On:
		return "on"
	case Off:
		return "off"
	}
	return fmt.Sprintf("Switch(%d)", int(s))
}

// parseSwitch parses the names that String returns, and SQLite's words for a boolean.
func parseSwitch(s string) (Switch, error) {
	switch strings.ToLower(s) {
	case "auto":
		return Auto, nil
	case "on", "yes", "true", "1":
		return On, nil
	case "off", "no", "false", "0":
		return Off, nil
	}
	return Auto, fmt.Errorf("%q is not auto, on or off", s)
}

// Atomic selects the guarantee on which the VFS relies when it reports that 4 KiB are written
// whole or not at all.
type Atomic int

const (
	// AtomicOff relies on no guarantee: SQLite uses a journal.
	AtomicOff Atomic = iota
	// AtomicOn relies on the device, which must have sectors of 4 KiB or more. Opening a
	// database fails if its device has smaller sectors or the kernel does not report their
	// size.
	AtomicOn
	// AtomicTrust relies on the user's knowledge; the device is not checked. It is for devices
	// and file systems that write 4 KiB whole but do not report it, such as a copy-on-write
	// file system or a device with a battery.
	AtomicTrust
)

// String returns off, on or trust.
func (a Atomic) String() string {
	switch a {
	case AtomicOff:
		return "off"
	case AtomicOn:
		return "on"
	case AtomicTrust:
		return "trust"
	}
	return fmt.Sprintf("Atomic(%d)", int(a))
}

// parseAtomic parses the names that String returns.
func parseAtomic(s string) (Atomic, error) {
	for _, a := range []Atomic{AtomicOff, AtomicOn, AtomicTrust} {
		if strings.EqualFold(s, a.String()) {
			return a, nil
		}
	}
	return AtomicOff, fmt.Errorf("%q is not off, on or trust", s)
}

// Options configure a VFS; the zero value has the options of the VFS "ringside".
type Options struct {
	// Prefetch reads the next leaves of a scan of a fragmented B-tree into the page
	// cache. (Linux)
	Prefetch Switch
	// PrefetchDepth limits the number of pages that are fetched ahead until a scan has read
	// a fifth of a table. It is at most 1024; 0 means 64.
	PrefetchDepth int
	// PrefetchBytes limits, in bytes, what is fetched ahead after a scan has read a fifth
	// of a table; 0 means 256 MiB. Half of the free memory is a further limit. If either
	// is less than about 2 MiB, the rest of the table is not fetched.
	PrefetchBytes int
	// GroupSync lets databases of one file system that sync at the same time share one
	// syncfs(2), which also writes the data of other programs on that file system. Auto
	// measures at run time whether shared syncs are faster, and leaves out databases in WAL
	// mode, for which GroupLog is faster; On does neither. Neither
	// shares syncs on a file system where syncfs is not known to make everything durable;
	// PRAGMA ringside then shows the reason. (Linux 5.17, and 6.12 for ext4)
	GroupSync Switch
	// GroupLog makes commits in WAL mode with synchronous=FULL durable by a log that
	// databases share. Concurrent commits share one write. After a crash the log is
	// replayed when a database of its directory is opened, also by a VFS that does not use
	// the log. If stock SQLite opens the files before the replay, it does not see the newest
	// commits, as with synchronous=NORMAL, but never a damaged database. Auto means Off:
	// without a log every reader of the files finds each commit. (Linux)
	GroupLog Switch
	// GroupLogDir is the directory of the log. "" means the directory of each database: a copy
	// of a directory is then complete. With another directory, databases in many directories
	// share its log. They should then always be opened with that GroupLogDir. A small file
	// beside each WAL in use names the directory; the file has the name of the WAL with ".log"
	// added. A database that may lack commits of that log is refused when it is opened without
	// this option.
	GroupLogDir string
	// DirSync makes the directory entry of a new database, journal or WAL durable before
	// SQLite relies on it, and the removal of a journal before a commit with
	// synchronous=FULL returns. With Off, as with the default VFS, neither happens: a
	// power cut may then undo commits, or remove a new database. Auto means On.
	DirSync Switch
	// Atomic4K lets SQLite commit without a journal in rollback modes, when a transaction
	// changes one page of a database with pages of 4096 bytes. SQLite then only writes and
	// syncs the page. On a device that may tear the page, a power cut damages the database.
	// Atomic4K is never chosen automatically. AtomicOn checks the device (statx, Linux 6.1).
	Atomic4K Atomic
	// Base names the wrapped VFS; "" means the default VFS. The wrapped VFS must keep its
	// files at the paths of their names. If it is not the default VFS, its files are read
	// and synced by its methods only, without prefetch and group sync. If it has a method
	// SyncDir(string) error, that method syncs directories.
	Base string
	// Logger receives failed syncs and replayed commits; nil means slog.Default().
	Logger *slog.Logger
	// Trace adds regions of package runtime/trace: "sqlitevfs.sync" for each sync of a file,
	// "sqlitevfs.commit" for a commit to the log, and "sqlitevfs.prefetch" for each call that
	// fetches pages ahead. It gives the goroutine of a log that the VFS opens the label
	// ringside=sqlitevfs of package runtime/pprof.
	Trace bool
}

func (o *Options) check() error {
	for name, s := range map[string]Switch{"Prefetch": o.Prefetch, "GroupSync": o.GroupSync, "GroupLog": o.GroupLog, "DirSync": o.DirSync} {
		if s < Auto || s > Off {
			return fmt.Errorf("sqlitevfs: Options.%s: unknown value %v: want Auto, On or Off", name, s)
		}
	}
	if o.Atomic4K < AtomicOff || o.Atomic4K > AtomicTrust {
		return fmt.Errorf("sqlitevfs: Options.Atomic4K: unknown value %v: want AtomicOff, AtomicOn or AtomicTrust", o.Atomic4K)
	}
	if o.PrefetchDepth < 0 || o.PrefetchDepth > maxDepth {
		return fmt.Errorf("sqlitevfs: Options.PrefetchDepth: %d is not between 0 and %d", o.PrefetchDepth, maxDepth)
	}
	if o.PrefetchBytes < 0 {
		return fmt.Errorf("sqlitevfs: Options.PrefetchBytes: %d is negative", o.PrefetchBytes)
	}
	return nil
}

func (o *Options) logger() *slog.Logger {
	if o.Logger != nil {
		return o.Logger
	}
	return slog.Default()
}

// The parameters of a database's URI, which override the VFS's options for it.
const (
	paramPrefetch  = "prefetch"
	paramGroupSync = "groupsync"
	paramGroupLog  = "grouplog"
	paramLogDir    = "grouplogdir"
	paramDirSync   = "dirsync"
	paramDepth     = "prefetchdepth"
	paramBytes     = "prefetchbytes"
	paramAtomic    = "atomic4k"
)

// with returns the options, overridden by the parameters of a database's URI.
func (o Options) with(name *vfs.Filename) (Options, error) {
	switched := func(to *Switch) func(string) error {
		return func(v string) (err error) { *to, err = parseSwitch(v); return err }
	}
	number := func(to *int) func(string) error {
		return func(v string) error {
			n, err := strconv.Atoi(v)
			if err != nil {
				return fmt.Errorf("%q is not a number", v)
			}
			*to = n
			return nil
		}
	}
	for _, param := range []struct {
		key  string
		read func(string) error
	}{
		{paramPrefetch, switched(&o.Prefetch)},
		{paramGroupSync, switched(&o.GroupSync)},
		{paramGroupLog, switched(&o.GroupLog)},
		{paramLogDir, func(v string) error { o.GroupLogDir = v; return nil }},
		{paramDirSync, switched(&o.DirSync)},
		{paramAtomic, func(v string) (err error) { o.Atomic4K, err = parseAtomic(v); return err }},
		{paramDepth, number(&o.PrefetchDepth)},
		{paramBytes, number(&o.PrefetchBytes)},
	} {
		if v := name.URIParameter(param.key); v != "" {
			if err := param.read(v); err != nil {
				return o, fmt.Errorf("sqlitevfs: the parameter %s of the database's URI: %w", param.key, err)
			}
		}
	}
	return o, o.check()
}
