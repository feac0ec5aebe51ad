// SPDX-License-Identifier: MIT

package abi_test

import (
	"reflect"
	"testing"

	"github.com/ringside-io/ringside/internal/abi"
)

// layouts are the structures with their sizes in the kernel and the offset of each field,
// in order. They hold on every architecture.
var layouts = []struct {
	value   any
	size    uintptr
	offsets []uintptr
}{
	{abi.SQE{}, 64, []uintptr{0, 1, 2, 4, 8, 16, 24, 28, 32, 40, 42, 44, 48, 56}},
	{abi.CQE{}, 16, []uintptr{0, 8, 12}},
	{abi.BigCQE{}, 32, []uintptr{0, 16}},
	{abi.SQRingOffsets{}, 40, []uintptr{0, 4, 8, 12, 16, 20, 24, 28, 32}},
	{abi.CQRingOffsets{}, 40, []uintptr{0, 4, 8, 12, 16, 20, 24, 28, 32}},
	{abi.Params{}, 120, []uintptr{0, 4, 8, 12, 16, 20, 24, 28, 40, 80}},
	{abi.Timespec{}, 16, []uintptr{0, 8}},
	{abi.GeteventsArg{}, 24, []uintptr{0, 8, 12, 16}},
	{abi.RegWait{}, 64, []uintptr{0, 16, 20, 24, 32, 36, 48}},
	{abi.FilesUpdate{}, 16, []uintptr{0, 4, 8}},
	{abi.RsrcRegister{}, 32, []uintptr{0, 4, 8, 16, 24}},
	{abi.RsrcUpdate2{}, 32, []uintptr{0, 4, 8, 16, 24, 28}},
	{abi.RingFDUpdate{}, 16, []uintptr{0, 4, 8}},
	{abi.ProbeOp{}, 8, []uintptr{0, 1, 2, 4}},
	{abi.Probe{}, 16 + 256*8, []uintptr{0, 1, 2, 4, 16}},
	{abi.Restriction{}, 16, []uintptr{0, 2, 3, 4}},
	{abi.BufReg{}, 40, []uintptr{0, 8, 12, 14, 16}},
	{abi.Buf{}, 16, []uintptr{0, 8, 12, 14}},
	{abi.BufStatus{}, 40, []uintptr{0, 4, 8}},
	{abi.SyncCancelReg{}, 64, []uintptr{0, 8, 12, 16, 32, 33, 40}},
	{abi.FileIndexRange{}, 16, []uintptr{0, 4, 8}},
	{abi.Napi{}, 16, []uintptr{0, 4, 5, 6, 8, 12}},
	{abi.ClockRegister{}, 16, []uintptr{0, 4}},
	{abi.CloneBuffers{}, 32, []uintptr{0, 4, 8, 12, 16, 20}},
	{abi.RegionDesc{}, 64, []uintptr{0, 8, 16, 20, 24, 32}},
	{abi.MemRegionReg{}, 32, []uintptr{0, 8, 16}},
	{abi.QueryHdr{}, 40, []uintptr{0, 8, 16, 20, 24, 28}},
	{abi.QueryOpcode{}, 48, []uintptr{0, 4, 8, 16, 24, 32, 40, 44}},
	{abi.ZcrxOffsets{}, 32, []uintptr{0, 4, 8, 12, 16}},
	{abi.ZcrxAreaReg{}, 48, []uintptr{0, 8, 16, 24, 28, 32}},
	{abi.ZcrxIfqReg{}, 96, []uintptr{0, 4, 8, 12, 16, 24, 32, 64, 68, 72}},
	{abi.OpenHow{}, 24, []uintptr{0, 8, 16}},
	{abi.FutexWaitv{}, 24, []uintptr{0, 8, 16, 20}},
	{abi.RecvmsgOut{}, 16, []uintptr{0, 4, 8, 12}},
	{abi.AttrPI{}, 32, []uintptr{0, 2, 4, 8, 16, 24}},
}

func TestLayouts(t *testing.T) {
	for _, l := range layouts {
		typ := reflect.TypeOf(l.value)
		if typ.Size() != l.size {
			t.Errorf("%v has %d bytes, in the kernel %d", typ, typ.Size(), l.size)
		}
		if typ.NumField() != len(l.offsets) {
			t.Errorf("%v has %d fields, the table has %d offsets", typ, typ.NumField(), len(l.offsets))
			continue
		}
		for i, want := range l.offsets {
			if f := typ.Field(i); f.Offset != want {
				t.Errorf("%v.%s is at offset %d, in the kernel at %d", typ, f.Name, f.Offset, want)
			}
		}
	}
}

// TestLayoutsComplete fails for a structure that the table above lacks.
func TestLayoutsComplete(t *testing.T) {
	known := map[string]bool{}
	for _, l := range layouts {
		known[reflect.TypeOf(l.value).Name()] = true
	}
	known["RingFDUpdate"] = true // another name of FilesUpdate
	for _, name := range sourceTypes(t) {
		if !known[name] {
			t.Errorf("the table lacks %s", name)
		}
	}
}
