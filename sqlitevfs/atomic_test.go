// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
)

// boldFile claims every device characteristic.
type boldFile struct{ vfs.File }

func (boldFile) DeviceCharacteristics() vfs.DeviceCharacteristic { return ^vfs.DeviceCharacteristic(0) }

// TestAtomicWritesAreAskedFor checks that writes are called atomic only where the user
// asked for it, and batches never.
func TestAtomicWritesAreAskedFor(t *testing.T) {
	for a, want := range map[Atomic]vfs.DeviceCharacteristic{AtomicOff: 0, AtomicOn: vfs.IOCAP_ATOMIC4K, AtomicTrust: vfs.IOCAP_ATOMIC4K} {
		v := &ringVFS{opts: Options{Atomic4K: a}}
		main := &file{File: boldFile{}, vfs: v, owner: true}
		if c := main.DeviceCharacteristics() & (vfs.IOCAP_BATCH_ATOMIC | atomicWrites); c != want {
			t.Errorf("%v: a database has %#x", a, c)
		}
		journal := &file{File: boldFile{}, vfs: v}
		if c := journal.DeviceCharacteristics() & (vfs.IOCAP_BATCH_ATOMIC | atomicWrites); c != 0 {
			t.Errorf("%v: a journal has %#x", a, c)
		}
	}
}

// TestAtomicByURI opens databases that trust their device, that ask it, and that have an
// invalid parameter.
func TestAtomicByURI(t *testing.T) {
	dir := t.TempDir()
	open := func(value string) error {
		c, err := sqlite3.Open("file:" + filepath.ToSlash(filepath.Join(dir, "db")) + "?vfs=ringside&atomic4k=" + value)
		if err != nil {
			return err
		}
		defer c.Close()
		return c.Exec(`PRAGMA page_size=4096; CREATE TABLE IF NOT EXISTS t(x); INSERT INTO t VALUES(1)`)
	}
	for _, ok := range []string{"off", "trust", "TRUST"} {
		if err := open(ok); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
	if err := open("maybe"); err == nil || !strings.Contains(err.Error(), "off, on or trust") {
		t.Errorf("maybe: %v", err)
	}
	switch err := open("on"); {
	case err == nil: // a device with sectors of 4 KiB
	case !strings.Contains(err.Error(), "atomic4k=on: "):
		t.Errorf("on: %v", err)
	default:
		t.Log(err)
	}
}

// TestAtomicIsRefusedWithoutASector checks that atomic writes are rejected with a reason on
// descriptors without a block device, whatever the kernel reports.
func TestAtomicIsRefusedWithoutASector(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for what, fd := range map[string]int{"a missing descriptor": -1, "a pipe": int(r.Fd())} {
		if err := wholeSectors(fd); err == nil || !strings.Contains(err.Error(), "atomic4k=on: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// BenchmarkAtomic4K commits changes of one page, with a journal and without.
func BenchmarkAtomic4K(b *testing.B) {
	for _, value := range []string{"off", "trust"} {
		b.Run(value, func(b *testing.B) {
			path := filepath.ToSlash(filepath.Join(b.TempDir(), "db"))
			c, err := sqlite3.Open("file:" + path + "?vfs=ringside&atomic4k=" + value)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			err = c.Exec(`PRAGMA page_size=4096; PRAGMA journal_mode=PERSIST; PRAGMA synchronous=FULL;
				CREATE TABLE t(id INTEGER PRIMARY KEY, n); INSERT INTO t VALUES(1, 0)`)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := c.Exec(`UPDATE t SET n=n+1`); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
