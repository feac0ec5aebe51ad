/* Does a multishot receive report the end of a TCP or Unix stream connection?
 *
 * cc -O2 -o mshot mshot.c && ./mshot
 *
 * The ring has DEFER_TASKRUN, so the order of events is exact: task work runs only in
 * io_uring_enter. Raw system calls, no liburing. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { SIZE = 64, BUFS = 1024 };

static int ring;
static struct io_uring_params p;
static char *sq, *cq;
static struct io_uring_sqe *sqes;
static struct io_uring_buf_ring *br;
static char *slab;
static unsigned short tail;

#define SQ(f) (*(_Atomic unsigned *)(sq + p.sq_off.f))
#define CQ(f) (*(_Atomic unsigned *)(cq + p.cq_off.f))

static void die(const char *what) { perror(what); exit(2); }

static void give(int bid) {
	struct io_uring_buf *b = &br->bufs[tail & (BUFS - 1)];
	b->addr = (uintptr_t)(slab + bid * SIZE);
	b->len = SIZE;
	b->bid = bid;
	tail++;
	atomic_store((_Atomic unsigned short *)&br->tail, tail);
}

static void setup(void) {
	memset(&p, 0, sizeof p);
	p.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE;
	p.cq_entries = 4096;
	ring = syscall(SYS_io_uring_setup, 8, &p);
	if (ring < 0) die("io_uring_setup");
	sq = cq = mmap(0, p.sq_off.array + p.sq_entries * 4 + p.cq_off.cqes + p.cq_entries * 16, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
	sqes = mmap(0, p.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
	br = mmap(0, BUFS * sizeof(struct io_uring_buf), PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
	slab = mmap(0, BUFS * SIZE, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
	struct io_uring_buf_reg reg = {.ring_addr = (uintptr_t)br, .ring_entries = BUFS, .bgid = 1};
	if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_PBUF_RING, &reg, 1)) die("pbuf");
	tail = 0;
	for (int i = 0; i < BUFS; i++) give(i);
}

static void enter(unsigned submit) {
	if (syscall(SYS_io_uring_enter, ring, submit, 0, IORING_ENTER_GETEVENTS, 0, 0) < 0) die("enter");
}

static void arm(int fd) {
	unsigned t = SQ(tail), i = t & SQ(ring_mask);
	memset(&sqes[i], 0, sizeof *sqes);
	sqes[i].opcode = IORING_OP_RECV;
	sqes[i].fd = fd;
	sqes[i].ioprio = IORING_RECV_MULTISHOT;
	sqes[i].flags = IOSQE_BUFFER_SELECT;
	sqes[i].buf_group = 1;
	((unsigned *)(sq + p.sq_off.array))[i] = i;
	SQ(tail) = t + 1;
	enter(1);
}

/* reap returns the received bytes, and in *end whether the receive has ended, with *res. */
static long reap(int *end, int *res) {
	long n = 0;
	while (CQ(head) != CQ(tail)) {
		struct io_uring_cqe *e = (struct io_uring_cqe *)(cq + p.cq_off.cqes) + (CQ(head) & CQ(ring_mask));
		if (e->res > 0) n += e->res;
		if (e->flags & IORING_CQE_F_BUFFER) give(e->flags >> IORING_CQE_BUFFER_SHIFT);
		if (!(e->flags & IORING_CQE_F_MORE)) *end = 1, *res = e->res;
		CQ(head) = CQ(head) + 1;
	}
	return n;
}

static void pair(int tcp, int fd[2]) {
	if (!tcp) {
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd)) die("socketpair");
		return;
	}
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t l = sizeof a;
	int ln = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(ln, (void *)&a, l) || listen(ln, 1) || getsockname(ln, (void *)&a, &l)) die("listen");
	fd[1] = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd[1], (void *)&a, l)) die("connect");
	fd[0] = accept(ln, 0, 0);
	close(ln);
}

static void end(int fd, int how) {
	struct linger rst = {1, 0};
	switch (how) {
	case 0: shutdown(fd, SHUT_WR); usleep(1000); return;
	case 1: close(fd); break;
	case 2: setsockopt(fd, SOL_SOCKET, SO_LINGER, &rst, sizeof rst); close(fd); break;
	}
	usleep(1000);
}

int main(void) {
	static const char *endings[] = {"half close", "close", "reset"};
	static const char *orders[] = {"before the receive is armed", "armed; data and end, then enter", "armed; data, enter, end, enter", "armed; half of data, enter, rest and end, enter"};
	struct utsname u;
	int bad = 0;
	uname(&u);
	printf("Linux %s\n", u.release);
	for (int tcp = 1; tcp >= 0; tcp--)
		for (int how = 0; how < 3; how++)
			for (int order = 0; order < 4; order++) {
				char list[4096] = "";
				int lost = 0, tried = 0;
				static const int counts[] = {0, 1, 2, 10, 31, 32, 33, 34, 63, 64, 65, 66, 97, 98, 99, 100, 130, 200};
				for (unsigned c = 0; c < sizeof counts / sizeof *counts; c++) {
					if (!tcp && how == 2) continue;
					int fd[2], over = 0, res = 0, n = counts[c] * SIZE;
					static char data[1 << 20];
					long got = 0;
					setup();
					pair(tcp, fd);
					if (order) arm(fd[0]);
					int first = order == 3 ? n / 2 : n;
					if (first && write(fd[1], data, first) != first) die("write");
					usleep(1000);
					if (order >= 2) { for (int i = 0; i < 20; i++) { enter(0); got += reap(&over, &res); } }
					if (n > first && write(fd[1], data, n - first) != n - first) die("write");
					end(fd[1], how);
					if (!order) arm(fd[0]);
					for (int i = 0; i < 20; i++) { enter(0); got += reap(&over, &res); }
					tried++;
					if (!over) {
						lost++;
						snprintf(list + strlen(list), sizeof list - strlen(list), " %d", counts[c]);
					}
					close(fd[0]);
					if (how == 0) close(fd[1]);
					close(ring);
				}
				if (!tried) continue;
				bad |= lost;
				printf("%-4s %-10s %-48s end lost %2d of %d%s%s\n", tcp ? "tcp" : "unix", endings[how], orders[order], lost, tried, lost ? ": buffers" : "", list);
			}
	return bad != 0;
}
