// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// sharing is how files of one file system are made durable together.
type sharing int

const (
	// noSharing: syncfs does not make everything durable, or was not tried.
	noSharing sharing = iota
	// bySyncFS: syncfs makes everything durable.
	bySyncFS
	// bySyncFSAndFlush: syncfs writes everything and may leave out the flush of the device's
	// cache. An fdatasync of any file adds the flush, and reports that the file system was shut
	// down by an error.
	bySyncFSAndFlush
	// bySyncFSNotRemovals: syncfs makes everything durable. The first sync of a new file makes its entry durable, as with
	// the others, but not what was removed from its directory before.
	bySyncFSNotRemovals
)

// fileSystem is a row of the table of the effects of syncfs. The rows come from the source of
// Linux 6.18. referees/blockdisk shows that the rows that share hold, and that XFS and ext4
// without a journal need the flush.
type fileSystem struct {
	name   string // in /proc/self/mountinfo
	magic  int64  // of statfs
	how    sharing
	reason string
	not    []string // mount options with which sharing is not known to be durable
}

var notExt4 = []string{"data=writeback", "nobarrier", "barrier=0", "journal_async_commit"}

var fileSystems = []fileSystem{
	// ext4_sync_fs commits the running transaction, or flushes the device itself when
	// there is none. Without a journal see ext4Sharing. With data=writeback, blocks of a
	// truncated file are used again before the truncation is durable. A rollback journal that
	// reappears after a power cut may then hold pages of another journal.
	{"ext4", unix.EXT4_SUPER_MAGIC, bySyncFS, "syncfs commits the journal and flushes", notExt4},
	{"ext3", unix.EXT4_SUPER_MAGIC, bySyncFS, "is mounted by the ext4 driver", notExt4},
	{"ext2", unix.EXT4_SUPER_MAGIC, bySyncFS, "is mounted by the ext4 driver, without a journal", notExt4},
	// xfs_fs_sync_fs only forces the log, which flushes nothing when nothing was logged, as
	// after overwriting pages. fdatasync flushes the data device if forcing the log did not.
	// It flushes the device of the leader's file only: rtdev and logdev are refused.
	{"xfs", unix.XFS_SUPER_MAGIC, bySyncFSAndFlush, "syncfs forces the log only", []string{"rtdev", "logdev"}},
	// btrfs_sync_fs waits for ordered extents and commits the transactions that they have
	// joined. Its fsync logs the entry of the file, and no other change of the directory.
	{"btrfs", unix.BTRFS_SUPER_MAGIC, bySyncFSNotRemovals, "syncfs commits the transaction", []string{"nobarrier"}},
	{"f2fs", unix.F2FS_SUPER_MAGIC, noSharing, "a checkpoint that finds nothing to do flushes nothing, and overwriting in place leaves nothing to do", nil},
	// ovl_sync_fs syncs the file system below. Neither syncfs nor sync_file_range of a file
	// above reports a write that failed there.
	{"overlay", unix.OVERLAYFS_SUPER_MAGIC, noSharing, "overlayfs does not report failed writes of the file system below", nil},
	{"tmpfs", unix.TMPFS_MAGIC, noSharing, "files are in memory", nil},
	{"ramfs", unix.RAMFS_MAGIC, noSharing, "files are in memory", nil},
	{"fuse", unix.FUSE_SUPER_MAGIC, noSharing, "the effect of syncfs depends on the server", nil},
	{"nfs", unix.NFS_SUPER_MAGIC, noSharing, "network file system", nil},
	{"cifs", unix.CIFS_SUPER_MAGIC, noSharing, "network file system", nil},
	{"smb3", unix.SMB2_SUPER_MAGIC, noSharing, "network file system", nil},
	{"9p", unix.V9FS_MAGIC, noSharing, "network file system", nil},
	{"ceph", unix.CEPH_SUPER_MAGIC, noSharing, "network file system", nil},
}

// sharingOf returns how files on the file system of fd are made durable together, and the
// reason where they are not.
func sharingOf(fd int) (sharing, string) {
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) != nil {
		return noSharing, "statfs failed, so the type of the file system is unknown"
	}
	row := slices.IndexFunc(fileSystems, func(f fileSystem) bool { return int64(uint32(st.Type)) == f.magic })
	switch {
	case row < 0:
		return noSharing, "syncfs was not tested on this file system (type 0x" + strconv.FormatUint(uint64(uint32(st.Type)), 16) + ")"
	case fileSystems[row].how == noSharing:
		return noSharing, fileSystems[row].reason
	}
	var stx unix.Statx_t
	if unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &stx) != nil || stx.Mask&unix.STATX_MNT_ID == 0 {
		return noSharing, "statx returned no mount ID"
	}
	return mountsRead.sharing(mountKey{stx.Mnt_id, unix.Mkdev(stx.Dev_major, stx.Dev_minor), st.Fsid, st.Flags})
}

// mountKey identifies a mount. Another one may get its ID.
type mountKey struct {
	id, device uint64
	fsid       unix.Fsid
	flags      int64
}

// mountsRead has the mount that was looked up last. Reading its options takes longer than the rest
// of opening a database. They are read again after mountsFor: a database that is open does not
// notice a remount either.
var mountsRead mountCache

const mountsFor = time.Second

type mountCache struct {
	mu     sync.Mutex
	key    mountKey
	until  time.Time
	how    sharing
	reason string
}

func (c *mountCache) sharing(key mountKey) (sharing, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if key != c.key || time.Now().After(c.until) {
		c.how, c.reason = key.sharing()
		c.key, c.until = key, time.Now().Add(mountsFor)
	}
	return c.how, c.reason
}

func (k mountKey) sharing() (sharing, string) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return noSharing, "the mount options cannot be read: " + err.Error()
	}
	m, ok := findMount(string(table), k.id)
	if !ok {
		return noSharing, "the mount is not in /proc/self/mountinfo"
	}
	return m.sharing("/", kernelHas)
}

// mount is a line of /proc/self/mountinfo.
type mount struct {
	device  string // major:minor
	kind    string
	options []string // of the superblock
}

func findMount(table string, id uint64) (mount, bool) {
	for line := range strings.Lines(table) {
		// id parent major:minor root point options [tag …] - type source superoptions
		left, right, ok := strings.Cut(line, " - ")
		fields, more := strings.Fields(left), strings.Fields(right)
		if !ok || len(fields) < 6 || len(more) < 3 || fields[0] != strconv.FormatUint(id, 10) {
			continue
		}
		return mount{fields[2], more[0], strings.Split(more[2], ",")}, true
	}
	return mount{}, false
}

// sharing looks a mount up in the table. root is the directory that has sys and proc, and has
// reports whether the kernel has a version.
func (m mount) sharing(root string, has func(major, minor int) bool) (sharing, string) {
	row := slices.IndexFunc(fileSystems, func(f fileSystem) bool { return m.kind == f.name })
	if row < 0 {
		return noSharing, "syncfs was not tested on " + m.kind
	}
	f := fileSystems[row]
	if option, ok := f.refuses(m.options); ok {
		return noSharing, m.kind + " mounted with " + option + " is not known to be durable"
	}
	if f.magic == unix.EXT4_SUPER_MAGIC {
		return m.ext4Sharing(root, f, has)
	}
	return f.how, f.reason
}

// refuses returns the first mount option with which sharing is not known to be durable.
func (f *fileSystem) refuses(options []string) (option string, ok bool) {
	i := slices.IndexFunc(options, func(option string) bool {
		name, _, _ := strings.Cut(option, "=")
		return slices.Contains(f.not, option) || slices.Contains(f.not, name)
	})
	if i < 0 {
		return "", false
	}
	return options[i], true
}

// ext4Sharing distinguishes file systems with a journal from file systems without one.
// Without a journal, syncfs of the ext4 driver writes metadata after its flush, also on ext2.
// Another flush is harmless where it is not known whether there is a journal. The table of
// mounts lacks options that are the default of the file system; the list in /proc/fs/ext4 has
// them.
//
// After an error has shut the file system down (errors=remount-ro), syncfs before Linux 6.18
// writes nothing and returns no error. fdatasync of any file returns one since Linux 6.12; before,
// writes and an fdatasync of a file without changes succeed. (6.1, 6.12 and 6.18 were tried.)
func (m mount) ext4Sharing(root string, f fileSystem, has func(major, minor int) bool) (sharing, string) {
	if !has(6, 12) {
		return noSharing, "syncfs of this kernel hides that an error has shut the file system down (needs Linux 6.12)"
	}
	device, err := os.Readlink(filepath.Join(root, "sys/dev/block", m.device))
	if err == nil {
		name := filepath.Base(device)
		if options, err := os.ReadFile(filepath.Join(root, "proc/fs/ext4", name, "options")); err == nil {
			if option, ok := f.refuses(strings.Fields(string(options))); ok {
				return noSharing, m.kind + " with the default " + option + " is not known to be durable"
			}
		}
		var task []byte
		task, err = os.ReadFile(filepath.Join(root, "sys/fs/ext4", name, "journal_task"))
		if _, number := strconv.Atoi(strings.TrimSpace(string(task))); err == nil && number == nil {
			if !has(6, 18) {
				return bySyncFSAndFlush, "syncfs commits the journal and flushes; fdatasync reports that an error has shut the file system down"
			}
			return bySyncFS, "syncfs commits the journal and flushes"
		}
	}
	if err != nil && m.kind == "ext2" {
		return noSharing, "the driver of ext2 does not flush in syncfs"
	}
	return bySyncFSAndFlush, "syncfs writes metadata after its flush"
}

// kernelHas reports whether the kernel has this version or a later one. It is for what no probe
// can find out, and where a wrong guess would lose commits.
func kernelHas(major, minor int) bool {
	running := kernelVersion()
	return running[0] > major || running[0] == major && running[1] >= minor
}

var kernelVersion = sync.OnceValue(func() (v [2]int) {
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		// An unknown version is 0.0.
		_, _ = fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &v[0], &v[1])
	}
	return v
})
