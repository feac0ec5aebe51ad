// SPDX-License-Identifier: MIT

package probe

// Collect runs every probe and reports the results. Package features sets it. It leaves
// Packages empty, because package features cannot import the packages that choose a
// backend. The first call opens a few dozen short-lived rings.
var Collect func() Report

// Report is everything that the probes of package features find on a host: what
// "ringside probe" shows. Its JSON field names are stable.
type Report struct {
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	Kernel string `json:"kernel"` // release, "" outside of Linux

	// Usable reports whether rings work; Answer, Reason, Policy and Remedy are
	// about that.
	Usable bool   `json:"usable"`
	Answer Answer `json:"answer"`
	Reason string `json:"reason,omitempty"`
	Policy string `json:"policy,omitempty"` // a features.Policy
	Remedy string `json:"remedy,omitempty"`

	// A pointer is nil for an unknown value.
	Disabled       *int     `json:"io_uring_disabled"` // sysctl, since Linux 6.6
	Group          *int     `json:"io_uring_group"`    // sysctl, -1 for none
	Seccomp        *int     `json:"seccomp"`           // 0 off, 1 strict, 2 filter
	SeccompFilters *int     `json:"seccomp_filters"`
	Memlock        Memlock  `json:"memlock"`
	LSMs           []string `json:"lsm"`       // active security modules
	Context        string   `json:"context"`   // their label of the process
	Container      string   `json:"container"` // a guess; "" if none was recognised
	Override       string   `json:"override"`  // value of RINGSIDE_BACKEND

	Features []Entry `json:"features"`
	Ops      []Entry `json:"ops"`
	Setup    []Entry `json:"setup_flags"`
	Register []Entry `json:"register_ops"`
	Enter    []Entry `json:"enter_flags"`
	// Behaviours are the features that were tried on throw-away rings.
	Behaviours []Entry `json:"behaviours"`

	Packages []Package `json:"packages"`
	Notes    []Note    `json:"notes"`
}

// Package is the backend that a package of this module would choose on the host.
type Package struct {
	Name    string `json:"name"`
	Backend string `json:"backend"` // "io_uring", or the name of the fallback
	Reason  string `json:"reason"`  // the reason for this choice
	Remedy  string `json:"remedy,omitempty"`
}

// Answer is the outcome of a probe.
type Answer string

// The outcomes of a probe.
const (
	Yes          Answer = "yes"
	Unsupported  Answer = "unsupported"
	Forbidden    Answer = "forbidden"
	Inconclusive Answer = "inconclusive"
)

// Memlock is RLIMIT_MEMLOCK in bytes: -1 for unlimited, nil for unknown.
type Memlock struct {
	Soft *int64 `json:"soft"`
	Hard *int64 `json:"hard"`
	// Exempt reports that the process has CAP_IPC_LOCK on the host, so that the limit
	// does not apply to it. It applies to root of another user namespace.
	Exempt bool `json:"exempt"`
}

// Entry is one probe and its result.
type Entry struct {
	Name string `json:"name"` // the kernel's, without prefix
	// Number is the number of an opcode or register operation, or the value of a flag.
	Number uint64 `json:"number"`
	// Since is the first Linux that has it.
	Since string `json:"since"`
	// Supported is Answer == Yes: a program can use it.
	Supported bool   `json:"supported"`
	Answer    Answer `json:"answer"`
	// Known reports whether the kernel has the feature. It is set only where Answer is
	// Forbidden and the kernel supports queries (Linux 6.18).
	Known  *bool  `json:"known,omitempty"`
	Reason string `json:"reason,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

// Note is something worth changing on a host where rings work, or worth
// knowing.
type Note struct {
	About  string `json:"about"`
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
}
