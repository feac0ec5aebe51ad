// SPDX-License-Identifier: MIT

package abi

// io_uring_setup(2) flags.
const (
	IORING_SETUP_IOPOLL             = 1 << 0
	IORING_SETUP_SQPOLL             = 1 << 1
	IORING_SETUP_SQ_AFF             = 1 << 2
	IORING_SETUP_CQSIZE             = 1 << 3
	IORING_SETUP_CLAMP              = 1 << 4
	IORING_SETUP_ATTACH_WQ          = 1 << 5
	IORING_SETUP_R_DISABLED         = 1 << 6
	IORING_SETUP_SUBMIT_ALL         = 1 << 7
	IORING_SETUP_COOP_TASKRUN       = 1 << 8
	IORING_SETUP_TASKRUN_FLAG       = 1 << 9
	IORING_SETUP_SQE128             = 1 << 10
	IORING_SETUP_CQE32              = 1 << 11
	IORING_SETUP_SINGLE_ISSUER      = 1 << 12
	IORING_SETUP_DEFER_TASKRUN      = 1 << 13
	IORING_SETUP_NO_MMAP            = 1 << 14
	IORING_SETUP_REGISTERED_FD_ONLY = 1 << 15
	IORING_SETUP_NO_SQARRAY         = 1 << 16
	IORING_SETUP_HYBRID_IOPOLL      = 1 << 17
	IORING_SETUP_CQE_MIXED          = 1 << 18
)

// struct io_uring_params.features
const (
	IORING_FEAT_SINGLE_MMAP     = 1 << 0
	IORING_FEAT_NODROP          = 1 << 1
	IORING_FEAT_SUBMIT_STABLE   = 1 << 2
	IORING_FEAT_RW_CUR_POS      = 1 << 3
	IORING_FEAT_CUR_PERSONALITY = 1 << 4
	IORING_FEAT_FAST_POLL       = 1 << 5
	IORING_FEAT_POLL_32BITS     = 1 << 6
	IORING_FEAT_SQPOLL_NONFIXED = 1 << 7
	IORING_FEAT_EXT_ARG         = 1 << 8
	IORING_FEAT_NATIVE_WORKERS  = 1 << 9
	IORING_FEAT_RSRC_TAGS       = 1 << 10
	IORING_FEAT_CQE_SKIP        = 1 << 11
	IORING_FEAT_LINKED_FILE     = 1 << 12
	IORING_FEAT_REG_REG_RING    = 1 << 13
	IORING_FEAT_RECVSEND_BUNDLE = 1 << 14
	IORING_FEAT_MIN_TIMEOUT     = 1 << 15
	IORING_FEAT_RW_ATTR         = 1 << 16
	IORING_FEAT_NO_IOWAIT       = 1 << 17
)

// Flags of io_uring_enter(2), each with the kernel that brought it.
const (
	IORING_ENTER_GETEVENTS       = 1 << 0 // 5.1
	IORING_ENTER_SQ_WAKEUP       = 1 << 1 // 5.1
	IORING_ENTER_SQ_WAIT         = 1 << 2 // 5.10
	IORING_ENTER_EXT_ARG         = 1 << 3 // 5.11
	IORING_ENTER_REGISTERED_RING = 1 << 4 // 5.18
	IORING_ENTER_ABS_TIMER       = 1 << 5 // 6.12
	IORING_ENTER_EXT_ARG_REG     = 1 << 6 // 6.13
	IORING_ENTER_NO_IOWAIT       = 1 << 7 // 6.15
)

// Flags in the mapped rings: sq_ring.flags and cq_ring.flags.
const (
	IORING_SQ_NEED_WAKEUP = 1 << 0
	IORING_SQ_CQ_OVERFLOW = 1 << 1
	IORING_SQ_TASKRUN     = 1 << 2

	IORING_CQ_EVENTFD_DISABLED = 1 << 0
)

// Offsets for mmap(2) on the ring's descriptor.
const (
	IORING_OFF_SQ_RING    = 0
	IORING_OFF_CQ_RING    = 0x8000000
	IORING_OFF_SQES       = 0x10000000
	IORING_OFF_PBUF_RING  = 0x80000000
	IORING_OFF_PBUF_SHIFT = 16
)

// SQRingOffsets is struct io_sqring_offsets.
type SQRingOffsets struct {
	Head, Tail, RingMask, RingEntries, Flags, Dropped, Array, Resv1 uint32
	UserAddr                                                        uint64
}

// CQRingOffsets is struct io_cqring_offsets.
type CQRingOffsets struct {
	Head, Tail, RingMask, RingEntries, Overflow, Cqes, Flags, Resv1 uint32
	UserAddr                                                        uint64
}

// Params is struct io_uring_params.
type Params struct {
	SqEntries    uint32
	CqEntries    uint32
	Flags        uint32
	SqThreadCPU  uint32
	SqThreadIdle uint32 // milliseconds
	Features     uint32
	WqFd         uint32
	Resv         [3]uint32
	SqOff        SQRingOffsets
	CqOff        CQRingOffsets
}

// SQE is struct io_uring_sqe. The kernel overlays most fields; the names here
// are those of the commonest use, the comment gives the others.
type SQE struct {
	Opcode      uint8
	Flags       uint8
	Ioprio      uint16
	Fd          int32
	Off         uint64 // addr2; cmd_op in the first 32 bits
	Addr        uint64 // splice_off_in; level and optname
	Len         uint32
	OpFlags     uint32 // rw_flags, poll32_events, msg_flags, ...
	UserData    uint64
	BufIndex    uint16 // buf_group
	Personality uint16
	FileIndex   uint32 // splice_fd_in, zcrx_ifq_idx, optlen; addr_len in the first 16 bits
	Addr3       uint64 // attr_ptr, optval
	Pad2        uint64 // attr_type_mask
}

// CQE is struct io_uring_cqe without the extension.
type CQE struct {
	UserData uint64
	Res      int32
	Flags    uint32
}

// BigCQE is struct io_uring_cqe with the 16 bytes that CQE32 rings and
// CQE_F_32 entries add.
type BigCQE struct {
	CQE
	Big [2]uint64
}

// Timespec is struct __kernel_timespec: 64-bit on every architecture.
type Timespec struct {
	Sec, Nsec int64
}

// GeteventsArg is struct io_uring_getevents_arg.
type GeteventsArg struct {
	Sigmask     uint64
	SigmaskSz   uint32
	MinWaitUsec uint32
	Ts          uint64
}

// RegWait is struct io_uring_reg_wait.
type RegWait struct {
	Ts          Timespec
	MinWaitUsec uint32
	Flags       uint32
	Sigmask     uint64
	SigmaskSz   uint32
	Pad         [3]uint32
	Pad2        [2]uint64
}

// IORING_REG_WAIT_TS is set when RegWait.Ts is.
const IORING_REG_WAIT_TS = 1 << 0
