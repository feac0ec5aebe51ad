// SPDX-License-Identifier: MIT

//go:build ignore

// echo is a TCP echo server on one ring: multishot accept, multishot receive
// into a ring of provided buffers, and sends from these buffers that go into
// the kernel with the wait for the next completions.
//
//   echo [defer|coop]
//   defer   SINGLE_ISSUER|DEFER_TASKRUN, the default
//   coop    COOP_TASKRUN
//
// It writes a line of JSON that says where it listens, answers each line of its
// input with one that says how often it has entered the kernel, and ends with
// its input.

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <liburing.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define SQ_ENTRIES 512
#define CQ_ENTRIES 4096
#define BUFFERS 1024
#define BUFFER_SIZE 4096
#define GROUP 0
#define BATCH 256

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

enum kind { ACCEPT, RECV, SEND };

// user data: kind, buffer, what has to be sent, descriptor
#define TAG(kind, bid, fd) \
	((uint64_t)(kind) << 56 | (uint64_t)(bid) << 32 | (uint32_t)(fd))

static struct io_uring ring;
static struct io_uring_buf_ring *group;
static unsigned char *memory;
static unsigned returned;	      // buffers that are not yet published
static uint32_t sent_upto[BUFFERS];   // of each buffer
static uint32_t length[BUFFERS];
static _Atomic int64_t enters;

static void fail(const char *what, int err)
{
	fprintf(stderr, "%s: %s\n", what, strerror(err));
	exit(1);
}

static struct io_uring_sqe *entry(void)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

	while (!sqe) {
		int n = io_uring_submit(&ring);

		enters++;
		if (n < 0)
			fail("io_uring_enter", -n);
		sqe = io_uring_get_sqe(&ring);
	}
	return sqe;
}

static void give_back(unsigned bid)
{
	io_uring_buf_ring_add(group, memory + (size_t)bid * BUFFER_SIZE, BUFFER_SIZE, bid,
			      io_uring_buf_ring_mask(BUFFERS), returned++);
}

static void arm_recv(int fd)
{
	struct io_uring_sqe *sqe = entry();

	io_uring_prep_recv_multishot(sqe, fd, NULL, 0, 0);
	sqe->flags |= IOSQE_BUFFER_SELECT;
	sqe->buf_group = GROUP;
	io_uring_sqe_set_data64(sqe, TAG(RECV, 0, fd));
}

static void arm_accept(int fd)
{
	struct io_uring_sqe *sqe = entry();

	io_uring_prep_multishot_accept(sqe, fd, NULL, NULL, SOCK_CLOEXEC);
	io_uring_sqe_set_data64(sqe, TAG(ACCEPT, 0, fd));
}

static void send_rest(int fd, unsigned bid)
{
	struct io_uring_sqe *sqe = entry();

	io_uring_prep_send(sqe, fd, memory + (size_t)bid * BUFFER_SIZE + sent_upto[bid],
			   length[bid] - sent_upto[bid], MSG_NOSIGNAL | MSG_WAITALL);
	io_uring_sqe_set_data64(sqe, TAG(SEND, bid, fd));
}

static void received(struct io_uring_cqe *cqe, int fd)
{
	unsigned bid = cqe->flags >> IORING_CQE_BUFFER_SHIFT;
	int more = cqe->flags & IORING_CQE_F_MORE;

	if (cqe->res > 0) {
		sent_upto[bid] = 0;
		length[bid] = cqe->res;
		send_rest(fd, bid);
	} else if (cqe->flags & IORING_CQE_F_BUFFER) {
		give_back(bid);
	}
	if (more)
		return;
	if (cqe->res > 0 || cqe->res == -ENOBUFS)
		arm_recv(fd);
	else
		close(fd);
}

static void sent(struct io_uring_cqe *cqe, int fd, unsigned bid)
{
	if (cqe->res > 0 && (sent_upto[bid] += cqe->res) < length[bid])
		send_rest(fd, bid);
	else
		give_back(bid); // the receive reports a broken connection
}

static void complete(struct io_uring_cqe *cqe)
{
	uint64_t tag = io_uring_cqe_get_data64(cqe);
	int fd = (int)(uint32_t)tag;

	switch (tag >> 56) {
	case ACCEPT:
		if (cqe->res >= 0)
			arm_recv(cqe->res);
		if (!(cqe->flags & IORING_CQE_F_MORE))
			arm_accept(fd);
		break;
	case RECV:
		received(cqe, fd);
		break;
	case SEND:
		sent(cqe, fd, (tag >> 32) & 0xffff);
		break;
	}
}

static void serve(void)
{
	struct io_uring_cqe *cqes[BATCH];

	for (;;) {
		int err = io_uring_submit_and_wait(&ring, 1);
		unsigned n;

		enters++;
		if (err < 0 && err != -EINTR)
			fail("io_uring_enter", -err);
		n = io_uring_peek_batch_cqe(&ring, cqes, BATCH);
		for (unsigned i = 0; i < n; i++)
			complete(cqes[i]);
		io_uring_cq_advance(&ring, n);
		if (returned) {
			io_uring_buf_ring_advance(group, returned);
			returned = 0;
		}
	}
}

static void open_ring(const char *name)
{
	struct io_uring_params p = { .cq_entries = CQ_ENTRIES };
	struct io_uring_buf_reg reg = { .ring_entries = BUFFERS, .bgid = GROUP };
	int err;

	p.flags = IORING_SETUP_CQSIZE | IORING_SETUP_SUBMIT_ALL;
	if (strcmp(name, "coop") == 0)
		p.flags |= IORING_SETUP_COOP_TASKRUN;
	else
		p.flags |= IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
	err = io_uring_queue_init_params(SQ_ENTRIES, &ring, &p);
	if (err)
		fail("io_uring_setup", -err);
	io_uring_register_ring_fd(&ring); // makes calls cheaper; it works without
	if (posix_memalign((void **)&group, 4096, BUFFERS * sizeof(struct io_uring_buf)) ||
	    posix_memalign((void **)&memory, 4096, (size_t)BUFFERS * BUFFER_SIZE))
		fail("memory", ENOMEM);
	reg.ring_addr = (uintptr_t)group;
	io_uring_buf_ring_init(group);
	err = io_uring_register_buf_ring(&ring, &reg, 0);
	if (err)
		fail("register the buffers", -err);
	for (unsigned i = 0; i < BUFFERS; i++)
		give_back(i);
	io_uring_buf_ring_advance(group, returned);
	returned = 0;
}

static int open_socket(struct sockaddr_in *addr)
{
	socklen_t len = sizeof(*addr);
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	addr->sin_family = AF_INET;
	addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) ||
	    bind(fd, (struct sockaddr *)addr, len) || listen(fd, 4096) ||
	    getsockname(fd, (struct sockaddr *)addr, &len))
		fail("listen", errno);
	return fd;
}

static void *answer(void *unused)
{
	char line[64];

	while (fgets(line, sizeof(line), stdin)) {
		printf("{\"enters\":%" PRId64 "}\n", (int64_t)enters);
		fflush(stdout);
	}
	exit(0);
	return unused;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "defer";
	struct sockaddr_in addr = { 0 };
	struct rlimit files;
	pthread_t thread;
	int fd = open_socket(&addr);

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}

	open_ring(name);
	arm_accept(fd);
	printf("{\"addr\":\"127.0.0.1:%d\",\"pid\":%d,\"backend\":\"io_uring, %s\",\"reason\":\"%s\"}\n",
	       ntohs(addr.sin_port), getpid(), name, COMPILER);
	fflush(stdout);
	if (pthread_create(&thread, NULL, answer, NULL))
		fail("thread", EAGAIN);
	serve();
	return 0;
}
