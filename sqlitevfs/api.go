// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"errors"
	"fmt"

	"github.com/ncruces/go-sqlite3/vfs"
)

// The names of the VFSes that importing the package registers.
const (
	// Name is the VFS with the zero Options: each part is chosen automatically.
	Name = "ringside"
	// NamePlain is the VFS with syncs of directories only.
	NamePlain = "ringside-plain"
	// NamePrefetch is the VFS that always prefetches and has no group sync. NameGroup is
	// the VFS that always has group sync, where it is durable, and does not prefetch.
	NamePrefetch = "ringside-prefetch"
	NameGroup    = "ringside-group"
	// NameLog is the VFS with the log of commits; the other parts are chosen automatically.
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

var errName = errors.New("sqlitevfs: Register cannot replace the default VFS: choose a name other than \"\" and \"os\"")

// Register registers a VFS under a name, for use as vfs=name in a URI. A VFS that has the
// name already is replaced for databases that are opened later. Register returns an error,
// and registers nothing, if an option is invalid, if there is no VFS Base, or if the name is
// "" or "os", the default VFS's. It may be called concurrently.
func Register(name string, o Options) error {
	if name == "" || name == "os" {
		return errName
	}
	if err := o.check(); err != nil {
		return err
	}
	base := vfs.Find(o.Base)
	if base == nil {
		return fmt.Errorf("sqlitevfs: Options.Base: no VFS is registered as %q", o.Base)
	}
	vfs.Register(name, newVFS(name, base, o))
	return nil
}
