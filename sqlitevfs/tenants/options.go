// SPDX-License-Identifier: MIT

package tenants

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"time"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"

	_ "github.com/ringside-io/ringside/sqlitevfs" // registers the VFSes
)

// Options configure a Pool. Only Dir is needed.
type Options struct {
	// Dir has the databases.
	Dir string
	// File returns the file of a tenant relative to Dir. It must return different files for
	// different names, also on a file system that ignores case, and an error for a name that is
	// not allowed: names come from outside. Directories must exist. Nil allows a to z, 0 to 9, -
	// and _, at most 64 of them, beginning with a letter or digit, and adds ".db".
	File func(tenant string) (string, error)
	// VFS is the name of the VFS; "" means ringside-log.
	VFS string
	// Init prepares a connection after it was opened, and before anything uses it. It may migrate
	// the schema and set pragmas. The pool has set busy_timeout, cache_size, journal_mode=wal and
	// synchronous=full. Init runs at each wake-up, so it should first look whether there is work,
	// such as by PRAGMA user_version. It must not keep the connection.
	Init func(c *sqlite3.Conn, tenant string) error

	// MaxOpen is how many databases are open at a time; 0 means 1024.
	MaxOpen int
	// Memory bounds the memory of SQLite in all connections, in bytes; 0 means 1 GiB.
	Memory int64
	// TenantMemory bounds the memory of one connection, in bytes; 0 means 8 MiB. The page cache is
	// an eighth of it (PRAGMA cache_size), so that sorts have room. A statement that needs more
	// fails with sqlite3.NOMEM: a row takes several times its size. Memory divided by TenantMemory
	// is how many connections are used at a time.
	TenantMemory int64
	// Descriptors bounds the file descriptors of the databases, five for each; 0 means half of the
	// process's limit.
	Descriptors int
	// Idle is how long a database stays open after its last use; 0 means a minute.
	Idle time.Duration
	// Busy is how long a connection waits for locks of other programs; 0 means 10 seconds.
	Busy time.Duration
	// Shared lets other programs use a database while it is open.
	Shared bool
	// Logger receives errors of closing a database after its use; nil means slog.Default.
	Logger *slog.Logger
}

// ErrName is the error of a name that is not allowed.
var ErrName = errors.New("tenants: a name consists of a to z, 0 to 9, - and _, at most 64 of them, and begins with a letter or digit: set Options.File to allow others")

// names have no capital letters, because some file systems ignore case, and no characters with a
// meaning in a file system or a URI.
var names = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

func file(tenant string) (string, error) {
	if !names.MatchString(tenant) {
		return "", ErrName
	}
	return tenant + ".db", nil
}

// path returns the file of a tenant.
func (o *Options) path(tenant string) (string, error) {
	name, err := o.File(tenant)
	switch {
	case err != nil:
		return "", err
	case !filepath.IsLocal(name): // leads outside, or is a device of Windows
		return "", fmt.Errorf("%w: %q", ErrName, tenant)
	}
	return filepath.Join(o.Dir, name), nil
}

// descriptors is how many file descriptors a database may have: the database, its WAL, the log's
// handle of the WAL, prefetch's, and one for the WAL's index, a journal or a temporary file.
const descriptors = 5

// smallest is the least memory in which SQLite can work.
const smallest = 1 << 20

// complete sets defaults and checks the options.
func (o *Options) complete() error {
	o.VFS = cmp.Or(o.VFS, "ringside-log")
	o.MaxOpen = cmp.Or(o.MaxOpen, 1024)
	o.Memory = cmp.Or(o.Memory, 1<<30)
	o.TenantMemory = cmp.Or(o.TenantMemory, 8<<20)
	o.Idle = cmp.Or(o.Idle, time.Minute)
	o.Busy = cmp.Or(o.Busy, 10*time.Second)
	o.Descriptors = cmp.Or(o.Descriptors, limitOfDescriptors()/2)
	if o.File == nil {
		o.File = file
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	switch {
	case o.Dir == "":
		return errors.New("tenants: Options.Dir is empty")
	case vfs.Find(o.VFS) == nil:
		return fmt.Errorf("tenants: Options.VFS: there is no VFS %q", o.VFS)
	case o.TenantMemory < smallest:
		return fmt.Errorf("tenants: Options.TenantMemory must be at least %d", smallest)
	case o.Memory < o.TenantMemory:
		return errors.New("tenants: Options.Memory must be at least Options.TenantMemory")
	case o.MaxOpen < 1 || o.Descriptors < descriptors || o.Idle < 0 || o.Busy < 0:
		return fmt.Errorf("tenants: Options.MaxOpen must be at least 1, Descriptors at least %d, Idle and Busy not negative", descriptors)
	}
	o.MaxOpen = min(o.MaxOpen, o.Descriptors/descriptors)
	return nil
}
