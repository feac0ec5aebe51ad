// SPDX-License-Identifier: MIT

// Command guest is the program that the boot test runs in the machine. Its argument
// selects the action.
package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"
)

func main() {
	switch os.Args[1] {
	case "look":
		look()
	case "exit":
		fmt.Print("no newline")
		os.Exit(3)
	case "hang":
		time.Sleep(time.Hour)
	case "leave":
		leave()
	case "crash":
		var p *int
		*p = 1
	}
}

// look prints the properties of the machine, one a line.
func look() {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	fmt.Println("release", strings.TrimSpace(string(release)), err)
	data, err := os.ReadFile("testdata/file")
	fmt.Println("file", string(data), err)
	fmt.Println("uid", os.Getuid(), "lane", os.Getenv("RINGSIDE_LANE"))
	watermark, err := os.ReadFile("/proc/sys/kernel/threads-max")
	fmt.Println("threads-max", strings.TrimSpace(string(watermark)), err)
	for _, addr := range []string{"localhost:0", "[::1]:0"} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			fmt.Println("listen", err)
			continue
		}
		c, err := net.Dial("tcp", l.Addr().String())
		fmt.Println("dial", addr, err)
		if err == nil {
			c.Close()
		}
		l.Close()
	}
	f, err := os.CreateTemp("", "look")
	fmt.Println("temp", err, f != nil && strings.HasPrefix(f.Name(), os.Getenv("TMPDIR")))
}

// leave exits and leaves a child that keeps its output open.
func leave() {
	cmd := exec.Command(os.Args[0], "hang")
	cmd.Stdout = os.Stdout
	fmt.Println("left", cmd.Start())
}
