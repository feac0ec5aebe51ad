// SPDX-License-Identifier: MIT

package blockdisk

import (
	"errors"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Disk is a block device that records writes and flushes. Its methods may be called
// concurrently.
type Disk struct {
	size   int64
	sector int
	dir    string // mount point of the file's file system
	loop   *os.File
	serve  *fuse.Server

	mu        sync.Mutex
	content   image
	recording *Record              // nil while there is no recording
	fail      func(p []byte) error // decides which writes fail
}

// Open makes a disk of the given number of bytes, with sectors of 512 or 4096 bytes. dir is an
// empty directory, where the FUSE file system is mounted. The disk's content is kept in memory. An
// error names the missing requirement.
func Open(dir string, size int64, sector int) (*Disk, error) {
	d := &Disk{size: size, sector: sector, dir: dir, content: image{}}
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		return nil, fmt.Errorf("blockdisk: file systems in user space: %w (load the module fuse)", err)
	} else {
		f.Close()
	}
	var err error
	d.serve, err = fuse.NewServer(&server{fuse.NewDefaultRawFileSystem(), d}, dir, &fuse.MountOptions{
		FsName: "blockdisk", Name: "blockdisk", MaxWrite: 1 << 20, DirectMountStrict: true, DisableXAttrs: true, DisableSplice: true,
		Logger: log.New(os.Stderr, "blockdisk: ", 0),
	})
	if err != nil {
		return nil, fmt.Errorf("blockdisk: mounting a file system in user space: %w (needs root)", err)
	}
	go d.serve.Serve()
	if err = d.serve.WaitMount(); err == nil {
		d.loop, err = attach(filepath.Join(dir, fileName), size, sector)
	}
	if err != nil {
		d.serve.Unmount()
		return nil, err
	}
	return d, nil
}

// Device returns the name of the block device.
func (d *Disk) Device() string { return d.loop.Name() }

// Close detaches the device. No file system may be mounted on it.
func (d *Disk) Close() error {
	err := errors.Join(detach(d.loop), d.loop.Close())
	if uerr := d.serve.Unmount(); err == nil {
		err = uerr
	}
	return err
}

// Start begins a record. The current content counts as durable.
func (d *Disk) Start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.recording = &Record{Base: maps.Clone(d.content), Sector: d.sector}
}

// Note adds an event to the record. All writes and flushes that the event relies on must have
// returned before.
func (d *Disk) Note(note any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.recording != nil {
		d.recording.Ops = append(d.recording.Ops, Op{Kind: Note, Note: note})
	}
}

// Stop ends the record and returns it.
func (d *Disk) Stop() *Record {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.recording
	d.recording = nil
	return r
}

// FailWrites sets a function that decides, by the data, which later writes fail and with which
// error. Nil lets all succeed.
func (d *Disk) FailWrites(fail func(p []byte) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = fail
}

// Load makes a state the content of the disk. No file system may be mounted. Later writes do not
// change the state.
func (d *Disk) Load(s *State) error { return d.load(maps.Clone(s.content)) }

// Wipe clears the disk. No file system may be mounted.
func (d *Disk) Wipe() error { return d.load(image{}) }

func (d *Disk) load(content image) error {
	d.mu.Lock()
	d.content = content
	d.mu.Unlock()
	// The kernel's cache of the device has the old content.
	if err := unix.IoctlSetInt(int(d.loop.Fd()), unix.BLKFLSBUF, 0); err != nil {
		return fmt.Errorf("blockdisk: %w", os.NewSyscallError("BLKFLSBUF", err))
	}
	return nil
}

// attach makes a loop device of a file.
func attach(name string, size int64, sector int) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("blockdisk: loop devices: %w (load the module loop)", err)
	}
	defer control.Close()
	for {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("blockdisk: no free loop device: %w", os.NewSyscallError("LOOP_CTL_GET_FREE", err))
		}
		loop, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", number), os.O_RDWR, 0)
		if err != nil {
			return nil, fmt.Errorf("blockdisk: loop devices: %w", err)
		}
		config := unix.LoopConfig{Fd: uint32(file.Fd()), Size: uint32(sector)}
		config.Info.Sizelimit = uint64(size)
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config)
		if err == nil {
			return loop, nil
		}
		loop.Close()
		if err != unix.EBUSY { // EBUSY: another process took it first
			return nil, fmt.Errorf("blockdisk: %w", os.NewSyscallError("LOOP_CONFIGURE", err))
		}
	}
}

func detach(loop *os.File) error {
	return os.NewSyscallError("LOOP_CLR_FD", unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0))
}

const (
	fileName = "disk"
	fileNode = 2
)

// server serves a directory with one file.
type server struct {
	fuse.RawFileSystem
	disk *Disk
}

func (s *server) attr(node uint64, a *fuse.Attr) fuse.Status {
	a.Ino, a.Nlink = node, 1
	switch node {
	case fuse.FUSE_ROOT_ID:
		a.Mode = fuse.S_IFDIR | 0o700
	case fileNode:
		a.Mode, a.Size = fuse.S_IFREG|0o600, uint64(s.disk.size)
	default:
		return fuse.ENOENT
	}
	return fuse.OK
}

func (s *server) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if h.NodeId != fuse.FUSE_ROOT_ID || name != fileName {
		return fuse.ENOENT
	}
	out.NodeId = fileNode
	out.SetEntryTimeout(1 << 30)
	out.SetAttrTimeout(1 << 30)
	return s.attr(fileNode, &out.Attr)
}

func (s *server) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	out.SetTimeout(1 << 30)
	return s.attr(in.NodeId, &out.Attr)
}

func (s *server) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	return s.attr(in.NodeId, &out.Attr)
}

func (s *server) Open(_ <-chan struct{}, _ *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	out.OpenFlags = fuse.FOPEN_DIRECT_IO
	return fuse.OK
}

func (s *server) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

func (s *server) Read(_ <-chan struct{}, in *fuse.ReadIn, p []byte) (fuse.ReadResult, fuse.Status) {
	off := int64(in.Offset)
	p = p[:max(0, min(int64(len(p)), s.disk.size-off))]
	s.disk.mu.Lock()
	s.disk.content.read(p, off)
	s.disk.mu.Unlock()
	return fuse.ReadResultData(p), fuse.OK
}

func (s *server) Write(_ <-chan struct{}, in *fuse.WriteIn, p []byte) (uint32, fuse.Status) {
	return uint32(len(p)), s.write(p, int64(in.Offset))
}

func (s *server) write(p []byte, off int64) fuse.Status {
	d := s.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		if err := d.fail(p); err != nil {
			return fuse.ToStatus(err)
		}
	}
	d.content.write(p, off)
	if d.recording != nil {
		d.recording.Ops = append(d.recording.Ops, Op{Kind: Write, Off: off, Data: append([]byte(nil), p...)})
	}
	return fuse.OK
}

// Fsync flushes the device.
func (s *server) Fsync(<-chan struct{}, *fuse.FsyncIn) fuse.Status {
	d := s.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.recording != nil {
		d.recording.Ops = append(d.recording.Ops, Op{Kind: Flush})
	}
	return fuse.OK
}

// Fallocate is called by the loop driver to discard blocks and to write zeros. Both write zeros
// here. A discarded block may have any content, and zeros are the worst case for a file system that
// relies on the old content.
func (s *server) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	const piece = 1 << 20
	zeros := make([]byte, min(piece, in.Length))
	for at := uint64(0); at < in.Length; at += piece {
		if st := s.write(zeros[:min(piece, in.Length-at)], int64(in.Offset+at)); !st.Ok() {
			return st
		}
	}
	return fuse.OK
}
