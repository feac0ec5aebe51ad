// SPDX-License-Identifier: MIT

package unet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/ringside-io/ringside/internal/sys"
)

// NamedFile is a descriptor that a process inherits.
type NamedFile struct {
	Name string // not empty, without a colon; need not be unique
	File *os.File
}

// Variables of the environment by which a process learns what it inherits. systemd
// sets the first three. A Go program cannot set listenPID for a process that it
// starts, because the number is not known before; [PassOn] sets listenParent.
const (
	listenFDs    = "LISTEN_FDS"
	listenPID    = "LISTEN_PID"
	listenNames  = "LISTEN_FDNAMES"
	listenParent = "RINGSIDE_LISTEN_PPID"
)

// firstInherited is the number of the first inherited descriptor.
const firstInherited = 3

// Inherited returns the descriptors that the process was started with: the sockets of
// a systemd unit (socket activation), or those that its parent process passed with
// [PassOn]. It returns none if the environment does not name any for this process.
// A descriptor without a name in LISTEN_FDNAMES has the name "unknown".
//
// Give a file to [FileListener], [FileConn] or [FilePacketConn] and then close it.
// The descriptors are closed by exec. Inherited removes the variables from the
// environment, so that a second call returns none, and so that programs that the process
// starts do not treat other descriptors as inherited. Call it once, early in main.
func Inherited() ([]NamedFile, error) {
	env := make(map[string]string)
	for _, name := range []string{listenFDs, listenPID, listenNames, listenParent} {
		env[name] = os.Getenv(name)
		if err := os.Unsetenv(name); err != nil {
			return nil, err
		}
	}
	if env[listenPID] != strconv.Itoa(os.Getpid()) && env[listenParent] != strconv.Itoa(os.Getppid()) {
		return nil, nil // for another process
	}
	n, err := strconv.Atoi(env[listenFDs])
	if err != nil || n < 0 {
		return nil, fmt.Errorf("unet: %s is %q, which is not a number of descriptors", listenFDs, env[listenFDs])
	}
	var names []string
	if env[listenNames] != "" {
		names = strings.Split(env[listenNames], ":")
	}
	files := make([]NamedFile, n)
	for i := range files {
		name := "unknown"
		if i < len(names) && names[i] != "" {
			name = names[i]
		}
		sys.CloseOnExec(firstInherited + i)
		files[i] = NamedFile{name, os.NewFile(uintptr(firstInherited+i), name)}
	}
	return files, nil
}

// PassOn prepares a command, before it is started, so that [Inherited] returns files
// in the new process. The files stay open and belong to the caller, who may close them
// once the command has started. PassOn sets cmd.ExtraFiles, which must be empty, and
// variables in cmd.Env. When this process closes its descriptor of a listener that the
// new process shares, the socket stays open: no waiting connection is lost. For a
// [UnixListener] call SetUnlinkOnClose(false) before that. Windows does not inherit
// descriptors in this way, and there the command does not start.
func PassOn(cmd *exec.Cmd, files ...NamedFile) error {
	if len(cmd.ExtraFiles) > 0 {
		return errors.New("unet: the command has ExtraFiles already, whose numbers are those of PassOn")
	}
	names := make([]string, len(files))
	for i, f := range files {
		if f.Name == "" || strings.ContainsRune(f.Name, ':') {
			return fmt.Errorf("unet: %q cannot be the name of a descriptor: it is empty or has a colon", f.Name)
		}
		names[i] = f.Name
		cmd.ExtraFiles = append(cmd.ExtraFiles, f.File)
	}
	cmd.Env = append(cmd.Environ(), listenFDs+"="+strconv.Itoa(len(files)), listenNames+"="+strings.Join(names, ":"),
		listenParent+"="+strconv.Itoa(os.Getpid()), listenPID+"=")
	return nil
}
