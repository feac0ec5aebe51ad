// SPDX-License-Identifier: MIT

package liburing

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"sync/atomic"

	"github.com/ringside-io/ringside/uring"
)

// bytesOf returns the bytes of the entry.
func bytesOf(r *uring.RawSQE) []byte {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.NativeEndian, r); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// sockaddr returns an address, and records its pointer and length.
func (x *args) sockaddr() *uring.Sockaddr {
	addr, err := uring.NewSockaddr(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(x.Uint32())))
	if err != nil {
		panic(err)
	}
	x.at(addr)
	x.add(16) // struct sockaddr_in
	return addr
}

// rows are the builders. If a builder needs no descriptor, liburing sets it to 0 in some and to -1
// in others, and the kernel ignores it. The assignment to s->fd removes such a difference.
var rows = []row{
	{"Nop", "io_uring_prep_nop(s)", func(e *uring.SQE, x *args) { e.Nop() }},
	{"Read", "io_uring_prep_read(s, a[0], P(1), a[2], a[3])", func(e *uring.SQE, x *args) { e.Read(x.fd(), x.buf(), x.off()) }},
	{"ReadFixed", "io_uring_prep_read_fixed(s, a[0], P(1), a[2], a[3], a[4])", func(e *uring.SQE, x *args) { e.ReadFixed(x.fd(), x.buf(), x.off(), x.u16()) }},
	{"Readv", "io_uring_prep_readv2(s, a[0], P(1), a[2], a[3], a[4])", func(e *uring.SQE, x *args) { e.Readv(x.fd(), x.iov(), x.off(), uring.RWFlags(x.u32())) }},
	{"ReadvFixed", "io_uring_prep_readv_fixed(s, a[0], P(1), a[2], a[3], a[4], a[5])", func(e *uring.SQE, x *args) {
		e.ReadvFixed(x.fd(), x.iov(), x.off(), uring.RWFlags(x.u32()), x.u16())
	}},
	{"ReadSelect", "io_uring_prep_read(s, a[0], 0, a[1], a[2]); io_uring_sqe_set_flags(s, IOSQE_BUFFER_SELECT); s->buf_group = a[3]", func(e *uring.SQE, x *args) {
		e.ReadSelect(x.fd(), x.n(), x.off(), x.u16())
	}},
	{"ReadMultishot", "io_uring_prep_read_multishot(s, a[0], 0, -1, a[1])", func(e *uring.SQE, x *args) { e.ReadMultishot(x.fd(), x.u16()) }},
	{"Write", "io_uring_prep_write(s, a[0], P(1), a[2], a[3])", func(e *uring.SQE, x *args) { e.Write(x.fd(), x.buf(), x.off()) }},
	{"WriteFixed", "io_uring_prep_write_fixed(s, a[0], P(1), a[2], a[3], a[4])", func(e *uring.SQE, x *args) { e.WriteFixed(x.fd(), x.buf(), x.off(), x.u16()) }},
	{"Writev", "io_uring_prep_writev2(s, a[0], P(1), a[2], a[3], a[4])", func(e *uring.SQE, x *args) { e.Writev(x.fd(), x.iov(), x.off(), uring.RWFlags(x.u32())) }},
	{"WritevFixed", "io_uring_prep_writev_fixed(s, a[0], P(1), a[2], a[3], a[4], a[5])", func(e *uring.SQE, x *args) {
		e.WritevFixed(x.fd(), x.iov(), x.off(), uring.RWFlags(x.u32()), x.u16())
	}},
	{"Fsync", "io_uring_prep_fsync(s, a[0], 0)", func(e *uring.SQE, x *args) { e.Fsync(x.fd(), false) }},
	{"Fsync of data", "io_uring_prep_fsync(s, a[0], IORING_FSYNC_DATASYNC)", func(e *uring.SQE, x *args) { e.Fsync(x.fd(), true) }},
	{"SyncFileRange", "io_uring_prep_sync_file_range(s, a[0], a[2], a[1], a[3])", func(e *uring.SQE, x *args) { e.SyncFileRange(x.fd(), x.off(), x.u32(), x.u32()) }},
	{"Fallocate", "io_uring_prep_fallocate(s, a[0], a[1], a[2], a[3])", func(e *uring.SQE, x *args) { e.Fallocate(x.fd(), x.u32(), x.off(), x.off()) }},
	{"Ftruncate", "io_uring_prep_ftruncate(s, a[0], a[1])", func(e *uring.SQE, x *args) { e.Ftruncate(x.fd(), x.off()) }},
	{"Fadvise", "io_uring_prep_fadvise(s, a[0], a[1], a[2], a[3])", func(e *uring.SQE, x *args) { e.Fadvise(x.fd(), x.off(), int64(x.u32()), int(x.u32())) }},
	{"Madvise", "io_uring_prep_madvise(s, P(0), a[1], a[2])", func(e *uring.SQE, x *args) { e.Madvise(x.buf(), int(x.u32())) }},
	{"Splice", "io_uring_prep_splice(s, a[0], a[1], a[2], a[3], a[4], a[5])", func(e *uring.SQE, x *args) {
		e.Splice(uring.Fd(x.num()), x.off(), x.fd(), x.off(), x.n(), uring.SpliceFlags(x.u16()))
	}},
	{"Tee", "io_uring_prep_tee(s, a[0], a[1], a[2], a[3])", func(e *uring.SQE, x *args) { e.Tee(uring.Fd(x.num()), x.fd(), x.n(), uring.SpliceFlags(x.u16())) }},

	{"Recv", "io_uring_prep_recv(s, a[0], P(1), a[2], a[3])", func(e *uring.SQE, x *args) { e.Recv(x.fd(), x.buf(), int(x.u32())) }},
	{"RecvSelect", "io_uring_prep_recv(s, a[0], 0, a[1], a[2]); io_uring_sqe_set_flags(s, IOSQE_BUFFER_SELECT); s->buf_group = a[3]", func(e *uring.SQE, x *args) {
		e.RecvSelect(x.fd(), x.n(), int(x.u32()), x.u16())
	}},
	{"RecvMultishot", "io_uring_prep_recv_multishot(s, a[0], 0, 0, a[1]); io_uring_sqe_set_flags(s, IOSQE_BUFFER_SELECT); s->buf_group = a[2]", func(e *uring.SQE, x *args) {
		e.RecvMultishot(x.fd(), int(x.u32()), x.u16())
	}},
	{"RecvMsg", "io_uring_prep_recvmsg(s, a[0], P(1), a[2])", func(e *uring.SQE, x *args) { e.RecvMsg(x.fd(), ptr[uring.Msg](x), int(x.u32())) }},
	{"RecvMsgMultishot", "io_uring_prep_recvmsg_multishot(s, a[0], P(1), a[2]); io_uring_sqe_set_flags(s, IOSQE_BUFFER_SELECT); s->buf_group = a[3]", func(e *uring.SQE, x *args) {
		e.RecvMsgMultishot(x.fd(), ptr[uring.Msg](x), int(x.u32()), x.u16())
	}},
	{"Send", "io_uring_prep_send(s, a[0], P(1), a[2], a[3])", func(e *uring.SQE, x *args) { e.Send(x.fd(), x.buf(), int(x.u32())) }},
	{"Send, SetAddr", "io_uring_prep_send(s, a[0], P(1), a[2], a[3]); io_uring_prep_send_set_addr(s, P(4), a[5])", func(e *uring.SQE, x *args) {
		e.Send(x.fd(), x.buf(), int(x.u32())).SetAddr(x.sockaddr())
	}},
	{"SendBundle", "io_uring_prep_send_bundle(s, a[0], 0, a[1]); io_uring_sqe_set_flags(s, IOSQE_BUFFER_SELECT); s->buf_group = a[2]", func(e *uring.SQE, x *args) {
		e.SendBundle(x.fd(), int(x.u32()), x.u16())
	}},
	{"SendMsg", "io_uring_prep_sendmsg(s, a[0], P(1), a[2])", func(e *uring.SQE, x *args) { e.SendMsg(x.fd(), ptr[uring.Msg](x), int(x.u32())) }},
	{"SendZC", "io_uring_prep_send_zc(s, a[0], P(1), a[2], a[3], a[4])", func(e *uring.SQE, x *args) { e.SendZC(x.fd(), x.buf(), int(x.u32()), uring.NetFlags(x.u16())) }},
	{"SendZC, SetAddr", "io_uring_prep_send_zc(s, a[0], P(1), a[2], a[3], a[4]); io_uring_prep_send_set_addr(s, P(5), a[6])", func(e *uring.SQE, x *args) {
		e.SendZC(x.fd(), x.buf(), int(x.u32()), uring.NetFlags(x.u16())).SetAddr(x.sockaddr())
	}},
	{"SendZC, SetFixedBuffer", "io_uring_prep_send_zc_fixed(s, a[0], P(1), a[2], a[3], a[4], a[5])", func(e *uring.SQE, x *args) {
		e.SendZC(x.fd(), x.buf(), int(x.u32()), uring.NetFlags(x.u16())).SetFixedBuffer(x.u16())
	}},
	{"SendZC, SetFixedBuffer, SetAddr", "io_uring_prep_send_zc_fixed(s, a[0], P(1), a[2], a[3], a[4], a[5]); io_uring_prep_send_set_addr(s, P(6), a[7])", func(e *uring.SQE, x *args) {
		e.SendZC(x.fd(), x.buf(), int(x.u32()), uring.NetFlags(x.u16())).SetFixedBuffer(x.u16()).SetAddr(x.sockaddr())
	}},
	{"SendMsgZC", "io_uring_prep_sendmsg_zc(s, a[0], P(1), a[2]); s->ioprio = a[3]", func(e *uring.SQE, x *args) {
		e.SendMsgZC(x.fd(), ptr[uring.Msg](x), int(x.u32()), uring.NetFlags(x.u16()))
	}},
	{"SendMsgZC, SetFixedBuffer", "io_uring_prep_sendmsg_zc_fixed(s, a[0], P(1), a[2], a[3])", func(e *uring.SQE, x *args) {
		e.SendMsgZC(x.fd(), ptr[uring.Msg](x), int(x.u32()), 0).SetFixedBuffer(x.u16())
	}},
	{"Accept", "io_uring_prep_accept(s, a[0], 0, 0, a[1])", func(e *uring.SQE, x *args) { e.Accept(x.fd(), nil, int(x.u32())) }},
	{"Accept, SetSlot", "io_uring_prep_accept_direct(s, a[0], 0, 0, a[1], a[2])", func(e *uring.SQE, x *args) { e.Accept(x.fd(), nil, int(x.u32())).SetSlot(uring.Slot(x.u16())) }},
	{"AcceptMultishot", "io_uring_prep_multishot_accept(s, a[0], 0, 0, a[1])", func(e *uring.SQE, x *args) { e.AcceptMultishot(x.fd(), int(x.u32())) }},
	{"AcceptMultishot, SetSlot", "io_uring_prep_multishot_accept_direct(s, a[0], 0, 0, a[1])", func(e *uring.SQE, x *args) { e.AcceptMultishot(x.fd(), int(x.u32())).SetSlot(uring.SlotAuto) }},
	{"Connect", "io_uring_prep_connect(s, a[0], P(1), a[2])", func(e *uring.SQE, x *args) { e.Connect(x.fd(), x.sockaddr()) }},
	{"Bind", "io_uring_prep_bind(s, a[0], P(1), a[2])", func(e *uring.SQE, x *args) { e.Bind(x.fd(), x.sockaddr()) }},
	{"Listen", "io_uring_prep_listen(s, a[0], a[1])", func(e *uring.SQE, x *args) { e.Listen(x.fd(), x.num()) }},
	{"Shutdown", "io_uring_prep_shutdown(s, a[0], a[1])", func(e *uring.SQE, x *args) { e.Shutdown(x.fd(), x.num()) }},
	{"Socket", "io_uring_prep_socket(s, a[0], a[1], a[2], 0)", func(e *uring.SQE, x *args) { e.Socket(x.num(), x.num(), x.num()) }},
	{"Socket, SetSlot", "io_uring_prep_socket_direct(s, a[0], a[1], a[2], a[3], 0)", func(e *uring.SQE, x *args) {
		e.Socket(x.num(), x.num(), x.num()).SetSlot(uring.Slot(x.u16()))
	}},
	{"Socket, SetSlot, any slot", "io_uring_prep_socket_direct_alloc(s, a[0], a[1], a[2], 0)", func(e *uring.SQE, x *args) {
		e.Socket(x.num(), x.num(), x.num()).SetSlot(uring.SlotAuto)
	}},

	{"PollAdd", "io_uring_prep_poll_add(s, a[0], a[1])", func(e *uring.SQE, x *args) { e.PollAdd(x.fd(), uring.PollEvents(x.u32())) }},
	{"PollMultishot", "io_uring_prep_poll_multishot(s, a[0], a[1])", func(e *uring.SQE, x *args) { e.PollMultishot(x.fd(), uring.PollEvents(x.u32())) }},
	{"PollRemove", "io_uring_prep_poll_remove(s, a[0])", func(e *uring.SQE, x *args) { e.PollRemove(x.u64()) }},
	{"PollUpdate", "io_uring_prep_poll_update(s, a[0], a[2], a[1], IORING_POLL_UPDATE_EVENTS | IORING_POLL_UPDATE_USER_DATA)", func(e *uring.SQE, x *args) {
		e.PollUpdate(x.u64(), uring.PollEvents(x.u32()), x.u64())
	}},
	{"EpollCtl", "io_uring_prep_epoll_ctl(s, a[0], a[2], a[1], P(3))", func(e *uring.SQE, x *args) {
		e.EpollCtl(uring.Fd(x.num()), x.num(), x.num(), ptr[uring.EpollEvent](x))
	}},
	{"Timeout", "io_uring_prep_timeout(s, P(0), a[1], a[2])", func(e *uring.SQE, x *args) { e.Timeout(ptr[uring.Timespec](x), x.u32(), uring.TimeoutFlags(x.u32())) }},
	{"TimeoutRemove", "io_uring_prep_timeout_remove(s, a[0], 0)", func(e *uring.SQE, x *args) { e.TimeoutRemove(x.u64()) }},
	{"TimeoutUpdate", "io_uring_prep_timeout_update(s, P(1), a[0], a[2])", func(e *uring.SQE, x *args) {
		e.TimeoutUpdate(x.u64(), ptr[uring.Timespec](x), uring.TimeoutFlags(x.u32()))
	}},
	{"LinkTimeout", "io_uring_prep_link_timeout(s, P(0), a[1])", func(e *uring.SQE, x *args) { e.LinkTimeout(ptr[uring.Timespec](x), uring.TimeoutFlags(x.u32())) }},
	{"Cancel", "io_uring_prep_cancel64(s, a[0], a[1] & 1)", func(e *uring.SQE, x *args) { e.CancelWith(uring.CancelOptions{UserData: x.u64(), All: x.u32()&1 != 0}) }},
	{"Cancel by FD", "io_uring_prep_cancel_fd(s, a[0], a[1] & 1)", func(e *uring.SQE, x *args) {
		e.CancelWith(uring.CancelOptions{ByFD: true, FD: uring.Fd(x.num()), All: x.u32()&1 != 0})
	}},
	{"Cancel by FD, fixed", "io_uring_prep_cancel_fd(s, a[0], (a[1] & 1) | IORING_ASYNC_CANCEL_FD_FIXED)", func(e *uring.SQE, x *args) {
		e.CancelWith(uring.CancelOptions{ByFD: true, FD: uring.FixedFd(x.num()), All: x.u32()&1 != 0})
	}},
	{"Cancel any", "io_uring_prep_cancel64(s, 0, (a[0] & 1) | IORING_ASYNC_CANCEL_ANY)", func(e *uring.SQE, x *args) { e.CancelWith(uring.CancelOptions{Any: true, All: x.u32()&1 != 0}) }},
	{"Cancel by FD and user data", "io_uring_prep_cancel_fd(s, a[0], (a[2] & 1) | 1 << 4); s->addr = a[1]", func(e *uring.SQE, x *args) {
		e.CancelWith(uring.CancelOptions{ByFD: true, FD: uring.Fd(x.num()), ByUserData: true, UserData: x.u64(), All: x.u32()&1 != 0})
	}},
	{"Cancel by FD and opcode", "io_uring_prep_cancel_fd(s, a[0], (a[2] & 1) | 1 << 5); s->len = (unsigned char)a[1]", func(e *uring.SQE, x *args) {
		e.CancelWith(uring.CancelOptions{ByFD: true, FD: uring.Fd(x.num()), ByOp: true, Op: uring.Op(x.u16()), All: x.u32()&1 != 0})
	}},
	{"FilesUpdate", "io_uring_prep_files_update(s, P(0), a[1], a[2])", func(e *uring.SQE, x *args) {
		fds := make([]int32, 1+x.IntN(9))
		x.at(fds)
		x.add(uint64(len(fds)))
		e.FilesUpdate(fds, x.num())
	}},
	{"ProvideBuffers", "io_uring_prep_provide_buffers(s, P(0), a[2], a[3], a[4], a[5])", func(e *uring.SQE, x *args) {
		e.ProvideBuffers(x.buf(), int(x.add(1)), int(x.add(1)), x.u16(), x.u16())
	}},
	{"RemoveBuffers", "io_uring_prep_remove_buffers(s, a[0], a[1])", func(e *uring.SQE, x *args) { e.RemoveBuffers(x.n(), x.u16()) }},

	{"OpenAt", "io_uring_prep_openat(s, a[0], P(1), a[2], a[3])", func(e *uring.SQE, x *args) { e.OpenAt(x.num(), x.path(), int(x.u32()), x.u32()) }},
	{"OpenAt, SetSlot", "io_uring_prep_openat_direct(s, a[0], P(1), a[2], a[3], a[4])", func(e *uring.SQE, x *args) {
		e.OpenAt(x.num(), x.path(), int(x.u32()), x.u32()).SetSlot(uring.Slot(x.u16()))
	}},
	{"OpenAt2", "io_uring_prep_openat2(s, a[0], P(1), P(2))", func(e *uring.SQE, x *args) { e.OpenAt2(x.num(), x.path(), ptr[uring.OpenHow](x)) }},
	{"OpenAt2, SetSlot", "io_uring_prep_openat2_direct(s, a[0], P(1), P(2), a[3])", func(e *uring.SQE, x *args) {
		e.OpenAt2(x.num(), x.path(), ptr[uring.OpenHow](x)).SetSlot(uring.Slot(x.u16()))
	}},
	{"Close", "io_uring_prep_close(s, a[0])", func(e *uring.SQE, x *args) { e.Close(x.num()) }},
	{"CloseDirect", "io_uring_prep_close_direct(s, a[0])", func(e *uring.SQE, x *args) { e.CloseDirect(x.num()) }},
	{"Statx", "io_uring_prep_statx(s, a[0], P(1), a[2], a[3], P(4))", func(e *uring.SQE, x *args) {
		e.Statx(x.num(), x.path(), int(x.u32()), x.u32(), ptr[uring.Statx](x))
	}},
	{"RenameAt", "io_uring_prep_renameat(s, a[0], P(1), a[2], P(3), a[4])", func(e *uring.SQE, x *args) { e.RenameAt(x.num(), x.path(), x.num(), x.path(), x.u32()) }},
	{"UnlinkAt", "io_uring_prep_unlinkat(s, a[0], P(1), a[2])", func(e *uring.SQE, x *args) { e.UnlinkAt(x.num(), x.path(), int(x.u32())) }},
	{"MkdirAt", "io_uring_prep_mkdirat(s, a[0], P(1), a[2])", func(e *uring.SQE, x *args) { e.MkdirAt(x.num(), x.path(), x.u32()) }},
	{"SymlinkAt", "io_uring_prep_symlinkat(s, P(0), a[1], P(2))", func(e *uring.SQE, x *args) { e.SymlinkAt(x.path(), x.num(), x.path()) }},
	{"LinkAt", "io_uring_prep_linkat(s, a[0], P(1), a[2], P(3), a[4])", func(e *uring.SQE, x *args) { e.LinkAt(x.num(), x.path(), x.num(), x.path(), int(x.u32())) }},
	{"Getxattr", "io_uring_prep_getxattr(s, P(1), P(2), P(0), a[3])", func(e *uring.SQE, x *args) { e.Getxattr(x.path(), x.path(), x.buf()) }},
	{"Setxattr", "io_uring_prep_setxattr(s, P(1), P(2), P(0), a[4], a[3])", func(e *uring.SQE, x *args) { e.Setxattr(x.path(), x.path(), x.buf(), int(x.u32())) }},
	{"Fgetxattr", "io_uring_prep_fgetxattr(s, a[0], P(1), P(2), a[3])", func(e *uring.SQE, x *args) { e.Fgetxattr(x.fd(), x.path(), x.buf()) }},
	{"Fsetxattr", "io_uring_prep_fsetxattr(s, a[0], P(1), P(2), a[4], a[3])", func(e *uring.SQE, x *args) { e.Fsetxattr(x.fd(), x.path(), x.buf(), int(x.u32())) }},
	{"Pipe", "io_uring_prep_pipe(s, P(0), a[1])", func(e *uring.SQE, x *args) { e.Pipe(ptr[[2]int32](x), x.u32()) }},
	{"FixedFDInstall", "io_uring_prep_fixed_fd_install(s, a[0], 0)", func(e *uring.SQE, x *args) { e.FixedFDInstall(x.num(), false) }},

	{"MsgRing", "io_uring_prep_msg_ring(s, a[0], a[2], a[1], 0)", func(e *uring.SQE, x *args) { e.MsgRing(x.fd(), x.u64(), int32(x.u32())) }},
	{"MsgRingFlags", "io_uring_prep_msg_ring_cqe_flags(s, a[0], a[2], a[1], 0, a[3])", func(e *uring.SQE, x *args) {
		e.MsgRingFlags(x.fd(), x.u64(), int32(x.u32()), uring.CQEFlags(x.u32()))
	}},
	{"MsgRingFD", "io_uring_prep_msg_ring_fd(s, a[0], a[1], a[2], a[3], 0)", func(e *uring.SQE, x *args) {
		e.MsgRingFD(x.fd(), x.num(), uring.Slot(x.u16()), x.u64(), false)
	}},
	{"FutexWait", "io_uring_prep_futex_wait(s, P(0), a[1], a[2], (a[3] & ~3u) | 2, 0)", func(e *uring.SQE, x *args) {
		e.FutexWait(ptr[atomic.Uint32](x), x.u32(), x.u64(), x.u32()&^3)
	}},
	{"FutexWake", "io_uring_prep_futex_wake(s, P(0), a[1], a[2], (a[3] & ~3u) | 2, 0)", func(e *uring.SQE, x *args) {
		e.FutexWake(ptr[atomic.Uint32](x), x.n(), x.u64(), x.u32()&^3)
	}},
	{"WaitID", "io_uring_prep_waitid(s, a[0], a[1], P(2), a[3], 0)", func(e *uring.SQE, x *args) {
		e.WaitID(x.num(), x.num(), ptr[uring.Siginfo](x), x.num())
	}},
	{"GetSockOpt", "io_uring_prep_cmd_sock(s, SOCKET_URING_OP_GETSOCKOPT, a[0], a[1], a[2], P(3), a[4])", func(e *uring.SQE, x *args) {
		e.GetSockOpt(x.fd(), x.num(), x.num(), x.buf())
	}},
	{"SetSockOpt", "io_uring_prep_cmd_sock(s, SOCKET_URING_OP_SETSOCKOPT, a[0], a[1], a[2], P(3), a[4])", func(e *uring.SQE, x *args) {
		e.SetSockOpt(x.fd(), x.num(), x.num(), x.buf())
	}},
	{"BlockDiscard", "io_uring_prep_cmd_discard(s, a[0], a[1], a[2])", func(e *uring.SQE, x *args) { e.BlockDiscard(x.fd(), x.u64(), x.u64()) }},
}
