// SPDX-License-Identifier: MIT

// Package probereport prints the report of "ringside probe": which parts of io_uring this process
// can use, which backend each package of ringside would choose, and which settings to change to use
// more.
package probereport

import (
	"errors"
	"strings"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/probe"
	"github.com/ringside-io/ringside/ufile"
	"github.com/ringside-io/ringside/unet"
	"github.com/ringside-io/ringside/unet/event"
	"github.com/ringside-io/ringside/watch"
)

// Collect asks the kernel about io_uring, and each package for its backend. The event server and
// the watcher choose their backend when they start, so Collect starts and closes one of each.
func Collect() probe.Report {
	packages := []struct {
		name   string
		choose func() (backend, reason string)
	}{
		{"ufile", ufile.Backend},
		{"unet", unet.Backend},
		{"unet/event", eventBackend},
		{"watch", watchBackend},
	}
	r := probe.Collect()
	for _, p := range packages {
		backend, reason := p.choose()
		r.Packages = append(r.Packages, choice(p.name, backend, reason, features.HaveIOURing()))
	}
	return r
}

// eventBackend listens for a moment on an unused address.
func eventBackend() (backend, reason string) {
	s, err := event.Listen("tcp", "127.0.0.1:0", event.Handler{}, event.Options{})
	if err != nil {
		return "unknown", err.Error()
	}
	defer s.Close()
	return s.Backend()
}

func watchBackend() (backend, reason string) {
	w, err := watch.New(watch.Options{})
	if err != nil {
		return "none", err.Error()
	}
	defer w.Close()
	return w.Backend()
}

// choice describes the backend of a package. It separates a reason that is the probe's answer for
// io_uring, so that the line to change stands on its own.
func choice(pkg, backend, reason string, answer error) probe.Package {
	p := probe.Package{Name: pkg, Backend: backend, Reason: reason}
	if backend == "io_uring" && reason == "" {
		p.Reason = "the kernel has what it needs and lets this process use it"
	}
	if no, ok := errors.AsType[*features.ForbiddenError](answer); ok && strings.HasSuffix(reason, no.Error()) {
		p.Reason, p.Remedy = "forbidden: "+no.Reason, no.Remedy
	}
	return p
}
