// SPDX-License-Identifier: MIT

package features

// behaviour is a feature that no table tells of: it is tried.
type behaviour struct {
	name  string
	since string
	try   func(h *host) error
}

const nameSQPoll = "SQPOLL"

var (
	multishotPoll    = &behaviour{"multishot poll", "5.13", tryMultishotPoll}
	multishotAccept  = &behaviour{"multishot accept", "5.19", tryMultishotAccept}
	multishotRecv    = &behaviour{"multishot receive", "6.0", tryMultishotRecv}
	multishotTimeout = &behaviour{"multishot timeout", "6.4", tryMultishotTimeout}
	bufferRing       = &behaviour{"buffer ring", "5.19", tryBufferRing}
	bufferRingKernel = &behaviour{"buffer ring in kernel memory", "6.4", tryBufferRingKernel}
	bufferRingInc    = &behaviour{"incremental buffer ring", "6.12", tryBufferRingInc}
	bundle           = &behaviour{"bundles", "6.10", tryBundle}
	sendZC           = &behaviour{"zero-copy send", "6.0", trySendZC}
	sendVectorized   = &behaviour{"vectorized send", "6.17", trySendVectorized}
	deferTaskrun     = &behaviour{"deferred task work", "6.1", tryDeferTaskrun}
	sqPoll           = &behaviour{nameSQPoll, "5.11", trySQPoll}
	msgRing          = &behaviour{"message to a ring", "5.18", tryMsgRing}
	sockOpt          = &behaviour{"socket options", "6.7", trySockOpt}
	nopInject        = &behaviour{"injected results", "6.10", tryNopInject}
)

// behaviours are all of them in the order of reports.
var behaviours = []*behaviour{
	multishotPoll, multishotAccept, multishotRecv, multishotTimeout,
	bufferRing, bufferRingKernel, bufferRingInc, bundle,
	sendZC, sendVectorized, deferTaskrun, sqPoll, msgRing, sockOpt, nopInject,
}

func (h *host) have(b *behaviour) error {
	return h.ask(b.name, b.since, func(facts) error { return b.try(h) })
}

// HaveMultishotPoll reports whether one entry polls a file again and again.
// (Linux 5.13)
func HaveMultishotPoll() error { return kernel.have(multishotPoll) }

// HaveMultishotAccept reports whether one entry accepts many connections.
// (Linux 5.19)
func HaveMultishotAccept() error { return kernel.have(multishotAccept) }

// HaveMultishotRecv reports whether one entry receives again and again into
// provided buffers. (Linux 6.0)
func HaveMultishotRecv() error { return kernel.have(multishotRecv) }

// HaveBufRing reports whether provided buffers can be shared through a ring.
// (Linux 5.19)
func HaveBufRing() error { return kernel.have(bufferRing) }

// HaveDeferTaskrun reports whether a ring of one thread can process completions
// when that thread waits for them only. (Linux 6.1)
func HaveDeferTaskrun() error { return kernel.have(deferTaskrun) }

// HaveSQPoll reports whether this process may have a kernel thread that submits.
// (Linux 5.11; before, and without a capability before 5.13, it is forbidden)
func HaveSQPoll() error { return kernel.have(sqPoll) }
