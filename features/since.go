// SPDX-License-Identifier: MIT

package features

import (
	"strconv"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

// sinceIOURing is the first kernel on which package uring works: io_uring came
// with 5.1, the opcode probe and READ and WRITE with 5.6.
const sinceIOURing = "5.6"

// The tables below are for messages and reports. No probe depends on them.

// opSince maps an opcode to the kernel that introduced it.
var opSince = [uring.OpCount]string{
	uring.OpNop: "5.1", uring.OpReadv: "5.1", uring.OpWritev: "5.1", uring.OpFsync: "5.1",
	uring.OpReadFixed: "5.1", uring.OpWriteFixed: "5.1", uring.OpPollAdd: "5.1", uring.OpPollRemove: "5.1",
	uring.OpSyncFileRange: "5.2", uring.OpSendMsg: "5.3", uring.OpRecvMsg: "5.3", uring.OpTimeout: "5.4",
	uring.OpTimeoutRemove: "5.5", uring.OpAccept: "5.5", uring.OpAsyncCancel: "5.5", uring.OpLinkTimeout: "5.5",
	uring.OpConnect: "5.5", uring.OpFallocate: "5.6", uring.OpOpenAt: "5.6", uring.OpClose: "5.6",
	uring.OpFilesUpdate: "5.6", uring.OpStatx: "5.6", uring.OpRead: "5.6", uring.OpWrite: "5.6",
	uring.OpFadvise: "5.6", uring.OpMadvise: "5.6", uring.OpSend: "5.6", uring.OpRecv: "5.6",
	uring.OpOpenAt2: "5.6", uring.OpEpollCtl: "5.6", uring.OpSplice: "5.7", uring.OpProvideBuffers: "5.7",
	uring.OpRemoveBuffers: "5.7", uring.OpTee: "5.8", uring.OpShutdown: "5.11", uring.OpRenameAt: "5.11",
	uring.OpUnlinkAt: "5.11", uring.OpMkdirAt: "5.15", uring.OpSymlinkAt: "5.15", uring.OpLinkAt: "5.15",
	uring.OpMsgRing: "5.18", uring.OpFsetxattr: "5.19", uring.OpSetxattr: "5.19", uring.OpFgetxattr: "5.19",
	uring.OpGetxattr: "5.19", uring.OpSocket: "5.19", uring.OpUringCmd: "5.19", uring.OpSendZC: "6.0",
	uring.OpSendMsgZC: "6.1", uring.OpReadMultishot: "6.7", uring.OpWaitID: "6.7", uring.OpFutexWait: "6.7",
	uring.OpFutexWake: "6.7", uring.OpFutexWaitv: "6.7", uring.OpFixedFDInstall: "6.8", uring.OpFtruncate: "6.9",
	uring.OpBind: "6.11", uring.OpListen: "6.11", uring.OpRecvZC: "6.15", uring.OpEpollWait: "6.15",
	uring.OpReadvFixed: "6.15", uring.OpWritevFixed: "6.15", uring.OpPipe: "6.16",
}

// registerSince maps a register operation to the kernel that introduced it.
var registerSince = [uring.RegisterOpCount]string{
	uring.OpRegisterBuffers: "5.1", uring.OpUnregisterBuffers: "5.1", uring.OpRegisterFiles: "5.1",
	uring.OpUnregisterFiles: "5.1", uring.OpRegisterEventFD: "5.2", uring.OpUnregisterEventFD: "5.2",
	uring.OpRegisterFilesUpdate: "5.5", uring.OpRegisterEventFDAsync: "5.6", uring.OpRegisterProbe: "5.6",
	uring.OpRegisterPersonality: "5.6", uring.OpUnregisterPersonality: "5.6",
	uring.OpRegisterRestrictions: "5.10", uring.OpRegisterEnableRings: "5.10",
	uring.OpRegisterFiles2: "5.13", uring.OpRegisterFilesUpdate2: "5.13",
	uring.OpRegisterBuffers2: "5.13", uring.OpRegisterBuffersUpdate: "5.13",
	uring.OpRegisterIOWQAffinity: "5.14", uring.OpUnregisterIOWQAffinity: "5.14",
	uring.OpRegisterIOWQMaxWorkers: "5.15", uring.OpRegisterRingFDs: "5.18", uring.OpUnregisterRingFDs: "5.18",
	uring.OpRegisterPBufRing: "5.19", uring.OpUnregisterPBufRing: "5.19",
	uring.OpRegisterSyncCancel: "6.0", uring.OpRegisterFileAllocRange: "6.0", uring.OpRegisterPBufStatus: "6.8",
	uring.OpRegisterNAPI: "6.9", uring.OpUnregisterNAPI: "6.9", uring.OpRegisterClock: "6.12",
	uring.OpRegisterCloneBuffers: "6.12", uring.OpRegisterSendMsgRing: "6.13", uring.OpRegisterZCRXIFQ: "6.15",
	uring.OpRegisterResizeRings: "6.13", uring.OpRegisterMemRegion: "6.13", uring.OpRegisterQuery: "6.18",
}

// bit is a flag with the kernel's name for it, without the prefix.
type bit struct {
	mask  uint64
	name  string
	since string
}

var setupBits = []bit{
	{uint64(uring.SetupIOPoll), "IOPOLL", "5.1"},
	{uint64(uring.SetupSQPoll), "SQPOLL", "5.1"},
	{uint64(uring.SetupSQAff), "SQ_AFF", "5.1"},
	{uint64(uring.SetupCQSize), "CQSIZE", "5.5"},
	{uint64(uring.SetupClamp), "CLAMP", "5.6"},
	{uint64(uring.SetupAttachWQ), "ATTACH_WQ", "5.6"},
	{uint64(uring.SetupDisabled), "R_DISABLED", "5.10"},
	{uint64(uring.SetupSubmitAll), "SUBMIT_ALL", "5.18"},
	{uint64(uring.SetupCoopTaskrun), "COOP_TASKRUN", "5.19"},
	{uint64(uring.SetupTaskrunFlag), "TASKRUN_FLAG", "5.19"},
	{uint64(uring.SetupSQE128), "SQE128", "5.19"},
	{uint64(uring.SetupCQE32), "CQE32", "5.19"},
	{uint64(uring.SetupSingleIssuer), "SINGLE_ISSUER", "6.0"},
	{uint64(uring.SetupDeferTaskrun), "DEFER_TASKRUN", "6.1"},
	{uint64(uring.SetupNoMmap), "NO_MMAP", "6.5"},
	{uint64(uring.SetupRegisteredFDOnly), "REGISTERED_FD_ONLY", "6.5"},
	{uint64(uring.SetupNoSQArray), "NO_SQARRAY", "6.6"},
	{uint64(uring.SetupHybridIOPoll), "HYBRID_IOPOLL", "6.13"},
	{uint64(uring.SetupCQEMixed), "CQE_MIXED", "6.18"},
}

var featureBits = []bit{
	{uint64(uring.FeatSingleMmap), "SINGLE_MMAP", "5.4"},
	{uint64(uring.FeatNoDrop), "NODROP", "5.5"},
	{uint64(uring.FeatSubmitStable), "SUBMIT_STABLE", "5.5"},
	{uint64(uring.FeatRWCurPos), "RW_CUR_POS", "5.6"},
	{uint64(uring.FeatCurPersonality), "CUR_PERSONALITY", "5.6"},
	{uint64(uring.FeatFastPoll), "FAST_POLL", "5.7"},
	{uint64(uring.FeatPoll32Bits), "POLL_32BITS", "5.9"},
	{uint64(uring.FeatSQPollNonfixed), "SQPOLL_NONFIXED", "5.11"},
	{uint64(uring.FeatExtArg), "EXT_ARG", "5.11"},
	{uint64(uring.FeatNativeWorkers), "NATIVE_WORKERS", "5.12"},
	{uint64(uring.FeatRsrcTags), "RSRC_TAGS", "5.13"},
	{uint64(uring.FeatCQESkip), "CQE_SKIP", "5.17"},
	{uint64(uring.FeatLinkedFile), "LINKED_FILE", "5.17"},
	{uint64(uring.FeatRegRegRing), "REG_REG_RING", "6.3"},
	{uint64(uring.FeatRecvSendBundle), "RECVSEND_BUNDLE", "6.10"},
	{uint64(uring.FeatMinTimeout), "MIN_TIMEOUT", "6.12"},
	{uint64(uring.FeatRWAttr), "RW_ATTR", "6.14"},
	{uint64(uring.FeatNoIOWait), "NO_IOWAIT", "6.15"},
}

var enterBits = []bit{
	{abi.IORING_ENTER_GETEVENTS, "GETEVENTS", "5.1"},
	{abi.IORING_ENTER_SQ_WAKEUP, "SQ_WAKEUP", "5.1"},
	{abi.IORING_ENTER_SQ_WAIT, "SQ_WAIT", "5.10"},
	{abi.IORING_ENTER_EXT_ARG, "EXT_ARG", "5.11"},
	{abi.IORING_ENTER_REGISTERED_RING, "REGISTERED_RING", "5.18"},
	{abi.IORING_ENTER_ABS_TIMER, "ABS_TIMER", "6.12"},
	{abi.IORING_ENTER_EXT_ARG_REG, "EXT_ARG_REG", "6.13"},
	{abi.IORING_ENTER_NO_IOWAIT, "NO_IOWAIT", "6.15"},
}

// split returns the bits of mask, those that no table knows with a name of
// their own and no version.
func split(mask uint64, known []bit) []bit {
	var bits []bit
	for n := range 64 {
		if one := uint64(1) << n; mask&one != 0 {
			bits = append(bits, lookup(one, known))
		}
	}
	return bits
}

func lookup(one uint64, known []bit) bit {
	for _, b := range known {
		if b.mask == one {
			return b
		}
	}
	return bit{mask: one, name: "0x" + strconv.FormatUint(one, 16)}
}

// at returns the entry of a table of versions, "" outside of it.
func at(table []string, i int) string {
	if i < len(table) {
		return table[i]
	}
	return ""
}
