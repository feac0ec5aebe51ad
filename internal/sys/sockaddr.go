// SPDX-License-Identifier: MIT

package sys

import (
	"encoding/binary"
	"net/netip"
)

// Linux's address families and the lengths of their addresses.
const (
	FamilyUnix = 1
	FamilyIPv4 = 2
	FamilyIPv6 = 10

	lenIPv4 = 16
	lenIPv6 = 28
)

// AddrPort decodes the address of an IP socket from the kernel's form, struct sockaddr_in or
// sockaddr_in6. zone is the number of the interface, 0 for none. Another address is invalid.
func AddrPort(name []byte) (addr netip.AddrPort, zone uint32) {
	if len(name) < lenIPv4 {
		return addr, 0
	}
	port := binary.BigEndian.Uint16(name[2:])
	switch family := binary.NativeEndian.Uint16(name); {
	case family == FamilyIPv4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(name[4:8])), port), 0
	case family == FamilyIPv6 && len(name) >= lenIPv6:
		ip := netip.AddrFrom16([16]byte(name[8:24]))
		return netip.AddrPortFrom(ip, port), binary.NativeEndian.Uint32(name[24:])
	}
	return addr, 0
}

// PutAddrPort encodes an address for a socket of a family, and returns its length: 0 if a socket of
// IPv4 cannot have it.
func PutAddrPort(b []byte, family int, addr netip.AddrPort, zone uint32) int {
	ip := addr.Addr()
	binary.NativeEndian.PutUint16(b, uint16(family))
	binary.BigEndian.PutUint16(b[2:], addr.Port())
	if family == FamilyIPv4 {
		if ip = ip.Unmap(); !ip.Is4() {
			return 0
		}
		a := ip.As4()
		copy(b[4:], a[:])
		clear(b[8:lenIPv4])
		return lenIPv4
	}
	a := ip.As16()
	clear(b[4:8])
	copy(b[8:], a[:])
	binary.NativeEndian.PutUint32(b[24:], zone)
	return lenIPv6
}
