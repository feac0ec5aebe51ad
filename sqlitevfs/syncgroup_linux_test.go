// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// mounts has a line of /proc/self/mountinfo for each case, with its number as the ID.
const mounts = `1 1 0:1 / / rw,relatime shared:1 - ext4 /dev/a rw,discard
2 1 0:2 / /2 rw,relatime - ext4 /dev/b rw,data=journal
3 1 0:1 / /3 rw,relatime master:2 propagate_from:1 - ext4 /dev/a rw,nobarrier
4 1 0:1 / /4 rw - ext4 /dev/a rw,journal_async_commit
5 1 0:3 / /5 rw - ext4 /dev/c rw
6 1 0:9 / /6 rw - ext4 /dev/d rw
7 1 0:3 / /7 rw - ext2 /dev/c rw
8 1 0:9 / /8 rw - ext2 /dev/d rw
9 1 0:1 / /9 rw - ext3 /dev/a rw
10 1 0:4 / /10 rw,relatime - xfs /dev/e rw,attr2,inode64,logbufs=8,noquota
11 1 0:4 / /11 rw,relatime - xfs /dev/e rw,logdev=/dev/f
12 1 0:4 / /12 rw,relatime - xfs /dev/e rw,rtdev=/dev/f
13 1 0:5 / /13 rw,relatime - btrfs /dev/g rw,space_cache=v2,subvolid=5
14 1 0:5 / /14 rw,relatime - btrfs /dev/g rw,nobarrier
15 1 0:6 / /15 rw,relatime - f2fs /dev/h rw
16 1 0:7 / /16 rw,relatime - overlay overlay rw,upperdir=/u
17 1 0:8 / /17 rw,relatime - bcachefs /dev/i rw
18 1 0:8 / /18 rw,relatime - tmpfs tmpfs rw
20 1 0:10 / /20 rw - ext4 /dev/j rw,discard
21 1 0:2 / /21 rw - ext4 /dev/b rw,data=writeback
19 1 0:8 /a\040b /19 rw,relatime - nfs4 h:/x rw
`

// Promise: sqlitevfs/databases-share-syncfs
func TestSharingTable(t *testing.T) {
	root := t.TempDir()
	sys := filepath.Join(root, "sys")
	for number, journal := range map[string]string{"0:1": "1234\n", "0:2": "0\n", "0:3": "<none>\n", "0:10": "12\n"} {
		name := "disk" + strings.TrimPrefix(number, "0:")
		dir := filepath.Join(sys, "fs/ext4", name)
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.MkdirAll(filepath.Join(sys, "dev/block"), 0o700),
			os.WriteFile(filepath.Join(dir, "journal_task"), []byte(journal), 0o600),
			os.Symlink("../../devices/virtual/block/"+name, filepath.Join(sys, "dev/block", number))); err != nil {
			t.Fatal(err)
		}
	}
	options := filepath.Join(root, "proc/fs/ext4/disk10")
	if err := errors.Join(os.MkdirAll(options, 0o700), os.WriteFile(filepath.Join(options, "options"), []byte("rw\nbarrier\ndata=writeback\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[uint64]sharing{
		20: noSharing, // by the default of the file system
		21: noSharing,
		1:  bySyncFS, 2: bySyncFS, 3: noSharing, 4: noSharing,
		5: bySyncFSAndFlush, // no journal
		6: bySyncFSAndFlush, // an unknown file system
		7: bySyncFSAndFlush, 8: noSharing, 9: bySyncFS,
		10: bySyncFSAndFlush, 11: noSharing, 12: noSharing,
		13: bySyncFSNotRemovals, 14: noSharing, 15: noSharing, 16: noSharing, 17: noSharing, 18: noSharing, 19: noSharing,
	} {
		m, ok := findMount(mounts, id)
		if !ok {
			t.Errorf("mount %d was not found", id)
			continue
		}
		for _, minor := range []int{18, 12, 1} {
			want := want
			if ext := strings.HasPrefix(m.kind, "ext"); ext && minor < 12 {
				want = noSharing
			} else if ext && minor < 18 && want == bySyncFS {
				want = bySyncFSAndFlush
			}
			has := func(_, n int) bool { return minor >= n }
			if how, reason := m.sharing(root, has); how != want || reason == "" {
				t.Errorf("%v on Linux 6.%d: %v (%s), want %v", m, minor, how, reason, want)
			}
		}
	}
	if _, ok := findMount(mounts, 22); ok {
		t.Error("a missing mount was found")
	}
}

func TestSharingOfFilesHere(t *testing.T) {
	for _, dir := range []string{t.TempDir(), "/dev/shm", "/proc"} {
		f, err := os.Open(dir)
		if err != nil {
			continue
		}
		how, reason := sharingOf(int(f.Fd()))
		f.Close()
		if how != noSharing && (dir == "/dev/shm" || dir == "/proc") || reason == "" {
			t.Errorf("%s: %v, %q", dir, how, reason)
		}
		t.Logf("%s: %v, %s", dir, how, reason)
	}
}

// TestFlushFollowsSyncFS uses a syncfs that omits the flush, which a sync of one file must
// make up for, and whose error must be reported.
// Promise: sqlitevfs/databases-share-syncfs
func TestFlushFollowsSyncFS(t *testing.T) {
	for _, own := range []error{nil, syscall.EIO} {
		d := &fakeDisk{}
		g := d.group()
		g.needsFlush = true
		g.groupTime = time.Hour // no round ends before all callers have arrived
		var mu sync.Mutex
		flushed, failed := 0, 0
		g.syncAll = func(int) error { d.shared.Add(1); return nil }
		g.syncFile = func(int) error {
			mu.Lock()
			defer mu.Unlock()
			flushed++
			if d.shared.Load() > 0 && failed == 0 && own != nil {
				failed++
				return own // the kernel reports it once
			}
			return nil
		}
		g.policy.start(time.Now())
		g.expected = minGroup
		errs := make([]error, minGroup)
		var wg sync.WaitGroup
		for fd := range minGroup {
			wg.Go(func() { _, errs[fd] = g.sync(fd, fd) })
		}
		wg.Wait()
		if d.shared.Load() != 1 || flushed == 0 {
			t.Errorf("%d calls of syncfs, %d flushes", d.shared.Load(), flushed)
		}
		if err := errors.Join(errs...); !errors.Is(err, own) || (own == nil) != (err == nil) {
			t.Errorf("%v, want %v", errs, own)
		}
	}
}
