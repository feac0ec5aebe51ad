// SPDX-License-Identifier: MIT

// Package abi writes down the io_uring interface of the Linux kernel, up to
// 6.18, in the kernel's own spelling: constants and the structures that cross
// the boundary. It holds facts only; it makes no system call and imports
// nothing.
//
// Sources: include/uapi/linux/io_uring.h and include/uapi/linux/io_uring/query.h
// of the kernel, and the manual pages io_uring_setup(2), io_uring_enter(2) and
// io_uring_register(2). The tests compare the values with the installed header
// where it knows them, and the sizes with the kernel's.
package abi
