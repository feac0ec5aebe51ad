// SPDX-License-Identifier: MIT

package uring_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"reflect"
	"testing"
	"unsafe"

	"github.com/ringside-io/ringside/uring"
)

// TestMsgLayout compares the structure with struct msghdr.
func TestMsgLayout(t *testing.T) {
	word := unsafe.Sizeof(uintptr(0))
	want := map[string]uintptr{
		"name": 0, "namelen": word, "iov": 2 * word, "iovlen": 3 * word,
		"control": 4 * word, "controllen": 5 * word, "flags": 6 * word,
	}
	typ := reflect.TypeFor[uring.Msg]()
	for name, offset := range want {
		if f, ok := typ.FieldByName(name); !ok || f.Offset != offset {
			t.Errorf("%s at %d, want %d", name, f.Offset, offset)
		}
	}
}

func TestMsgSet(t *testing.T) {
	var m uring.Msg
	addr := mustSockaddr("127.0.0.1:80")
	m.Set(addr, goldenIov, goldenBuf[:24])
	if m.AddrLen() != 16 || m.ControlLen() != 24 || m.Flags() != 0 || m.Addr() != addr || addr.Len() != 16 {
		t.Errorf("address of %d bytes, control data of %d, flags %d", m.AddrLen(), m.ControlLen(), m.Flags())
	}
	// Set clears the fields of an earlier use.
	m.Set(nil, nil, nil)
	if m != (uring.Msg{}) || m.Addr() != nil {
		t.Errorf("not empty: %+v", m)
	}
}

// multishotMsg returns a buffer as the kernel fills it, with room for an address of 16
// bytes and 8 bytes of control data.
func multishotMsg(nameLen, controlLen, payloadLen, flags uint32, payload string) []byte {
	var p []byte
	for _, v := range []uint32{nameLen, controlLen, payloadLen, flags} {
		p = binary.NativeEndian.AppendUint32(p, v)
	}
	p = append(p, sockaddrBytes(mustSockaddr("127.0.0.1:80"))...)
	p = append(p, "control!"...)
	return append(p, payload...)
}

func TestParseMultishotMsg(t *testing.T) {
	var m uring.Msg
	m.Set(mustSockaddr("127.0.0.1:80"), nil, make([]byte, 8))
	p := multishotMsg(16, 5, 7, 0x20, "payload")
	msg, ok := uring.ParseMultishotMsg(p, &m)
	from := msg.Sockaddr()
	if !ok || from.AddrPort().String() != "127.0.0.1:80" || string(msg.Control) != "contr" ||
		string(msg.Payload) != "payload" || msg.PayloadLen != 7 || msg.Flags != 0x20 {
		t.Errorf("%+v, %v", msg, ok)
	}
	// The data was truncated: the lengths are those before truncation.
	msg, ok = uring.ParseMultishotMsg(multishotMsg(100, 100, 9, 0x28, ""), &m)
	if !ok || len(msg.Name) != 16 || string(msg.Control) != "control!" || len(msg.Payload) != 0 || msg.PayloadLen != 9 {
		t.Errorf("%+v, %v", msg, ok)
	}
	// A unix socket without a name has no address at all.
	msg, ok = uring.ParseMultishotMsg(multishotMsg(0, 0, 0, 0, ""), &m)
	if from := msg.Sockaddr(); !ok || from.Len() != 0 || from.AddrPort().IsValid() {
		t.Errorf("%+v, %v", msg, ok)
	}
	for n := range len(p) - len("payload") {
		if msg, ok := uring.ParseMultishotMsg(p[:n], &m); ok {
			t.Errorf("%d bytes are %+v", n, msg)
		}
	}
}

// Promise: uring/bytes-shared-memory
func FuzzParseMultishotMsg(f *testing.F) {
	f.Add(multishotMsg(16, 5, 7, 0x20, "payload"), uint8(1), uint16(8))
	f.Add(multishotMsg(math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32, ""), uint8(1), uint16(8))
	f.Add([]byte("short"), uint8(2), uint16(0))
	room := new(uring.Sockaddr)
	room.Reset()
	addrs := []*uring.Sockaddr{nil, mustSockaddr("127.0.0.1:80"), mustSockaddr("[::1]:80"), room}
	f.Fuzz(func(t *testing.T, p []byte, kind uint8, controlRoom uint16) {
		addr, nameRoom := addrs[int(kind)%len(addrs)], 0
		if addr != nil {
			nameRoom = addr.Len()
		}
		var m uring.Msg
		m.Set(addr, nil, make([]byte, controlRoom))
		before := bytes.Clone(p)
		msg, ok := uring.ParseMultishotMsg(p, &m)
		head := 16 + nameRoom + int(controlRoom)
		if ok != (len(p) >= head) {
			t.Fatalf("%d bytes with %d before the payload: %v", len(p), head, ok)
		}
		if !ok {
			return
		}
		if len(msg.Name) > nameRoom || len(msg.Control) > int(controlRoom) || msg.PayloadLen < 0 ||
			!bytes.Equal(msg.Payload, p[head:]) || !bytes.HasPrefix(p[16:], msg.Name) ||
			!bytes.HasPrefix(p[16+nameRoom:], msg.Control) || !bytes.Equal(p, before) {
			t.Fatalf("%+v", msg)
		}
		from := msg.Sockaddr()
		from.AddrPort()
		from.UnixPath()
	})
}
