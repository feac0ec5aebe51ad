// SPDX-License-Identifier: MIT

package echo

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"

	"github.com/ringside-io/ringside/cmd/internal/fileserver"
	"github.com/ringside-io/ringside/cmd/internal/peers/nginx"
	"github.com/ringside-io/ringside/unet"
)

// errOnlyFiles is returned by engines that only serve files.
var errOnlyFiles = errors.New("the engine only serves files")

// serveFiles serves files with the standard library.
func serveFiles(ln net.Listener, s Setup) {
	_ = http.Serve(ln, http.FileServer(http.Dir(s.Files))) // until the listener is closed
}

// startServe starts the server of "ringside serve".
func startServe(s Setup) (Server, error) { return startServeOn(s, unet.Listen, unet.Backend) }

// startServeNet starts the control: the same server on package net's listener.
func startServeNet(s Setup) (Server, error) {
	return startServeOn(s, net.Listen, func() (string, string) { return "net", "" })
}

func startServeOn(s Setup, listen func(network, address string) (net.Listener, error), backend func() (string, string)) (Server, error) {
	if s.Files == "" {
		return nil, errOnlyFiles
	}
	fileserver.TuneGC()
	h, err := fileserver.Open(s.Files, fileserver.Options{})
	if err != nil {
		return nil, err
	}
	ln, err := listen("tcp", loopback)
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	go func() { _ = fileserver.NewServer(h, log.New(io.Discard, "", 0)).Serve(ln) }() // until the listener is closed
	name, reason := backend()
	return &goServer{ln, name, reason}, nil
}

// NameNginx is nginx with one worker per processor of the other servers.
const NameNginx = nginx.Name

func startNginx(s Setup) (Server, error) {
	if s.Files == "" {
		return nil, errOnlyFiles
	}
	srv, err := nginx.Start(s.Files, runtime.GOMAXPROCS(0))
	if err != nil {
		return nil, err // not a nil pointer in an interface
	}
	return srv, nil
}

// foreign is a server in processes of its own.
type foreign interface {
	// Workers are the processes.
	Workers() []int
}
