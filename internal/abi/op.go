// SPDX-License-Identifier: MIT

package abi

// Opcodes, struct io_uring_sqe.opcode.
const (
	IORING_OP_NOP              = 0
	IORING_OP_READV            = 1
	IORING_OP_WRITEV           = 2
	IORING_OP_FSYNC            = 3
	IORING_OP_READ_FIXED       = 4
	IORING_OP_WRITE_FIXED      = 5
	IORING_OP_POLL_ADD         = 6
	IORING_OP_POLL_REMOVE      = 7
	IORING_OP_SYNC_FILE_RANGE  = 8
	IORING_OP_SENDMSG          = 9
	IORING_OP_RECVMSG          = 10
	IORING_OP_TIMEOUT          = 11
	IORING_OP_TIMEOUT_REMOVE   = 12
	IORING_OP_ACCEPT           = 13
	IORING_OP_ASYNC_CANCEL     = 14
	IORING_OP_LINK_TIMEOUT     = 15
	IORING_OP_CONNECT          = 16
	IORING_OP_FALLOCATE        = 17
	IORING_OP_OPENAT           = 18
	IORING_OP_CLOSE            = 19
	IORING_OP_FILES_UPDATE     = 20
	IORING_OP_STATX            = 21
	IORING_OP_READ             = 22
	IORING_OP_WRITE            = 23
	IORING_OP_FADVISE          = 24
	IORING_OP_MADVISE          = 25
	IORING_OP_SEND             = 26
	IORING_OP_RECV             = 27
	IORING_OP_OPENAT2          = 28
	IORING_OP_EPOLL_CTL        = 29
	IORING_OP_SPLICE           = 30
	IORING_OP_PROVIDE_BUFFERS  = 31
	IORING_OP_REMOVE_BUFFERS   = 32
	IORING_OP_TEE              = 33
	IORING_OP_SHUTDOWN         = 34
	IORING_OP_RENAMEAT         = 35
	IORING_OP_UNLINKAT         = 36
	IORING_OP_MKDIRAT          = 37
	IORING_OP_SYMLINKAT        = 38
	IORING_OP_LINKAT           = 39
	IORING_OP_MSG_RING         = 40
	IORING_OP_FSETXATTR        = 41
	IORING_OP_SETXATTR         = 42
	IORING_OP_FGETXATTR        = 43
	IORING_OP_GETXATTR         = 44
	IORING_OP_SOCKET           = 45
	IORING_OP_URING_CMD        = 46
	IORING_OP_SEND_ZC          = 47
	IORING_OP_SENDMSG_ZC       = 48
	IORING_OP_READ_MULTISHOT   = 49
	IORING_OP_WAITID           = 50
	IORING_OP_FUTEX_WAIT       = 51
	IORING_OP_FUTEX_WAKE       = 52
	IORING_OP_FUTEX_WAITV      = 53
	IORING_OP_FIXED_FD_INSTALL = 54
	IORING_OP_FTRUNCATE        = 55
	IORING_OP_BIND             = 56
	IORING_OP_LISTEN           = 57
	IORING_OP_RECV_ZC          = 58
	IORING_OP_EPOLL_WAIT       = 59
	IORING_OP_READV_FIXED      = 60
	IORING_OP_WRITEV_FIXED     = 61
	IORING_OP_PIPE             = 62
	IORING_OP_LAST             = 63 // one past the last opcode of Linux 6.18
)

// Per-opcode flags.
const (
	IORING_FSYNC_DATASYNC = 1 << 0 // sqe.fsync_flags

	// sqe.timeout_flags
	IORING_TIMEOUT_ABS           = 1 << 0
	IORING_TIMEOUT_UPDATE        = 1 << 1
	IORING_TIMEOUT_BOOTTIME      = 1 << 2
	IORING_TIMEOUT_REALTIME      = 1 << 3
	IORING_LINK_TIMEOUT_UPDATE   = 1 << 4
	IORING_TIMEOUT_ETIME_SUCCESS = 1 << 5
	IORING_TIMEOUT_MULTISHOT     = 1 << 6

	SPLICE_F_FD_IN_FIXED = 1 << 31 // sqe.splice_flags

	// sqe.len of POLL_ADD and POLL_REMOVE
	IORING_POLL_ADD_MULTI        = 1 << 0
	IORING_POLL_UPDATE_EVENTS    = 1 << 1
	IORING_POLL_UPDATE_USER_DATA = 1 << 2
	IORING_POLL_ADD_LEVEL        = 1 << 3

	// sqe.cancel_flags
	IORING_ASYNC_CANCEL_ALL      = 1 << 0
	IORING_ASYNC_CANCEL_FD       = 1 << 1
	IORING_ASYNC_CANCEL_ANY      = 1 << 2
	IORING_ASYNC_CANCEL_FD_FIXED = 1 << 3
	IORING_ASYNC_CANCEL_USERDATA = 1 << 4
	IORING_ASYNC_CANCEL_OP       = 1 << 5

	// sqe.ioprio of send and receive
	IORING_RECVSEND_POLL_FIRST  = 1 << 0
	IORING_RECV_MULTISHOT       = 1 << 1
	IORING_RECVSEND_FIXED_BUF   = 1 << 2
	IORING_SEND_ZC_REPORT_USAGE = 1 << 3
	IORING_RECVSEND_BUNDLE      = 1 << 4
	IORING_SEND_VECTORIZED      = 1 << 5

	IORING_NOTIF_USAGE_ZC_COPIED = 1 << 31 // cqe.res of a zero-copy notification

	// sqe.ioprio of accept
	IORING_ACCEPT_MULTISHOT  = 1 << 0
	IORING_ACCEPT_DONTWAIT   = 1 << 1
	IORING_ACCEPT_POLL_FIRST = 1 << 2

	// sqe.addr of MSG_RING
	IORING_MSG_DATA    = 0
	IORING_MSG_SEND_FD = 1

	// sqe.msg_ring_flags
	IORING_MSG_RING_CQE_SKIP   = 1 << 0
	IORING_MSG_RING_FLAGS_PASS = 1 << 1

	IORING_FIXED_FD_NO_CLOEXEC = 1 << 0 // sqe.install_fd_flags

	// sqe.nop_flags
	IORING_NOP_INJECT_RESULT = 1 << 0
	IORING_NOP_FILE          = 1 << 1
	IORING_NOP_FIXED_FILE    = 1 << 2
	IORING_NOP_FIXED_BUFFER  = 1 << 3
	IORING_NOP_TW            = 1 << 4
	IORING_NOP_CQE32         = 1 << 5

	IORING_URING_CMD_FIXED     = 1 << 0 // sqe.uring_cmd_flags
	IORING_URING_CMD_MULTISHOT = 1 << 1

	// sqe.cmd_op of URING_CMD on a socket
	SOCKET_URING_OP_SIOCINQ      = 0
	SOCKET_URING_OP_SIOCOUTQ     = 1
	SOCKET_URING_OP_GETSOCKOPT   = 2
	SOCKET_URING_OP_SETSOCKOPT   = 3
	SOCKET_URING_OP_TX_TIMESTAMP = 4

	// sqe.cmd_op of URING_CMD on a block device: _IO(0x12, 0)
	BLOCK_URING_CMD_DISCARD = 0x12 << 8

	IORING_RW_ATTR_FLAG_PI = 1 << 0 // sqe.attr_type_mask

	// IORING_FILE_INDEX_ALLOC asks the kernel to pick a free slot of the
	// fixed file table.
	IORING_FILE_INDEX_ALLOC = 1<<32 - 1
)

// struct io_uring_sqe.flags
const (
	IOSQE_FIXED_FILE       = 1 << 0
	IOSQE_IO_DRAIN         = 1 << 1
	IOSQE_IO_LINK          = 1 << 2
	IOSQE_IO_HARDLINK      = 1 << 3
	IOSQE_ASYNC            = 1 << 4
	IOSQE_BUFFER_SELECT    = 1 << 5
	IOSQE_CQE_SKIP_SUCCESS = 1 << 6
)

// struct io_uring_cqe.flags
const (
	IORING_CQE_F_BUFFER        = 1 << 0
	IORING_CQE_F_MORE          = 1 << 1
	IORING_CQE_F_SOCK_NONEMPTY = 1 << 2
	IORING_CQE_F_NOTIF         = 1 << 3
	IORING_CQE_F_BUF_MORE      = 1 << 4
	IORING_CQE_F_SKIP          = 1 << 5
	IORING_CQE_F_32            = 1 << 15
	IORING_CQE_F_TSTAMP_HW     = 1 << 16
	IORING_CQE_BUFFER_SHIFT    = 16
)
