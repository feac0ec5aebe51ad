// SPDX-License-Identifier: MIT

package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"syscall"
)

// loopbackUp brings lo up by netlink. The kernel then assigns 127.0.0.1 and ::1.
func loopbackUp() error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	if err := syscall.Sendto(fd, linkUp(lo.Index), 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := syscall.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	return netlinkError(answer[:n])
}

// linkUp encodes a netlink header and the ifinfomsg that sets IFF_UP.
func linkUp(index int) []byte {
	const size = syscall.SizeofNlMsghdr + syscall.SizeofIfInfomsg
	ne := binary.NativeEndian
	b := make([]byte, 0, size)
	b = ne.AppendUint32(b, size)
	b = ne.AppendUint16(b, syscall.RTM_NEWLINK)
	b = ne.AppendUint16(b, syscall.NLM_F_REQUEST|syscall.NLM_F_ACK)
	b = ne.AppendUint32(b, 1)                 // sequence
	b = ne.AppendUint32(b, 0)                 // port
	b = append(b, syscall.AF_UNSPEC, 0)       // family, padding
	b = ne.AppendUint16(b, 0)                 // device type
	b = ne.AppendUint32(b, uint32(index))     // interface
	b = ne.AppendUint32(b, syscall.IFF_UP)    // flags
	return ne.AppendUint32(b, syscall.IFF_UP) // which of them change
}

// netlinkError decodes the acknowledgement: errno 0 is success.
func netlinkError(answer []byte) error {
	messages, err := syscall.ParseNetlinkMessage(answer)
	if err != nil {
		return err
	}
	for _, m := range messages {
		if m.Header.Type != syscall.NLMSG_ERROR || len(m.Data) < 4 {
			continue
		}
		if code := int32(binary.NativeEndian.Uint32(m.Data)); code != 0 {
			return syscall.Errno(-code)
		}
		return nil
	}
	return fmt.Errorf("netlink: no acknowledgement")
}
