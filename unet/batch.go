// SPDX-License-Identifier: MIT

package unet

import (
	"net"
	"net/netip"
)

// Packet is one datagram of a batch.
type Packet struct {
	// Data is the payload to send, or the buffer to receive into.
	Data []byte
	// N is the number of bytes that were received into Data.
	N int
	// Segment is the size in bytes of the datagrams in Data, if Data holds several, one
	// after the other. The last may be shorter. 0 means that Data holds one datagram.
	// WriteBatch of a [UDPConn] passes the datagrams of a Packet to the kernel in one
	// piece (UDP_SEGMENT). If there are more than 64 of them, or more than 65 507 bytes,
	// it sends them one by one. After UDPConn.SetGRO(true), ReadBatch sets Segment.
	Segment int
	// Truncated is set if the datagram was longer than Data; the rest is lost.
	Truncated bool
	// Addr is the peer's address for a UDP socket, and Name its name for a unixgram
	// socket. WriteBatch sends to that peer; leave both empty on a connected socket.
	// ReadBatch sets them to the sender. A unixgram sender may have no name.
	Addr netip.AddrPort
	Name string
}

// BatchConn receives and sends several datagrams in one system call. All
// methods may be called concurrently.
type BatchConn interface {
	net.PacketConn
	// ReadBatch waits for a datagram. It receives it, and further ones that have arrived,
	// into the packets, and returns how many packets it has filled. The buffers belong to
	// the connection until ReadBatch returns.
	ReadBatch(packets []Packet) (int, error)
	// WriteBatch sends all packets in order and returns how many it has sent. If these
	// are fewer than all, the error is the error of the next packet. The buffers belong
	// to the connection until WriteBatch returns.
	WriteBatch(packets []Packet) (int, error)
}

// NewBatchConn returns c itself if it is a [BatchConn], otherwise a BatchConn that
// receives and sends one datagram at a time through c.
func NewBatchConn(c net.PacketConn) BatchConn {
	if b, ok := c.(BatchConn); ok {
		return b
	}
	return oneByOne{c}
}

type oneByOne struct{ net.PacketConn }

func (c oneByOne) ReadBatch(packets []Packet) (int, error) {
	if len(packets) == 0 {
		return 0, nil
	}
	p := &packets[0]
	n, from, err := c.ReadFrom(p.Data)
	if err != nil {
		return 0, err
	}
	p.N, p.Segment, p.Truncated, p.Addr, p.Name = n, 0, false, netip.AddrPort{}, ""
	switch from := from.(type) {
	case *net.UDPAddr:
		p.Addr = from.AddrPort()
	case *net.UnixAddr:
		if from != nil {
			p.Name = from.Name
		}
	}
	return 1, nil
}

func (c oneByOne) WriteBatch(packets []Packet) (int, error) {
	for i := range packets {
		for q := range packets[i].segments {
			if err := c.writeOne(&q); err != nil {
				return i, err
			}
		}
	}
	return len(packets), nil
}

// segments yields a packet for each datagram that p holds.
func (p *Packet) segments(yield func(Packet) bool) {
	data, size := p.Data, p.Segment
	if size <= 0 || size > len(data) {
		size = len(data)
	}
	for more := true; more; more = len(data) > 0 {
		n := min(size, len(data))
		if !yield(Packet{Data: data[:n], Addr: p.Addr, Name: p.Name}) {
			return
		}
		data = data[n:]
	}
}

func (c oneByOne) writeOne(p *Packet) (err error) {
	switch {
	case p.Addr.IsValid():
		_, err = c.WriteTo(p.Data, net.UDPAddrFromAddrPort(p.Addr))
	case p.Name != "":
		_, err = c.WriteTo(p.Data, &net.UnixAddr{Name: p.Name, Net: c.LocalAddr().Network()})
	default:
		if w, ok := c.PacketConn.(net.Conn); ok {
			_, err = w.Write(p.Data)
		} else {
			_, err = c.WriteTo(p.Data, nil)
		}
	}
	return err
}
