// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"testing"

	"github.com/ncruces/go-sqlite3/vfs"
)

// boldFile claims everything.
type boldFile struct{ vfs.File }

func (boldFile) DeviceCharacteristics() vfs.DeviceCharacteristic { return ^vfs.DeviceCharacteristic(0) }

func TestWritesAreNeverCalledAtomic(t *testing.T) {
	f := &file{File: boldFile{}}
	if c := f.DeviceCharacteristics(); c&(vfs.IOCAP_BATCH_ATOMIC|vfs.IOCAP_ATOMIC|vfs.IOCAP_ATOMIC4K) != 0 {
		t.Errorf("%#x", c)
	}
}
