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
	// Auto uses the part where it can be had and measurement favours it.
	Auto Switch = iota
	// On uses it wherever it can be had.
	On
	// Off leaves it out.
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

// parseSwitch parses the names of String, and SQLite's words for a boolean.
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

// Atomic selects what guarantees that a device writes 4 KiB whole or not at all.
type Atomic int

const (
	// AtomicOff: no guarantee, and SQLite uses a journal.
	AtomicOff Atomic = iota
	// AtomicOn: the device does, with sectors of 4 KiB or more. A database on another
	// device is refused.
	AtomicOn
	// AtomicTrust: the user does, for a device or file system that cannot be asked,
	// such as a copy-on-write file system or a device with a battery.
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

// parseAtomic parses the names of String.
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
	// PrefetchDepth is the most pages that are fetched ahead until a scan has read a
	// fifth of a table; 0 means 64.
	PrefetchDepth int
	// PrefetchBytes is the most bytes of the rest of such a table that are fetched
	// ahead; 0 means 256 MiB. Half of the free memory is a further limit. With less
	// than some 2 MiB the rest of a table is not fetched.
	PrefetchBytes int
	// GroupSync lets databases of one file system that sync at the same time share one
	// syncfs(2), which also writes the data of other programs on that file system. Auto
	// measures at run time whether that is faster; On does not compare. On file systems
	// where syncfs is not known to make everything durable both leave it out, and
	// PRAGMA ringside shows the reason. (Linux 5.17)
	GroupSync Switch
	// GroupLog makes commits in WAL mode with synchronous=FULL durable by a log
	// that databases share: one write for all that commit at the same time. The
	// log is replayed when a database of its directory is opened after a crash,
	// also by a VFS that does not use it. If stock SQLite opens the files first, it
	// does not see the newest commits, as with synchronous=NORMAL, but never a damaged
	// database. Auto is Off, because every reader of the files then finds each commit.
	// (Linux)
	GroupLog Switch
	// GroupLogDir is the directory of the log. "" is the directory of each database, which
	// keeps directories complete. Databases in many directories share the log of another one,
	// and should always be opened with it: a small file beside each WAL in use, its name with
	// ".log" added, names the directory. A database that may lack commits of that log is refused
	// when it is opened without it.
	GroupLogDir string
	// DirSync makes the entry of a new database, journal or WAL durable before
	// SQLite relies on it, and the removal of a journal before a commit with
	// synchronous=FULL returns. With Off, as with the default VFS, neither happens: a
	// power cut may then undo commits, or remove a new database.
	DirSync Switch
	// Atomic4K lets SQLite commit without a journal when a transaction changes one
	// page of a database with pages of 4096 bytes, in rollback modes: it only writes and
	// syncs the page. On a device that may tear the page, a power cut then damages the
	// database. It is never chosen automatically, and AtomicOn asks the device (statx,
	// Linux 6.1).
	Atomic4K Atomic
	// Base names the wrapped VFS; "" is the default one. It must keep its files at the
	// paths of their names. The files of another VFS than the default one are read and
	// synced by its own methods only. If it has a method SyncDir(string) error, that
	// method syncs directories.
	Base string
	// Logger receives failed syncs and replayed commits; nil means slog.Default().
	Logger *slog.Logger
}

func (o *Options) check() error {
	for name, s := range map[string]Switch{"Prefetch": o.Prefetch, "GroupSync": o.GroupSync, "GroupLog": o.GroupLog, "DirSync": o.DirSync} {
		if s < Auto || s > Off {
			return fmt.Errorf("sqlitevfs: %s: there is no %v", name, s)
		}
	}
	if o.Atomic4K < AtomicOff || o.Atomic4K > AtomicTrust {
		return fmt.Errorf("sqlitevfs: Atomic4K: there is no %v", o.Atomic4K)
	}
	if o.PrefetchDepth < 0 || o.PrefetchDepth > maxDepth {
		return fmt.Errorf("sqlitevfs: PrefetchDepth: %d is not between 0 and %d", o.PrefetchDepth, maxDepth)
	}
	if o.PrefetchBytes < 0 {
		return fmt.Errorf("sqlitevfs: PrefetchBytes: %d is negative", o.PrefetchBytes)
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

// with returns the options with what a database's URI asks for.
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
