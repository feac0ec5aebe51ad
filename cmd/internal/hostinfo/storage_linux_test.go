// SPDX-License-Identifier: MIT

package hostinfo

import "testing"

const mountinfo = `22 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard,errors=remount-ro
30 22 0:25 / /mnt/with\040space rw,nosuid - tmpfs tmpfs rw,size=1024k
31 22 0:26 / /mnt rw - xfs /dev/sdb rw
garbage
`

func TestFindMount(t *testing.T) {
	for path, want := range map[string]mount{
		"/home/x":           {"254:0", "/", "rw,relatime,discard,errors=remount-ro", "ext4", "/dev/vda"},
		"/mnt":              {"0:26", "/mnt", "rw", "xfs", "/dev/sdb"},
		"/mntx":             {"254:0", "/", "rw,relatime,discard,errors=remount-ro", "ext4", "/dev/vda"},
		"/mnt/with space/f": {"0:25", "/mnt/with space", "rw,nosuid,size=1024k", "tmpfs", "tmpfs"},
	} {
		got, ok := findMount(mountinfo, path)
		if !ok || got != want {
			t.Errorf("findMount(%q) = %+v, %v; want %+v", path, got, ok, want)
		}
	}
	if m, ok := findMount("", "/"); ok {
		t.Errorf("found %+v in an empty table", m)
	}
}

func TestCollect(t *testing.T) {
	h := Collect(t.TempDir())
	if h.Kernel == "" || h.CPU == "" || h.Memory == 0 || h.Filesystem == "" || h.Device == "" || h.Cores == 0 {
		t.Errorf("a field is missing: %+v", h)
	}
	if AvailableMemory() <= 0 || AvailableMemory() > h.Memory {
		t.Errorf("available memory %d of %d", AvailableMemory(), h.Memory)
	}
}
