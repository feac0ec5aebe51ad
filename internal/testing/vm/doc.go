// SPDX-License-Identifier: MIT

// Package vm boots programs, usually Go test binaries, on another Linux
// kernel and returns the output and exit status of each.
//
// The machine is an amd64 or arm64 of qemu in full emulation, so neither KVM nor
// root is needed. It starts from an initramfs made here: the guest program of
// internal/testing/vm/init as its first process, the programs to run and a plan.
// Two ports connect it: a serial port carries the kernel's log, the other one
// the programs' output between the markers of internal/testing/vm/wire. A scratch
// disk with ext4 on an emulated NVMe device gives the programs a file system
// with O_DIRECT, which tmpfs learned only in Linux 6.6.
//
// Kernels are Debian packages, downloaded by apt-get and unpacked into a
// cache without being installed. Of their modules those of the kernel's TLS are kept, and
// loaded by the guest. For an architecture other than the host's
// apt-get uses separate package lists in that cache.
//
// If a tool or a kernel is not available, the error is an UnavailableError. The
// functions may be called concurrently; they share only the cache, in which files
// appear by rename.
package vm
