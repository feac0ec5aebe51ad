// SPDX-License-Identifier: MIT

package fusefs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Size is the initial size of a file in bytes. It is not a multiple of a page, so that a read
// across the end ends inside a page.
const Size = 300_000

// Delay is the time that a read of a slow file takes.
const Delay = 5 * time.Millisecond

// Kinds are the kinds of files. A file is opened by a name of the form CACHE-KIND-ANYTHING. CACHE
// is "direct" for a file without a page cache (FOPEN_DIRECT_IO) and "cached" for one with it. Each
// name is a file of its own.
var Kinds = []string{
	"plain",
	"slow",    // returns after Delay
	"silent",  // does not return before it is released
	"mute",    // does not return from open before it is released
	"short",   // returns half of the requested bytes
	"growing", // grows by 1000 bytes with each read
	"eio",     // fails from byte 65 536 on
	"eintr",   // every second call returns EINTR
	"eagain",  // every second call returns EAGAIN
	"enotsup", // always returns EOPNOTSUPP
	"einval",
	"estale",
	"full", // has no space from byte 8192 on
}

// Byte returns the initial content of a file at an offset.
func Byte(off int64) byte { return byte(off) ^ byte(off>>8)*3 ^ byte(off>>16)*5 }

// initial returns the initial content of all files. Each file has a copy.
var initial = sync.OnceValue(func() []byte {
	p := make([]byte, Size)
	for i := range p {
		p[i] = Byte(int64(i))
	}
	return p
})

// server is the state that all files share.
type server struct {
	mu      sync.Mutex
	release chan struct{} // closed when silent files may return
	waiting atomic.Int64  // reads waiting for release
}

// Serve mounts the file system on dir. Unless of is empty, the file system has the content of that
// directory. Serve reads commands, one per line, until the end of the input: "waiting" returns the
// number of waiting reads, "release" answers them and all later reads, and "hold" ends that. Each
// command is answered with a line. The first line is "ready".
func Serve(of, dir string, commands io.Reader, answers io.Writer) error {
	s := &server{release: make(chan struct{})}
	long := time.Hour
	var top fs.InodeEmbedder = &root{server: s}
	if of != "" {
		loopback, err := fs.NewLoopbackRoot(of)
		if err != nil {
			return err
		}
		top = loopback
	}
	mounted, err := fs.Mount(dir, top, &fs.Options{
		AttrTimeout: nil, EntryTimeout: &long,
		MountOptions: fuse.MountOptions{DirectMountStrict: true, MaxBackground: 512, FsName: "fusefs"},
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(answers, "ready")
	for lines := bufio.NewScanner(commands); lines.Scan(); {
		s.mu.Lock()
		switch strings.TrimSpace(lines.Text()) {
		case "waiting":
			fmt.Fprintln(answers, s.waiting.Load())
		case "release":
			close(s.release)
			fmt.Fprintln(answers, "released")
		case "hold":
			s.release = make(chan struct{})
			fmt.Fprintln(answers, "held")
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	select {
	case <-s.release:
	default:
		close(s.release)
	}
	s.mu.Unlock()
	return mounted.Unmount()
}

func (s *server) wait() {
	s.mu.Lock()
	release := s.release
	s.mu.Unlock()
	s.waiting.Add(1)
	<-release
	s.waiting.Add(-1)
}

// root creates a file for each name that is looked up.
type root struct {
	fs.Inode
	*server
}

var _ fs.NodeLookuper = (*root)(nil)

func (r *root) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	cache, rest, _ := strings.Cut(name, "-")
	kind, _, ok := strings.Cut(rest, "-")
	if !ok || cache != "direct" && cache != "cached" {
		return nil, syscall.ENOENT
	}
	n := &node{server: r.server, kind: kind, cached: cache == "cached", size: Size, content: slices.Clone(initial())}
	inode := r.NewPersistentInode(ctx, n, fs.StableAttr{Mode: syscall.S_IFREG})
	r.AddChild(name, inode, true)
	n.attr(&out.Attr)
	return inode, 0
}

// node is one file.
type node struct {
	fs.Inode
	*server
	kind   string
	cached bool

	mu      sync.Mutex
	size    int64
	reads   int
	content []byte // also beyond size
}

var (
	_ fs.NodeOpener    = (*node)(nil)
	_ fs.NodeReader    = (*node)(nil)
	_ fs.NodeWriter    = (*node)(nil)
	_ fs.NodeGetattrer = (*node)(nil)
	_ fs.NodeSetattrer = (*node)(nil)
	_ fs.NodeFsyncer   = (*node)(nil)
)

func (n *node) attr(out *fuse.Attr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	out.Size, out.Mode = uint64(n.size), syscall.S_IFREG|0o666
}

func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.attr(&out.Attr)
	return 0
}

func (n *node) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if size, ok := in.GetSize(); ok {
		n.mu.Lock()
		n.size = int64(size)
		n.mu.Unlock()
	}
	n.attr(&out.Attr)
	return 0
}

func (n *node) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if n.kind == "mute" {
		n.wait()
	}
	if n.cached {
		return nil, 0, 0
	}
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (n *node) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	if n.kind == "eio" {
		return syscall.EIO
	}
	return 0
}

func (n *node) Read(_ context.Context, _ fs.FileHandle, p []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	switch n.kind {
	case "slow":
		time.Sleep(Delay)
	case "silent":
		n.wait()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reads++
	size := n.size
	if n.kind == "growing" {
		n.size += 1000
	}
	k := min(int64(len(p)), max(size-off, 0))
	switch second := n.reads%2 == 1; {
	case n.kind == "short" && k > 1:
		k = (k + 1) / 2
	case n.kind == "eio" && off+k > 65536:
		return nil, syscall.EIO
	case n.kind == "eintr" && second:
		return nil, syscall.EINTR
	case n.kind == "eagain" && second:
		return nil, syscall.EAGAIN
	case n.kind == "enotsup":
		return nil, syscall.EOPNOTSUPP
	case n.kind == "einval":
		return nil, syscall.EINVAL
	case n.kind == "estale":
		return nil, syscall.ESTALE
	}
	if k > 0 {
		copy(p[:k], n.upTo(off + k)[off:])
	}
	return fuse.ReadResultData(p[:k]), 0
}

// upTo returns the first bytes of the file, up to an offset. The caller holds mu.
func (n *node) upTo(end int64) []byte {
	for i := int64(len(n.content)); i < end; i++ {
		n.content = append(n.content, Byte(i))
	}
	return n.content[:end]
}

func (n *node) Write(_ context.Context, _ fs.FileHandle, p []byte, off int64) (uint32, syscall.Errno) {
	switch n.kind {
	case "silent":
		n.wait()
	case "eio":
		return 0, syscall.EIO
	case "full":
		if off >= 8192 {
			return 0, syscall.ENOSPC
		}
		p = p[:min(int64(len(p)), 8192-off)]
	case "short":
		p = p[:(len(p)+1)/2]
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	end := off + int64(len(p))
	n.upTo(end)
	copy(n.content[off:], p)
	n.size = max(n.size, end)
	return uint32(len(p)), 0
}

// Control sends commands to a server in another process.
type Control struct {
	Dir      string // where it is mounted
	commands io.WriteCloser
	answers  *bufio.Reader
	mu       sync.Mutex
}

// NewControl waits until a server has mounted dir. It talks to the server over the server's
// standard input and output. An error has the server's message.
func NewControl(dir string, commands io.WriteCloser, answers io.Reader) (*Control, error) {
	c := &Control{Dir: dir, commands: commands, answers: bufio.NewReader(answers)}
	line, err := c.answers.ReadString('\n')
	if err != nil || line != "ready\n" {
		rest, _ := io.ReadAll(c.answers) // the server has ended
		return nil, fmt.Errorf("%s%s", line, rest)
	}
	return c, nil
}

// Path returns the name of a file of a kind; see [Kinds].
func (c *Control) Path(cache, kind, which string) string {
	return filepath.Join(c.Dir, cache+"-"+kind+"-"+which)
}

// Waiting returns the number of waiting reads and writes of silent files.
func (c *Control) Waiting() (int, error) {
	line, err := c.ask("waiting")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(line)
}

// Release makes silent files answer, until Hold.
func (c *Control) Release() error { _, err := c.ask("release"); return err }

// Hold ends what Release began.
func (c *Control) Hold() error { _, err := c.ask("hold"); return err }

// Close makes the server unmount and end.
func (c *Control) Close() error { return c.commands.Close() }

func (c *Control) ask(command string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := fmt.Fprintln(c.commands, command); err != nil {
		return "", err
	}
	line, err := c.answers.ReadString('\n')
	return strings.TrimSpace(line), err
}
