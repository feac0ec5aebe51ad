// SPDX-License-Identifier: MIT

// Command init is the first process of a kernel lane's guest. It mounts the file
// systems that Go programs expect, brings up the loopback interface, runs the jobs of
// the plan one after the other with their output and markers on the second serial
// port, and powers the machine off.
package main
