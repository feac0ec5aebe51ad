// SPDX-License-Identifier: MIT

package uring

import (
	"strconv"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// RegisterOp is an operation of io_uring_register(2).
type RegisterOp uint32

// The register operations up to Linux 6.18, each with the kernel that
// introduced it.
const (
	OpRegisterBuffers        RegisterOp = abi.IORING_REGISTER_BUFFERS          // 5.1
	OpUnregisterBuffers      RegisterOp = abi.IORING_UNREGISTER_BUFFERS        // 5.1
	OpRegisterFiles          RegisterOp = abi.IORING_REGISTER_FILES            // 5.1
	OpUnregisterFiles        RegisterOp = abi.IORING_UNREGISTER_FILES          // 5.1
	OpRegisterEventFD        RegisterOp = abi.IORING_REGISTER_EVENTFD          // 5.2
	OpUnregisterEventFD      RegisterOp = abi.IORING_UNREGISTER_EVENTFD        // 5.2
	OpRegisterFilesUpdate    RegisterOp = abi.IORING_REGISTER_FILES_UPDATE     // 5.5
	OpRegisterEventFDAsync   RegisterOp = abi.IORING_REGISTER_EVENTFD_ASYNC    // 5.6
	OpRegisterProbe          RegisterOp = abi.IORING_REGISTER_PROBE            // 5.6
	OpRegisterPersonality    RegisterOp = abi.IORING_REGISTER_PERSONALITY      // 5.6
	OpUnregisterPersonality  RegisterOp = abi.IORING_UNREGISTER_PERSONALITY    // 5.6
	OpRegisterRestrictions   RegisterOp = abi.IORING_REGISTER_RESTRICTIONS     // 5.10
	OpRegisterEnableRings    RegisterOp = abi.IORING_REGISTER_ENABLE_RINGS     // 5.10
	OpRegisterFiles2         RegisterOp = abi.IORING_REGISTER_FILES2           // 5.13
	OpRegisterFilesUpdate2   RegisterOp = abi.IORING_REGISTER_FILES_UPDATE2    // 5.13
	OpRegisterBuffers2       RegisterOp = abi.IORING_REGISTER_BUFFERS2         // 5.13
	OpRegisterBuffersUpdate  RegisterOp = abi.IORING_REGISTER_BUFFERS_UPDATE   // 5.13
	OpRegisterIOWQAffinity   RegisterOp = abi.IORING_REGISTER_IOWQ_AFF         // 5.14
	OpUnregisterIOWQAffinity RegisterOp = abi.IORING_UNREGISTER_IOWQ_AFF       // 5.14
	OpRegisterIOWQMaxWorkers RegisterOp = abi.IORING_REGISTER_IOWQ_MAX_WORKERS // 5.15
	OpRegisterRingFDs        RegisterOp = abi.IORING_REGISTER_RING_FDS         // 5.18
	OpUnregisterRingFDs      RegisterOp = abi.IORING_UNREGISTER_RING_FDS       // 5.18
	OpRegisterPBufRing       RegisterOp = abi.IORING_REGISTER_PBUF_RING        // 5.19
	OpUnregisterPBufRing     RegisterOp = abi.IORING_UNREGISTER_PBUF_RING      // 5.19
	OpRegisterSyncCancel     RegisterOp = abi.IORING_REGISTER_SYNC_CANCEL      // 6.0
	OpRegisterFileAllocRange RegisterOp = abi.IORING_REGISTER_FILE_ALLOC_RANGE // 6.0
	OpRegisterPBufStatus     RegisterOp = abi.IORING_REGISTER_PBUF_STATUS      // 6.8
	OpRegisterNAPI           RegisterOp = abi.IORING_REGISTER_NAPI             // 6.9
	OpUnregisterNAPI         RegisterOp = abi.IORING_UNREGISTER_NAPI           // 6.9
	OpRegisterClock          RegisterOp = abi.IORING_REGISTER_CLOCK            // 6.12
	OpRegisterCloneBuffers   RegisterOp = abi.IORING_REGISTER_CLONE_BUFFERS    // 6.12
	OpRegisterSendMsgRing    RegisterOp = abi.IORING_REGISTER_SEND_MSG_RING    // 6.13
	OpRegisterZCRXIFQ        RegisterOp = abi.IORING_REGISTER_ZCRX_IFQ         // 6.15
	OpRegisterResizeRings    RegisterOp = abi.IORING_REGISTER_RESIZE_RINGS     // 6.13
	OpRegisterMemRegion      RegisterOp = abi.IORING_REGISTER_MEM_REGION       // 6.13
	OpRegisterQuery          RegisterOp = abi.IORING_REGISTER_QUERY            // 6.18

	// RegisterOpCount is the number of register operations of Linux 6.18.
	RegisterOpCount = abi.IORING_REGISTER_LAST
)

var registerOpNames = [...]string{
	OpRegisterBuffers:        "REGISTER_BUFFERS",
	OpUnregisterBuffers:      "UNREGISTER_BUFFERS",
	OpRegisterFiles:          "REGISTER_FILES",
	OpUnregisterFiles:        "UNREGISTER_FILES",
	OpRegisterEventFD:        "REGISTER_EVENTFD",
	OpUnregisterEventFD:      "UNREGISTER_EVENTFD",
	OpRegisterFilesUpdate:    "REGISTER_FILES_UPDATE",
	OpRegisterEventFDAsync:   "REGISTER_EVENTFD_ASYNC",
	OpRegisterProbe:          "REGISTER_PROBE",
	OpRegisterPersonality:    "REGISTER_PERSONALITY",
	OpUnregisterPersonality:  "UNREGISTER_PERSONALITY",
	OpRegisterRestrictions:   "REGISTER_RESTRICTIONS",
	OpRegisterEnableRings:    "REGISTER_ENABLE_RINGS",
	OpRegisterFiles2:         "REGISTER_FILES2",
	OpRegisterFilesUpdate2:   "REGISTER_FILES_UPDATE2",
	OpRegisterBuffers2:       "REGISTER_BUFFERS2",
	OpRegisterBuffersUpdate:  "REGISTER_BUFFERS_UPDATE",
	OpRegisterIOWQAffinity:   "REGISTER_IOWQ_AFF",
	OpUnregisterIOWQAffinity: "UNREGISTER_IOWQ_AFF",
	OpRegisterIOWQMaxWorkers: "REGISTER_IOWQ_MAX_WORKERS",
	OpRegisterRingFDs:        "REGISTER_RING_FDS",
	OpUnregisterRingFDs:      "UNREGISTER_RING_FDS",
	OpRegisterPBufRing:       "REGISTER_PBUF_RING",
	OpUnregisterPBufRing:     "UNREGISTER_PBUF_RING",
	OpRegisterSyncCancel:     "REGISTER_SYNC_CANCEL",
	OpRegisterFileAllocRange: "REGISTER_FILE_ALLOC_RANGE",
	OpRegisterPBufStatus:     "REGISTER_PBUF_STATUS",
	OpRegisterNAPI:           "REGISTER_NAPI",
	OpUnregisterNAPI:         "UNREGISTER_NAPI",
	OpRegisterClock:          "REGISTER_CLOCK",
	OpRegisterCloneBuffers:   "REGISTER_CLONE_BUFFERS",
	OpRegisterSendMsgRing:    "REGISTER_SEND_MSG_RING",
	OpRegisterZCRXIFQ:        "REGISTER_ZCRX_IFQ",
	OpRegisterResizeRings:    "REGISTER_RESIZE_RINGS",
	OpRegisterMemRegion:      "REGISTER_MEM_REGION",
	OpRegisterQuery:          "REGISTER_QUERY",
}

// String returns the kernel's name without its prefix.
func (op RegisterOp) String() string {
	if int(op) < len(registerOpNames) {
		return registerOpNames[op]
	}
	return "REGISTER_" + strconv.Itoa(int(op))
}

// OpSet is a set of opcodes.
type OpSet [4]uint64

// Has reports whether the set holds op.
func (s OpSet) Has(op Op) bool { return s[op/64]&(1<<(op%64)) != 0 }

// Len returns the number of opcodes in the set.
func (s OpSet) Len() int {
	n := 0
	for op := range 256 {
		if s.Has(Op(op)) {
			n++
		}
	}
	return n
}

// Probe asks which opcodes the kernel supports. (5.6)
func (r *Ring) Probe() (OpSet, error) {
	p := &abi.Probe{}
	if _, err := r.register(OpRegisterProbe, sys.Pointer(p), uint32(len(p.Ops))); err != nil {
		return OpSet{}, err
	}
	return opSetOf(p), nil
}

// opSetOf decodes the result of the opcode probe.
func opSetOf(p *abi.Probe) OpSet {
	var s OpSet
	for _, o := range p.Ops[:min(int(p.OpsLen), len(p.Ops))] {
		if o.Flags&abi.IO_URING_OP_SUPPORTED != 0 {
			s[o.Op/64] |= 1 << (o.Op % 64)
		}
	}
	return s
}

// KernelInfo is the result of [Query].
type KernelInfo struct {
	Ops         int // number of opcodes known
	RegisterOps int // number of register operations known
	Features    Features
	Setup       SetupFlags
	Enter       uint32 // flags of io_uring_enter(2)
	SQEFlags    SQEFlags
	// Queries is the number of kinds of queries that the kernel supports.
	Queries int
}

// Query asks the kernel what it supports, without a ring. (6.18)
func Query() (KernelInfo, error) {
	info := &abi.QueryOpcode{}
	hdr := &abi.QueryHdr{QueryData: sys.Addr(info), QueryOp: abi.IO_URING_QUERY_OPCODES,
		Size: uint32(sys.Size[abi.QueryOpcode]())}
	_, errno := sys.Register(-1, uint32(OpRegisterQuery), sys.Pointer(hdr), 0)
	keepAlive(info)
	if errno == 0 && hdr.Result < 0 {
		errno = errnoOf(hdr.Result)
	}
	if errno != 0 {
		return KernelInfo{}, sys.Error("io_uring_register "+OpRegisterQuery.String(), errno)
	}
	return KernelInfo{
		Ops: int(info.NrRequestOpcodes), RegisterOps: int(info.NrRegisterOpcodes),
		Features: Features(info.FeatureFlags), Setup: SetupFlags(info.RingSetupFlags),
		Enter: uint32(info.EnterFlags), SQEFlags: SQEFlags(info.SqeFlags),
		Queries: int(info.NrQueryOpcodes),
	}, nil
}
