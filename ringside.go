// SPDX-License-Identifier: MIT

// Package ringside contains the source of the packages that the command ringside compiles into
// unchanged programs ("ringside build"). The command thereby needs neither a network nor a module
// cache, and the program gets the version of the command. Programs that are written for io_uring
// import [github.com/ringside-io/ringside/ufile], [github.com/ringside-io/ringside/unet] and the
// other packages instead.
package ringside

import "embed"

// Source holds the Go files of ufile, unet and the packages of this module that they import, without
// tests. embed has no pattern for the latter: names that end in t.go are listed one by one.
//
//go:embed features/*[^t].go features/host.go features/report.go
//go:embed internal/abi/*[^t].go internal/epoll/*[^t].go internal/fdlock/*[^t].go internal/inflight/*[^t].go
//go:embed internal/probe/*[^t].go internal/probe/environment.go internal/probe/report.go
//go:embed internal/ringhook/*[^t].go internal/ringloop/*[^t].go internal/sys/*[^t].go
//go:embed reactor/*[^t].go reactor/slot.go reactor/submit.go
//go:embed ufile/*[^t].go ufile/root.go unet/*[^t].go unet/inherit.go
//go:embed uring/*[^t].go uring/op_socket.go uring/op_wait.go uring/restrict.go uring/wait.go
var Source embed.FS
