// SPDX-License-Identifier: MIT

package uring

import (
	"encoding/binary"
	"math"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// Msg is struct msghdr. It keeps the address, the vector, its buffers and the
// control data reachable as long as it is reachable itself.
type Msg struct {
	name       *byte
	namelen    uint32
	iov        *Iovec
	iovlen     uintptr
	control    *byte
	controllen uintptr
	flags      int32

	addr *Sockaddr // of name; the kernel does not look here
}

// Set points m at the parts of a message; each may be nil. When receiving, the kernel
// writes the sender's address into addr: call [Sockaddr.Reset] first. [Msg.Addr]
// returns it with its length afterwards. The kernel writes the lengths of what it
// received into m: call Set again before each receive.
func (m *Msg) Set(addr *Sockaddr, iov []Iovec, control []byte) {
	*m = Msg{addr: addr}
	if addr != nil {
		m.name, m.namelen = &addr.b[0], addr.n
	}
	if len(iov) > 0 {
		m.iov, m.iovlen = &iov[0], uintptr(len(iov))
	}
	if len(control) > 0 {
		m.control, m.controllen = &control[0], uintptr(len(control))
	}
}

// Addr returns the address that was given to Set, nil if none, and sets its length to
// the length of the received address. Call it after the completion.
func (m *Msg) Addr() *Sockaddr {
	if m.addr != nil {
		m.addr.n = m.namelen
	}
	return m.addr
}

// AddrLen returns the length of the address that was received.
func (m *Msg) AddrLen() int { return int(m.namelen) }

// ControlLen returns the length of the control data that was received.
func (m *Msg) ControlLen() int { return int(m.controllen) }

// Flags returns the MSG_ flags of a received message, such as MSG_TRUNC.
func (m *Msg) Flags() int { return int(m.flags) }

// MultishotMsg is a message that a multishot RECVMSG wrote into a provided
// buffer. Its slices share the buffer.
type MultishotMsg struct {
	Name    []byte // the sender's address
	Control []byte
	Payload []byte
	Flags   int
	// PayloadLen is the length of the datagram, more than len(Payload) when it
	// was truncated.
	PayloadLen int
}

// ParseMultishotMsg parses the len(p) bytes that a multishot RECVMSG, armed with m,
// wrote into a buffer. The second result is false if p is shorter than the header and the
// room that m reserves. The kernel never writes less.
func ParseMultishotMsg(p []byte, m *Msg) (MultishotMsg, bool) {
	header := int(sys.Size[abi.RecvmsgOut]())
	nameRoom, controlRoom := int(m.namelen), int(m.controllen)
	if len(p) < header || len(p)-header < nameRoom || len(p)-header-nameRoom < controlRoom {
		return MultishotMsg{}, false
	}
	field := func(off, most int) int { return int(min(binary.NativeEndian.Uint32(p[off:]), uint32(most))) }
	name := p[header : header+nameRoom]
	control := p[header+nameRoom : header+nameRoom+controlRoom]
	return MultishotMsg{
		Name:       name[:field(0, nameRoom)],
		Control:    control[:field(4, controlRoom)],
		Payload:    p[header+nameRoom+controlRoom:],
		PayloadLen: field(8, math.MaxInt32),
		Flags:      int(binary.NativeEndian.Uint32(p[12:])),
	}, true
}

// Sockaddr decodes Name.
func (m *MultishotMsg) Sockaddr() Sockaddr {
	var s Sockaddr
	s.n = uint32(copy(s.b[:], m.Name))
	return s
}
