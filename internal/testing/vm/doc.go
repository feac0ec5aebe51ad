// SPDX-License-Identifier: MIT

// Package vm boots programs, usually Go test binaries, on another Linux
// kernel and returns what each of them printed and how it ended.
//
// The machine is qemu-system-x86_64 in full emulation, so neither KVM nor root
// is needed. It starts from an initramfs made here: the guest program of
// internal/testing/vm/init as its first process, the programs to run and a plan.
// Two serial ports connect it: the first carries the kernel's log, the second
// the programs' output between the markers of internal/testing/vm/wire. A scratch
// disk with ext4 on an emulated NVMe device gives the programs a file system
// with O_DIRECT, which tmpfs learned only in Linux 6.6.
//
// Kernels are Debian packages, downloaded by apt-get and unpacked into a
// cache without being installed.
//
// Where a tool or a kernel cannot be had, errors are of type
// UnavailableError. The functions may be called concurrently; they share
// nothing but the cache, in which files appear by rename.
package vm
