// SPDX-License-Identifier: MIT

//go:build peers && (linux || darwin)

package echo

import (
	"net"
	"slices"

	"golang.org/x/net/ipv4"
)

func init() { starters[NameXNet] = startXNet }

// startXNet starts a server on x/net's batches.
func startXNet(s Setup) (Server, error) { return startPackets(s, net.ListenPacket, serveXNet) }

func serveXNet(pc net.PacketConn, s Setup) {
	c := ipv4.NewPacketConn(pc)
	in, out := make([]ipv4.Message, batchOf), make([]ipv4.Message, max(batchOf, s.Burst))
	for i := range in {
		in[i].Buffers = [][]byte{s.buffer()}
	}
	for i := range out {
		out[i].Buffers = make([][]byte, 1)
	}
	answer := s.answer()
	for {
		n, err := c.ReadBatch(in, 0)
		if err != nil {
			return
		}
		if answer == nil {
			for i, m := range in[:n] {
				out[i].Buffers[0], out[i].Addr = m.Buffers[0][:m.N], m.Addr
			}
			writeXNet(c, out[:n])
			continue
		}
		for _, m := range in[:n] {
			s.stamp(answer, m.Buffers[0][:m.N])
			i := 0
			for p := range slices.Chunk(answer, s.Give) {
				out[i].Buffers[0], out[i].Addr = p, m.Addr
				i++
			}
			writeXNet(c, out[:i])
		}
	}
}

// writeXNet sends all messages, up to the first error.
func writeXNet(c *ipv4.PacketConn, out []ipv4.Message) {
	for len(out) > 0 {
		n, err := c.WriteBatch(out, 0)
		if err != nil {
			return
		}
		out = out[n:]
	}
}
