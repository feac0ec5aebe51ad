// SPDX-License-Identifier: MIT

package sockets

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/unet"
)

// streamServer begins the names of engines that echo streams, see serveStreams.
const streamServer = "stream-"

// serveStreams echoes streams in messages of up to 128 bytes. The engine is net, ring or plain; with
// the suffix +compute two goroutines compute without end.
func serveStreams(engine string) error {
	engine, compute := strings.CutSuffix(strings.TrimPrefix(engine, streamServer), "+compute")
	l, err := listenStreams(engine)
	if err != nil {
		return err
	}
	if compute {
		for range 2 {
			go func() {
				for x := uint64(1); ; {
					x = x*6364136223846793005 + 1
				}
			}()
		}
	}
	fmt.Println(l.Addr())
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go echoStream(c)
		}
	}()
	return answerCPU()
}

var streamEngines = map[string]unet.Mode{"net": unet.ModeNet, "ring": unet.ModeRing, "plain": unet.ModePlain}

func listenStreams(engine string) (net.Listener, error) {
	s, err := unet.NewSystem(unet.Options{Mode: streamEngines[engine]})
	if err != nil {
		return nil, err
	}
	return s.Listen("tcp4", "127.0.0.1:0")
}

func echoStream(c net.Conn) {
	defer c.Close()
	for p := make([]byte, 128); ; {
		n, err := c.Read(p)
		if err != nil {
			return
		}
		if _, err = c.Write(p[:n]); err != nil {
			return
		}
	}
}

// BenchmarkDial measures Dial, an exchange of one byte, and Close, with no other socket in the process.
// The server is a process of its own on package net. It reports this process's CPU time per connection.
func BenchmarkDial(b *testing.B) {
	dial := map[string]func(network, addr string) (net.Conn, error){"net": net.Dial, "unet": unet.Dial}
	for _, engine := range []string{"net", "unet"} {
		b.Run(engine, func(b *testing.B) {
			addr := startBatchServer(b, streamServer+"net").addr
			connect := func() {
				c, err := dial[engine]("tcp4", addr)
				if err != nil {
					b.Fatal(err)
				}
				defer c.Close()
				// Close resets the connection, so that its port is free at once.
				if err := c.(interface{ SetLinger(int) error }).SetLinger(0); err != nil {
					b.Fatal(err)
				}
				if err := roundTrip(c, make([]byte, 1)); err != nil {
					b.Fatal(err)
				}
			}
			connect() // warms up
			before := ownCPU(b)
			for b.Loop() {
				connect()
			}
			b.ReportMetric(float64(ownCPU(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkBesideComputation measures exchanges of 128 bytes on 20 connections, in any order, with a
// server whose process also computes on two goroutines. This process makes the requests on package net.
func BenchmarkBesideComputation(b *testing.B) {
	for _, engine := range []string{"net", "ring", "plain"} {
		b.Run(engine, func(b *testing.B) {
			system(b, streamEngines[engine]) // skips if the mode cannot be used
			addr := startBatchServer(b, streamServer+engine+"+compute").addr
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			results := make(chan error)
			for range 20 {
				c, err := net.Dial("tcp4", addr)
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { c.Close() })
				go func() {
					for p := make([]byte, 128); ; {
						_ = c.SetDeadline(time.Now().Add(patience))
						select {
						case results <- roundTrip(c, p):
						case <-ctx.Done():
							return
						}
					}
				}()
			}
			for b.Loop() {
				if err := <-results; err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// roundTrip sends p and receives as many bytes.
func roundTrip(c net.Conn, p []byte) error {
	if _, err := c.Write(p); err != nil {
		return err
	}
	_, err := io.ReadFull(c, p)
	return err
}

// ownCPU returns the CPU time of this process in nanoseconds.
func ownCPU(b *testing.B) int64 {
	used, err := cpuTime()
	if err != nil {
		b.Fatal(err)
	}
	return used
}

// cpuTime returns the CPU time of this process in nanoseconds.
func cpuTime() (int64, error) {
	var used syscall.Rusage
	err := os.NewSyscallError("getrusage", syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return used.Utime.Nano() + used.Stime.Nano(), err
}
