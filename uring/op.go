// SPDX-License-Identifier: MIT

package uring

import (
	"strconv"

	"github.com/ringside-io/ringside/internal/abi"
)

// Op is the opcode of an entry.
type Op uint8

// The opcodes up to Linux 6.18, each with the kernel that introduced it.
const (
	OpNop            Op = abi.IORING_OP_NOP              // 5.1
	OpReadv          Op = abi.IORING_OP_READV            // 5.1
	OpWritev         Op = abi.IORING_OP_WRITEV           // 5.1
	OpFsync          Op = abi.IORING_OP_FSYNC            // 5.1
	OpReadFixed      Op = abi.IORING_OP_READ_FIXED       // 5.1
	OpWriteFixed     Op = abi.IORING_OP_WRITE_FIXED      // 5.1
	OpPollAdd        Op = abi.IORING_OP_POLL_ADD         // 5.1
	OpPollRemove     Op = abi.IORING_OP_POLL_REMOVE      // 5.1
	OpSyncFileRange  Op = abi.IORING_OP_SYNC_FILE_RANGE  // 5.2
	OpSendMsg        Op = abi.IORING_OP_SENDMSG          // 5.3
	OpRecvMsg        Op = abi.IORING_OP_RECVMSG          // 5.3
	OpTimeout        Op = abi.IORING_OP_TIMEOUT          // 5.4
	OpTimeoutRemove  Op = abi.IORING_OP_TIMEOUT_REMOVE   // 5.5
	OpAccept         Op = abi.IORING_OP_ACCEPT           // 5.5
	OpAsyncCancel    Op = abi.IORING_OP_ASYNC_CANCEL     // 5.5
	OpLinkTimeout    Op = abi.IORING_OP_LINK_TIMEOUT     // 5.5
	OpConnect        Op = abi.IORING_OP_CONNECT          // 5.5
	OpFallocate      Op = abi.IORING_OP_FALLOCATE        // 5.6
	OpOpenAt         Op = abi.IORING_OP_OPENAT           // 5.6
	OpClose          Op = abi.IORING_OP_CLOSE            // 5.6
	OpFilesUpdate    Op = abi.IORING_OP_FILES_UPDATE     // 5.6
	OpStatx          Op = abi.IORING_OP_STATX            // 5.6
	OpRead           Op = abi.IORING_OP_READ             // 5.6
	OpWrite          Op = abi.IORING_OP_WRITE            // 5.6
	OpFadvise        Op = abi.IORING_OP_FADVISE          // 5.6
	OpMadvise        Op = abi.IORING_OP_MADVISE          // 5.6
	OpSend           Op = abi.IORING_OP_SEND             // 5.6
	OpRecv           Op = abi.IORING_OP_RECV             // 5.6
	OpOpenAt2        Op = abi.IORING_OP_OPENAT2          // 5.6
	OpEpollCtl       Op = abi.IORING_OP_EPOLL_CTL        // 5.6
	OpSplice         Op = abi.IORING_OP_SPLICE           // 5.7
	OpProvideBuffers Op = abi.IORING_OP_PROVIDE_BUFFERS  // 5.7
	OpRemoveBuffers  Op = abi.IORING_OP_REMOVE_BUFFERS   // 5.7
	OpTee            Op = abi.IORING_OP_TEE              // 5.8
	OpShutdown       Op = abi.IORING_OP_SHUTDOWN         // 5.11
	OpRenameAt       Op = abi.IORING_OP_RENAMEAT         // 5.11
	OpUnlinkAt       Op = abi.IORING_OP_UNLINKAT         // 5.11
	OpMkdirAt        Op = abi.IORING_OP_MKDIRAT          // 5.15
	OpSymlinkAt      Op = abi.IORING_OP_SYMLINKAT        // 5.15
	OpLinkAt         Op = abi.IORING_OP_LINKAT           // 5.15
	OpMsgRing        Op = abi.IORING_OP_MSG_RING         // 5.18
	OpFsetxattr      Op = abi.IORING_OP_FSETXATTR        // 5.19
	OpSetxattr       Op = abi.IORING_OP_SETXATTR         // 5.19
	OpFgetxattr      Op = abi.IORING_OP_FGETXATTR        // 5.19
	OpGetxattr       Op = abi.IORING_OP_GETXATTR         // 5.19
	OpSocket         Op = abi.IORING_OP_SOCKET           // 5.19
	OpUringCmd       Op = abi.IORING_OP_URING_CMD        // 5.19
	OpSendZC         Op = abi.IORING_OP_SEND_ZC          // 6.0
	OpSendMsgZC      Op = abi.IORING_OP_SENDMSG_ZC       // 6.1
	OpReadMultishot  Op = abi.IORING_OP_READ_MULTISHOT   // 6.7
	OpWaitID         Op = abi.IORING_OP_WAITID           // 6.7
	OpFutexWait      Op = abi.IORING_OP_FUTEX_WAIT       // 6.7
	OpFutexWake      Op = abi.IORING_OP_FUTEX_WAKE       // 6.7
	OpFutexWaitv     Op = abi.IORING_OP_FUTEX_WAITV      // 6.7
	OpFixedFDInstall Op = abi.IORING_OP_FIXED_FD_INSTALL // 6.8
	OpFtruncate      Op = abi.IORING_OP_FTRUNCATE        // 6.9
	OpBind           Op = abi.IORING_OP_BIND             // 6.11
	OpListen         Op = abi.IORING_OP_LISTEN           // 6.11
	OpRecvZC         Op = abi.IORING_OP_RECV_ZC          // 6.15
	OpEpollWait      Op = abi.IORING_OP_EPOLL_WAIT       // 6.15
	OpReadvFixed     Op = abi.IORING_OP_READV_FIXED      // 6.15
	OpWritevFixed    Op = abi.IORING_OP_WRITEV_FIXED     // 6.15
	OpPipe           Op = abi.IORING_OP_PIPE             // 6.16

	// OpCount is the number of opcodes of Linux 6.18.
	OpCount = abi.IORING_OP_LAST
)

var opNames = [...]string{
	OpNop:            "NOP",
	OpReadv:          "READV",
	OpWritev:         "WRITEV",
	OpFsync:          "FSYNC",
	OpReadFixed:      "READ_FIXED",
	OpWriteFixed:     "WRITE_FIXED",
	OpPollAdd:        "POLL_ADD",
	OpPollRemove:     "POLL_REMOVE",
	OpSyncFileRange:  "SYNC_FILE_RANGE",
	OpSendMsg:        "SENDMSG",
	OpRecvMsg:        "RECVMSG",
	OpTimeout:        "TIMEOUT",
	OpTimeoutRemove:  "TIMEOUT_REMOVE",
	OpAccept:         "ACCEPT",
	OpAsyncCancel:    "ASYNC_CANCEL",
	OpLinkTimeout:    "LINK_TIMEOUT",
	OpConnect:        "CONNECT",
	OpFallocate:      "FALLOCATE",
	OpOpenAt:         "OPENAT",
	OpClose:          "CLOSE",
	OpFilesUpdate:    "FILES_UPDATE",
	OpStatx:          "STATX",
	OpRead:           "READ",
	OpWrite:          "WRITE",
	OpFadvise:        "FADVISE",
	OpMadvise:        "MADVISE",
	OpSend:           "SEND",
	OpRecv:           "RECV",
	OpOpenAt2:        "OPENAT2",
	OpEpollCtl:       "EPOLL_CTL",
	OpSplice:         "SPLICE",
	OpProvideBuffers: "PROVIDE_BUFFERS",
	OpRemoveBuffers:  "REMOVE_BUFFERS",
	OpTee:            "TEE",
	OpShutdown:       "SHUTDOWN",
	OpRenameAt:       "RENAMEAT",
	OpUnlinkAt:       "UNLINKAT",
	OpMkdirAt:        "MKDIRAT",
	OpSymlinkAt:      "SYMLINKAT",
	OpLinkAt:         "LINKAT",
	OpMsgRing:        "MSG_RING",
	OpFsetxattr:      "FSETXATTR",
	OpSetxattr:       "SETXATTR",
	OpFgetxattr:      "FGETXATTR",
	OpGetxattr:       "GETXATTR",
	OpSocket:         "SOCKET",
	OpUringCmd:       "URING_CMD",
	OpSendZC:         "SEND_ZC",
	OpSendMsgZC:      "SENDMSG_ZC",
	OpReadMultishot:  "READ_MULTISHOT",
	OpWaitID:         "WAITID",
	OpFutexWait:      "FUTEX_WAIT",
	OpFutexWake:      "FUTEX_WAKE",
	OpFutexWaitv:     "FUTEX_WAITV",
	OpFixedFDInstall: "FIXED_FD_INSTALL",
	OpFtruncate:      "FTRUNCATE",
	OpBind:           "BIND",
	OpListen:         "LISTEN",
	OpRecvZC:         "RECV_ZC",
	OpEpollWait:      "EPOLL_WAIT",
	OpReadvFixed:     "READV_FIXED",
	OpWritevFixed:    "WRITEV_FIXED",
	OpPipe:           "PIPE",
}

// String returns the kernel's name without its prefix.
func (op Op) String() string {
	if int(op) < len(opNames) {
		return opNames[op]
	}
	return "OP_" + strconv.Itoa(int(op))
}
