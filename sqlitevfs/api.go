// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"errors"
	"fmt"

	"github.com/ncruces/go-sqlite3/vfs"
)

// The names under which importing the package registers a VFS.
const (
	// Name chooses every part automatically.
	Name = "ringside"
	// NamePlain has only the syncs of directories.
	NamePlain = "ringside-plain"
	// NamePrefetch and NameGroup always use that part, and never the other.
	NamePrefetch = "ringside-prefetch"
	NameGroup    = "ringside-group"
	// NameLog has the log of commits, and otherwise chooses automatically.
	NameLog = "ringside-log"
)

func init() {
	for name, o := range map[string]Options{
		Name:         {},
		NamePlain:    {Prefetch: Off, GroupSync: Off},
		NamePrefetch: {Prefetch: On, GroupSync: Off},
		NameGroup:    {Prefetch: Off, GroupSync: On},
		NameLog:      {GroupLog: On},
	} {
		vfs.Register(name, newVFS(name, vfs.Find(""), o))
	}
}

var errName = errors.New("sqlitevfs: the default VFS's name cannot be taken")

// Register registers a VFS under a name, for use as vfs=name in a URI. It replaces an
// existing VFS of that name, for databases that are opened later. The error names the
// invalid option.
func Register(name string, o Options) error {
	if name == "" || name == "os" {
		return errName
	}
	if err := o.check(); err != nil {
		return err
	}
	base := vfs.Find(o.Base)
	if base == nil {
		return fmt.Errorf("sqlitevfs: there is no VFS %q", o.Base)
	}
	vfs.Register(name, newVFS(name, base, o))
	return nil
}
