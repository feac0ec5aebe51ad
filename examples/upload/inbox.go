// SPDX-License-Identifier: MIT

package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/ufile"
)

// idle is how long a peer may send nothing.
const idle = 30 * time.Second

// inbox keeps files below one directory.
type inbox struct {
	root   *ufile.Root
	most   int64
	ring   *reactor.Reactor // nil: bytes are copied
	reason error            // why ring is nil
}

func openInbox(dir string, most int64) (*inbox, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := ufile.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	in := &inbox{root: root, most: most}
	in.ring, in.reason = newReactor()
	return in, nil
}

// how describes how bytes get into files.
func (in *inbox) how() string {
	if in.ring == nil {
		return fmt.Sprintf("by copying: %v", in.reason)
	}
	return "by splice"
}

func (in *inbox) close() error {
	var err error
	if in.ring != nil {
		err = in.ring.Close()
	}
	return errors.Join(err, in.root.Close())
}

// take serves one request.
func (in *inbox) take(c net.Conn) {
	err := in.keep(c)
	if err == nil {
		err = in.syncNames()
	}
	answer := "kept\n"
	if err != nil {
		answer = fmt.Sprintf("refused: %v\n", err)
	}
	_ = c.SetDeadline(time.Now().Add(idle))
	_, _ = io.WriteString(c, answer)
}

// keep receives a file. The file has another name until it is complete and durable.
func (in *inbox) keep(c net.Conn) (err error) {
	name, length, err := in.head(c)
	if err != nil {
		return err
	}
	part := ".part-" + rand.Text()
	f, err := in.root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, in.root.Remove(part))
		}
	}()
	if err := in.receive(f, c, length); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return in.root.Rename(part, name)
}

// syncNames makes the names of files durable: a power cut could take the rename of a durable file.
func (in *inbox) syncNames() error {
	if runtime.GOOS == "windows" { // which cannot sync a directory
		return nil
	}
	dir, err := in.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// A name is one path element and does not begin with a dot.
var head = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9._-]{0,99}) ([0-9]{1,18})$`)

// head reads the request line byte by byte, because the content must stay in the socket.
func (in *inbox) head(c net.Conn) (name string, length int64, err error) {
	_ = c.SetDeadline(time.Now().Add(idle))
	var line strings.Builder
	for p := make([]byte, 1); ; line.WriteByte(p[0]) {
		if _, err := io.ReadFull(c, p); err != nil {
			return "", 0, err
		}
		if p[0] == '\n' || line.Len() > 130 {
			break
		}
	}
	m := head.FindStringSubmatch(line.String())
	if m == nil {
		return "", 0, errors.New("want a line with name and length")
	}
	if _, err := fmt.Sscan(m[2], &length); err != nil {
		return "", 0, err
	}
	if length > in.most {
		return "", 0, fmt.Errorf("%d bytes, at most %d are taken", length, in.most)
	}
	return m[1], length, nil
}
