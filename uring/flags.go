// SPDX-License-Identifier: MIT

package uring

import "github.com/ringside-io/ringside/internal/abi"

// SQEFlags modify a single entry; see io_uring_enter(2).
type SQEFlags uint8

const (
	// SQEFixedFile (IOSQE_FIXED_FILE, 5.1) is set by the builders when the FD
	// is a slot of the fixed file table.
	SQEFixedFile SQEFlags = abi.IOSQE_FIXED_FILE
	// SQEDrain (IOSQE_IO_DRAIN, 5.2) starts the entry when all before it have
	// completed. Until then the kernel delays all later entries, also cancellations of
	// the entries before it: only [Ring.SyncCancel] ends those. Slow.
	SQEDrain SQEFlags = abi.IOSQE_IO_DRAIN
	// SQELink (IOSQE_IO_LINK, 5.3) starts the next entry when this one has
	// succeeded; a failure or a short transfer cancels it with ECANCELED. A chain must be
	// in one submission, because the kernel ends it there: it can be as long as the SQ,
	// [Ring.SQEntries]. Before a chain, submit if [Ring.SQSpace] is smaller than it.
	SQELink SQEFlags = abi.IOSQE_IO_LINK
	// SQEHardLink (IOSQE_IO_HARDLINK, 5.5) starts the next entry even when this one
	// fails.
	SQEHardLink SQEFlags = abi.IOSQE_IO_HARDLINK
	// SQEAsync (IOSQE_ASYNC, 5.6) hands the entry to a worker thread at once.
	SQEAsync SQEFlags = abi.IOSQE_ASYNC
	// SQEBufferSelect (IOSQE_BUFFER_SELECT, 5.7) lets the kernel pick a buffer
	// of the group given with [SQE.SetBufferGroup].
	SQEBufferSelect SQEFlags = abi.IOSQE_BUFFER_SELECT
	// SQESkipSuccess (IOSQE_CQE_SKIP_SUCCESS, 5.17) posts no completion when the
	// operation succeeds. The caller then cannot know when the kernel is done with a
	// buffer: use it for operations without one. When it fails in a chain, the entries
	// that are cancelled after it post no completion either.
	SQESkipSuccess SQEFlags = abi.IOSQE_CQE_SKIP_SUCCESS
)

// CQEFlags describe a completion.
type CQEFlags uint32

const (
	// CQEBuffer (IORING_CQE_F_BUFFER, 5.7): [CQE.BufferID] is valid.
	CQEBuffer CQEFlags = abi.IORING_CQE_F_BUFFER
	// CQEMore (IORING_CQE_F_MORE, 5.13): the same entry will complete again.
	CQEMore CQEFlags = abi.IORING_CQE_F_MORE
	// CQESockNonEmpty (IORING_CQE_F_SOCK_NONEMPTY, 5.19): the socket held more
	// data after the receive.
	CQESockNonEmpty CQEFlags = abi.IORING_CQE_F_SOCK_NONEMPTY
	// CQENotif (IORING_CQE_F_NOTIF, 6.0): the notification that ends a
	// zero-copy send; the buffer is the caller's again.
	CQENotif CQEFlags = abi.IORING_CQE_F_NOTIF
	// CQEBufMore (IORING_CQE_F_BUF_MORE, 6.12): the kernel goes on using the
	// buffer (incremental buffer rings).
	CQEBufMore CQEFlags = abi.IORING_CQE_F_BUF_MORE
	// CQESkip (IORING_CQE_F_SKIP, 6.18): filler before the end of a mixed CQ.
	// Reap never returns such an entry.
	CQESkip CQEFlags = abi.IORING_CQE_F_SKIP
	// CQE32 (IORING_CQE_F_32, 6.18): the entry of a mixed ring has 32 bytes.
	CQE32 CQEFlags = abi.IORING_CQE_F_32
)

// SetupFlags are the flags of io_uring_setup(2). They are derived from
// [Options]; [Options.SetupFlags] and [Ring.SetupFlags] show them.
type SetupFlags uint32

const (
	SetupIOPoll           SetupFlags = abi.IORING_SETUP_IOPOLL             // busy-poll block devices (5.1)
	SetupSQPoll           SetupFlags = abi.IORING_SETUP_SQPOLL             // a kernel thread submits (5.1)
	SetupSQAff            SetupFlags = abi.IORING_SETUP_SQ_AFF             // that thread is pinned (5.1)
	SetupCQSize           SetupFlags = abi.IORING_SETUP_CQSIZE             // explicit CQ size (5.5)
	SetupClamp            SetupFlags = abi.IORING_SETUP_CLAMP              // clamp sizes (5.6)
	SetupAttachWQ         SetupFlags = abi.IORING_SETUP_ATTACH_WQ          // share worker threads (5.6)
	SetupDisabled         SetupFlags = abi.IORING_SETUP_R_DISABLED         // start disabled (5.10)
	SetupSubmitAll        SetupFlags = abi.IORING_SETUP_SUBMIT_ALL         // go on after a bad entry (5.18)
	SetupCoopTaskrun      SetupFlags = abi.IORING_SETUP_COOP_TASKRUN       // no interrupt for completions (5.19)
	SetupTaskrunFlag      SetupFlags = abi.IORING_SETUP_TASKRUN_FLAG       // flag pending task work (5.19)
	SetupSQE128           SetupFlags = abi.IORING_SETUP_SQE128             // 128-byte SQEs (5.19)
	SetupCQE32            SetupFlags = abi.IORING_SETUP_CQE32              // 32-byte CQEs (5.19)
	SetupSingleIssuer     SetupFlags = abi.IORING_SETUP_SINGLE_ISSUER      // one submitting thread (6.0)
	SetupDeferTaskrun     SetupFlags = abi.IORING_SETUP_DEFER_TASKRUN      // task work only while waiting (6.1)
	SetupNoMmap           SetupFlags = abi.IORING_SETUP_NO_MMAP            // memory of the caller (6.5)
	SetupRegisteredFDOnly SetupFlags = abi.IORING_SETUP_REGISTERED_FD_ONLY // no descriptor (6.5)
	SetupNoSQArray        SetupFlags = abi.IORING_SETUP_NO_SQARRAY         // no SQ index array (6.6)
	SetupHybridIOPoll     SetupFlags = abi.IORING_SETUP_HYBRID_IOPOLL      // sleep, then poll (6.13)
	SetupCQEMixed         SetupFlags = abi.IORING_SETUP_CQE_MIXED          // 16 and 32-byte CQEs (6.18)
)

// Features are the feature bits that io_uring_setup(2) returns.
type Features uint32

const (
	FeatSingleMmap     Features = abi.IORING_FEAT_SINGLE_MMAP     // SQ and CQ in one mapping (5.4)
	FeatNoDrop         Features = abi.IORING_FEAT_NODROP          // overflowing CQEs are kept (5.5)
	FeatSubmitStable   Features = abi.IORING_FEAT_SUBMIT_STABLE   // small structures are copied at submission (5.5)
	FeatRWCurPos       Features = abi.IORING_FEAT_RW_CUR_POS      // offset -1 is the file position (5.6)
	FeatCurPersonality Features = abi.IORING_FEAT_CUR_PERSONALITY // credentials of the submitter (5.6)
	FeatFastPoll       Features = abi.IORING_FEAT_FAST_POLL       // internal poll (5.7)
	FeatPoll32Bits     Features = abi.IORING_FEAT_POLL_32BITS     // 32-bit poll masks (5.9)
	FeatSQPollNonfixed Features = abi.IORING_FEAT_SQPOLL_NONFIXED // SQPOLL without registered files (5.11)
	FeatExtArg         Features = abi.IORING_FEAT_EXT_ARG         // timeout in io_uring_enter (5.11)
	FeatNativeWorkers  Features = abi.IORING_FEAT_NATIVE_WORKERS  // workers are threads of the process (5.12)
	FeatRsrcTags       Features = abi.IORING_FEAT_RSRC_TAGS       // tagged resources (5.13)
	FeatCQESkip        Features = abi.IORING_FEAT_CQE_SKIP        // SQESkipSuccess (5.17)
	FeatLinkedFile     Features = abi.IORING_FEAT_LINKED_FILE     // files of links resolved late (5.17)
	FeatRegRegRing     Features = abi.IORING_FEAT_REG_REG_RING    // register calls through a registered ring (6.3)
	FeatRecvSendBundle Features = abi.IORING_FEAT_RECVSEND_BUNDLE // bundles (6.10)
	FeatMinTimeout     Features = abi.IORING_FEAT_MIN_TIMEOUT     // minimum wait (6.12)
	FeatRWAttr         Features = abi.IORING_FEAT_RW_ATTR         // metadata with reads and writes (6.14)
	FeatNoIOWait       Features = abi.IORING_FEAT_NO_IOWAIT       // EnterNoIOWait (6.15)
)

// SQFlags are the flags that the kernel shows in the mapped SQ.
type SQFlags uint32

const (
	SQNeedWakeup SQFlags = abi.IORING_SQ_NEED_WAKEUP // the SQPOLL thread sleeps (5.1)
	SQCQOverflow SQFlags = abi.IORING_SQ_CQ_OVERFLOW // completions wait outside of the full CQ (5.8)
	SQTaskrun    SQFlags = abi.IORING_SQ_TASKRUN     // task work waits for an enter (5.19)
)

// CQFlags are the flags that the process sets in the mapped CQ.
type CQFlags uint32

// CQEventFDDisabled stops the notifications of a registered eventfd (5.8).
const CQEventFDDisabled CQFlags = abi.IORING_CQ_EVENTFD_DISABLED
