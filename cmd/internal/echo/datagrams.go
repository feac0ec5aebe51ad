// SPDX-License-Identifier: MIT

package echo

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"

	"github.com/ringside-io/ringside/unet"
)

// Servers of batches receive and send up to batchOf datagrams at once.
const batchOf = 64

// segmentsOf is the number of datagrams that ringside-batch passes to the kernel in one message. 64
// datagrams of 1200 bytes would exceed the length of a message, and would be sent one by one.
const segmentsOf = 32

// stamp begins each datagram of an answer with the number of the request and its own index.
func (s Setup) stamp(answer, request []byte) {
	i := uint32(0)
	for p := range slices.Chunk(answer, s.Give) {
		copy(p[:8], request)
		binary.NativeEndian.PutUint32(p[8:], i)
		i++
	}
}

// startPackets starts a server that only answers datagrams.
func startPackets(s Setup, listen func(network, address string) (net.PacketConn, error), serve func(net.PacketConn, Setup)) (Server, error) {
	if s.Network != "udp" {
		return nil, fmt.Errorf("engine %s only answers datagrams", s.Engine)
	}
	pc, err := listen(s.at())
	if err != nil {
		return nil, err
	}
	go serve(pc, s)
	return &packetServer{pc, "recvmmsg", ""}, nil
}

// startBatch starts a server on unet's batches.
func startBatch(s Setup) (Server, error) { return startPackets(s, unet.ListenPacket, serveBatches) }

func serveBatches(pc net.PacketConn, s Setup) {
	c := unet.NewBatchConn(pc)
	in, out := make([]unet.Packet, batchOf), make([]unet.Packet, batchOf)
	for i := range in {
		in[i].Data = s.buffer()
	}
	answer := s.answer()
	for {
		n, err := c.ReadBatch(in)
		if err != nil {
			return
		}
		if answer == nil {
			for i, p := range in[:n] {
				out[i] = unet.Packet{Data: p.Data[:p.N], Addr: p.Addr}
			}
			_, _ = c.WriteBatch(out[:n])
			continue
		}
		for _, p := range in[:n] {
			s.stamp(answer, p.Data[:p.N])
			segments := out[:0]
			for part := range slices.Chunk(answer, segmentsOf*s.Give) {
				segments = append(segments, unet.Packet{Data: part, Segment: s.Give, Addr: p.Addr})
			}
			_, _ = c.WriteBatch(segments)
		}
	}
}
