// SPDX-License-Identifier: MIT

package abi

// io_uring_register(2) operations.
const (
	IORING_REGISTER_BUFFERS          = 0
	IORING_UNREGISTER_BUFFERS        = 1
	IORING_REGISTER_FILES            = 2
	IORING_UNREGISTER_FILES          = 3
	IORING_REGISTER_EVENTFD          = 4
	IORING_UNREGISTER_EVENTFD        = 5
	IORING_REGISTER_FILES_UPDATE     = 6
	IORING_REGISTER_EVENTFD_ASYNC    = 7
	IORING_REGISTER_PROBE            = 8
	IORING_REGISTER_PERSONALITY      = 9
	IORING_UNREGISTER_PERSONALITY    = 10
	IORING_REGISTER_RESTRICTIONS     = 11
	IORING_REGISTER_ENABLE_RINGS     = 12
	IORING_REGISTER_FILES2           = 13
	IORING_REGISTER_FILES_UPDATE2    = 14
	IORING_REGISTER_BUFFERS2         = 15
	IORING_REGISTER_BUFFERS_UPDATE   = 16
	IORING_REGISTER_IOWQ_AFF         = 17
	IORING_UNREGISTER_IOWQ_AFF       = 18
	IORING_REGISTER_IOWQ_MAX_WORKERS = 19
	IORING_REGISTER_RING_FDS         = 20
	IORING_UNREGISTER_RING_FDS       = 21
	IORING_REGISTER_PBUF_RING        = 22
	IORING_UNREGISTER_PBUF_RING      = 23
	IORING_REGISTER_SYNC_CANCEL      = 24
	IORING_REGISTER_FILE_ALLOC_RANGE = 25
	IORING_REGISTER_PBUF_STATUS      = 26
	IORING_REGISTER_NAPI             = 27
	IORING_UNREGISTER_NAPI           = 28
	IORING_REGISTER_CLOCK            = 29
	IORING_REGISTER_CLONE_BUFFERS    = 30
	IORING_REGISTER_SEND_MSG_RING    = 31
	IORING_REGISTER_ZCRX_IFQ         = 32
	IORING_REGISTER_RESIZE_RINGS     = 33
	IORING_REGISTER_MEM_REGION       = 34
	IORING_REGISTER_QUERY            = 35
	IORING_REGISTER_LAST             = 36 // one past the last operation of Linux 6.18

	IORING_REGISTER_USE_REGISTERED_RING = 1 << 31
)

// Flags and values of the register operations.
const (
	IORING_RSRC_REGISTER_SPARSE = 1 << 0
	IORING_REGISTER_FILES_SKIP  = -2

	IO_URING_OP_SUPPORTED = 1 << 0

	IORING_REGISTER_SRC_REGISTERED = 1 << 0
	IORING_REGISTER_DST_REPLACE    = 1 << 1

	IOU_PBUF_RING_MMAP = 1 << 0
	IOU_PBUF_RING_INC  = 1 << 1

	IORING_RESTRICTION_REGISTER_OP        = 0
	IORING_RESTRICTION_SQE_OP             = 1
	IORING_RESTRICTION_SQE_FLAGS_ALLOWED  = 2
	IORING_RESTRICTION_SQE_FLAGS_REQUIRED = 3

	IORING_MEM_REGION_TYPE_USER    = 1
	IORING_MEM_REGION_REG_WAIT_ARG = 1

	IO_URING_NAPI_REGISTER_OP   = 0
	IO_URING_NAPI_STATIC_ADD_ID = 1
	IO_URING_NAPI_STATIC_DEL_ID = 2

	IO_URING_NAPI_TRACKING_DYNAMIC  = 0
	IO_URING_NAPI_TRACKING_STATIC   = 1
	IO_URING_NAPI_TRACKING_INACTIVE = 255

	IO_URING_QUERY_OPCODES = 0
	IO_URING_QUERY_ZCRX    = 1
	IO_URING_QUERY_SCQ     = 2

	IORING_ZCRX_AREA_DMABUF = 1
	IORING_ZCRX_AREA_SHIFT  = 48
)

// FilesUpdate is struct io_uring_files_update and struct io_uring_rsrc_update.
type FilesUpdate struct {
	Offset uint32
	Resv   uint32
	Data   uint64
}

// RsrcRegister is struct io_uring_rsrc_register.
type RsrcRegister struct {
	Nr    uint32
	Flags uint32
	Resv2 uint64
	Data  uint64
	Tags  uint64
}

// RsrcUpdate2 is struct io_uring_rsrc_update2.
type RsrcUpdate2 struct {
	Offset uint32
	Resv   uint32
	Data   uint64
	Tags   uint64
	Nr     uint32
	Resv2  uint32
}

// RingFDUpdate is the struct io_uring_rsrc_update that RING_FDS takes: the
// offset is the slot, the data the descriptor.
type RingFDUpdate = FilesUpdate

// ProbeOp is struct io_uring_probe_op.
type ProbeOp struct {
	Op    uint8
	Resv  uint8
	Flags uint16
	Resv2 uint32
}

// Probe is struct io_uring_probe with room for every opcode number.
type Probe struct {
	LastOp uint8
	OpsLen uint8
	Resv   uint16
	Resv2  [3]uint32
	Ops    [256]ProbeOp
}

// Restriction is struct io_uring_restriction.
type Restriction struct {
	Opcode uint16
	Value  uint8 // register_op, sqe_op or sqe_flags
	Resv   uint8
	Resv2  [3]uint32
}

// BufReg is struct io_uring_buf_reg.
type BufReg struct {
	RingAddr    uint64
	RingEntries uint32
	Bgid        uint16
	Flags       uint16
	Resv        [3]uint64
}

// Buf is struct io_uring_buf. In entry 0 of a buffer ring the last 16 bits are
// the tail.
type Buf struct {
	Addr uint64
	Len  uint32
	Bid  uint16
	Resv uint16
}

// BufStatus is struct io_uring_buf_status.
type BufStatus struct {
	BufGroup uint32
	Head     uint32
	Resv     [8]uint32
}

// SyncCancelReg is struct io_uring_sync_cancel_reg.
type SyncCancelReg struct {
	Addr    uint64
	Fd      int32
	Flags   uint32
	Timeout Timespec
	Opcode  uint8
	Pad     [7]uint8
	Pad2    [3]uint64
}

// FileIndexRange is struct io_uring_file_index_range.
type FileIndexRange struct {
	Off  uint32
	Len  uint32
	Resv uint64
}

// Napi is struct io_uring_napi.
type Napi struct {
	BusyPollTo     uint32 // microseconds
	PreferBusyPoll uint8
	Opcode         uint8 // since 6.13
	Pad            [2]uint8
	OpParam        uint32 // since 6.13
	Resv           uint32
}

// ClockRegister is struct io_uring_clock_register.
type ClockRegister struct {
	Clockid uint32
	Resv    [3]uint32
}

// CloneBuffers is struct io_uring_clone_buffers.
type CloneBuffers struct {
	SrcFd  uint32
	Flags  uint32
	SrcOff uint32
	DstOff uint32
	Nr     uint32
	Pad    [3]uint32
}

// RegionDesc is struct io_uring_region_desc.
type RegionDesc struct {
	UserAddr   uint64
	Size       uint64
	Flags      uint32
	ID         uint32
	MmapOffset uint64
	Resv       [4]uint64
}

// MemRegionReg is struct io_uring_mem_region_reg.
type MemRegionReg struct {
	RegionUptr uint64
	Flags      uint64
	Resv       [2]uint64
}

// QueryHdr is struct io_uring_query_hdr.
type QueryHdr struct {
	NextEntry uint64
	QueryData uint64
	QueryOp   uint32
	Size      uint32
	Result    int32
	Resv      [3]uint32
}

// QueryOpcode is struct io_uring_query_opcode.
type QueryOpcode struct {
	NrRequestOpcodes  uint32
	NrRegisterOpcodes uint32
	FeatureFlags      uint64
	RingSetupFlags    uint64
	EnterFlags        uint64
	SqeFlags          uint64
	NrQueryOpcodes    uint32
	Pad               uint32
}

// ZcrxOffsets is struct io_uring_zcrx_offsets.
type ZcrxOffsets struct {
	Head, Tail, Rqes, Resv2 uint32
	Resv                    [2]uint64
}

// ZcrxAreaReg is struct io_uring_zcrx_area_reg.
type ZcrxAreaReg struct {
	Addr        uint64
	Len         uint64
	RqAreaToken uint64
	Flags       uint32
	DmabufFd    uint32
	Resv2       [2]uint64
}

// ZcrxIfqReg is struct io_uring_zcrx_ifq_reg.
type ZcrxIfqReg struct {
	IfIdx     uint32
	IfRxq     uint32
	RqEntries uint32
	Flags     uint32
	AreaPtr   uint64
	RegionPtr uint64
	Offsets   ZcrxOffsets
	ZcrxID    uint32
	Resv2     uint32
	Resv      [3]uint64
}

// OpenHow is struct open_how of openat2(2).
type OpenHow struct {
	Flags   uint64
	Mode    uint64
	Resolve uint64
}

// FutexWaitv is struct futex_waitv.
type FutexWaitv struct {
	Val      uint64
	Uaddr    uint64
	Flags    uint32
	Reserved uint32
}

// RecvmsgOut is struct io_uring_recvmsg_out, the header that a multishot
// RECVMSG writes in front of each message.
type RecvmsgOut struct {
	Namelen    uint32
	Controllen uint32
	Payloadlen uint32
	Flags      uint32
}

// AttrPI is struct io_uring_attr_pi.
type AttrPI struct {
	Flags  uint16
	AppTag uint16
	Len    uint32
	Addr   uint64
	Seed   uint64
	Rsvd   uint64
}
