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

// NamedFile is an inherited descriptor with its name.
type NamedFile struct {
	Name string // not empty and without a colon; it need not be unique
	File *os.File
}

// The environment variables that tell a process which descriptors it inherits. systemd
// sets the first three. A Go program cannot set listenPID for a process that it starts,
// because it does not know the process ID in advance; [PassOn] sets listenParent, and
// listenFiles for a process whose parent ends before it calls [Inherited].
const (
	listenFDs    = "LISTEN_FDS"
	listenPID    = "LISTEN_PID"
	listenNames  = "LISTEN_FDNAMES"
	listenParent = "RINGSIDE_LISTEN_PPID"
	listenFiles  = "RINGSIDE_LISTEN_FILES" // the numbers of the files; see sys.FileMode
)

// firstInherited is the number of the first inherited descriptor.
const firstInherited = 3

// Inherited returns the descriptors that the process was started with. They are the
// sockets of a systemd unit (socket activation), or the files that the parent process
// passed with [PassOn]. Inherited returns none if the environment names none for this
// process. A descriptor without a name in LISTEN_FDNAMES gets the name "unknown".
//
// Pass each file to [FileListener], [FileConn] or [FilePacketConn] and then close it. The
// descriptors are marked close-on-exec. Inherited removes the variables from the
// environment. So a second call returns none, and programs that the process starts do not
// treat other descriptors as inherited. Call it once, early in main.
func Inherited() ([]NamedFile, error) {
	env := make(map[string]string)
	for _, name := range []string{listenFDs, listenPID, listenNames, listenParent, listenFiles} {
		env[name] = os.Getenv(name)
		if err := os.Unsetenv(name); err != nil {
			return nil, err
		}
	}
	if env[listenPID] != strconv.Itoa(os.Getpid()) && env[listenParent] != strconv.Itoa(os.Getppid()) && !hasFiles(env[listenFiles]) {
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

// hasFiles reports whether the inherited descriptors are the files with these numbers.
func hasFiles(numbers string) bool {
	if numbers == "" {
		return false
	}
	for i, number := range strings.Split(numbers, ":") {
		if _, id, errno := sys.FileMode(firstInherited + i); errno != 0 || number != strconv.FormatUint(id, 16) {
			return false
		}
	}
	return true
}

// fileNumber returns the number of a file for listenFiles.
func fileNumber(f *os.File) (number string, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return "", err
	}
	err = raw.Control(func(fd uintptr) {
		_, id, _ := sys.FileMode(int(fd)) // after an error no descriptor has the number, and listenParent counts
		number = strconv.FormatUint(id, 16)
	})
	return number, err
}

// PassOn prepares a command that has not been started, so that [Inherited] returns files
// in the new process. The files stay open and belong to the caller. The caller may close
// them when the command has started. PassOn sets cmd.ExtraFiles, which must be empty, and
// adds variables to cmd.Env.
//
// If this process then closes its listener, or ends, the socket stays open in the new
// process, and no waiting connection is lost. Call SetUnlinkOnClose(false) on a [UnixListener] before
// closing it. On Windows descriptors cannot be inherited in this way, and the command
// does not start.
func PassOn(cmd *exec.Cmd, files ...NamedFile) error {
	if len(cmd.ExtraFiles) > 0 {
		return errors.New("unet: PassOn: cmd.ExtraFiles is not empty: pass those files to PassOn as well")
	}
	names, numbers := make([]string, len(files)), make([]string, len(files))
	for i, f := range files {
		if f.Name == "" || strings.ContainsRune(f.Name, ':') {
			return fmt.Errorf("unet: PassOn: %q is not the name of a descriptor: it is empty or has a colon", f.Name)
		}
		number, err := fileNumber(f.File)
		if err != nil {
			return fmt.Errorf("unet: PassOn: %s: %w", f.Name, err)
		}
		names[i], numbers[i] = f.Name, number
		cmd.ExtraFiles = append(cmd.ExtraFiles, f.File)
	}
	cmd.Env = append(cmd.Environ(), listenFDs+"="+strconv.Itoa(len(files)), listenNames+"="+strings.Join(names, ":"),
		listenParent+"="+strconv.Itoa(os.Getpid()), listenFiles+"="+strings.Join(numbers, ":"), listenPID+"=")
	return nil
}
