//go:build ignore

// SPDX-License-Identifier: MIT
//
// The workloads "nop" and "read" in C on liburing, step by step what
// cmd/internal/workload does in Go: the same ring, the same entries, the same
// checks, and the clock read as seldom. The go command leaves this file alone;
// it is compiled when the suite runs.
//
// usage: ring nop RING BATCH ROUNDS FIRST WARM SECONDS
//        ring read RING DEPTH READS FILE SPAN CONTENT SEED DIRECT WARM SECONDS
//   RING     default, or defer for SINGLE_ISSUER|DEFER_TASKRUN|TASKRUN_FLAG
//   BATCH    entries per submission
//   ROUNDS   submissions between two readings of the clock
//   FIRST    user data of the first entry
//   DEPTH    reads in flight
//   READS    reads between two readings of the clock
//   FILE     of which SPAN bytes are read, made by package datafile with the
//            seed CONTENT
//   SEED     of the sequence of offsets
//   DIRECT   1 for O_DIRECT, 0 for the page cache
//   WARM     seconds before the measured window
//   SECONDS  its length

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <liburing.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define ENTRIES 256
#define BLOCK 4096

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

struct loop {
	struct io_uring ring;
	void (*chunk)(struct loop *); // what is done between two readings of the clock
	uint64_t ops;		      // of all chunks

	// nop
	unsigned batch;
	unsigned rounds;
	int wait; // submit and wait in one call
	uint64_t sent, reaped;

	// read
	int fd;
	unsigned depth, reads;
	uint64_t blocks, content, state;
	unsigned char *bufs;
	uint64_t at[ENTRIES];	// the offset of the read into each buffer
	unsigned free[ENTRIES]; // the buffers without a read
	unsigned nfree;
};

static void fail(const char *what, int err)
{
	fprintf(stderr, "%s: %s\n", what, strerror(err));
	exit(1);
}

static void wrong(const char *what, int64_t got, int64_t want)
{
	fprintf(stderr, "%s %" PRId64 ", want %" PRId64 "\n", what, got, want);
	exit(1);
}

static void fill(struct loop *l)
{
	uint64_t next = l->sent;

	for (unsigned i = 0; i < l->batch; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&l->ring);

		if (!sqe)
			wrong("entries", i, l->batch);
		io_uring_prep_nop(sqe);
		io_uring_sqe_set_data64(sqe, next++);
	}
	l->sent = next;
}

static void submit(struct loop *l)
{
	int n = l->wait ? io_uring_submit_and_wait(&l->ring, l->batch)
			: io_uring_submit(&l->ring);

	if (n < 0)
		fail("io_uring_enter", -n);
	if ((unsigned)n != l->batch)
		wrong("submitted", n, l->batch);
}

static void reap(struct loop *l)
{
	struct io_uring_cqe *cqes[ENTRIES];
	uint64_t want = l->reaped;

	for (unsigned left = l->batch; left > 0;) {
		unsigned n = io_uring_peek_batch_cqe(&l->ring, cqes, left);

		for (unsigned i = 0; i < n; i++) {
			if (cqes[i]->res != 0)
				wrong("result", cqes[i]->res, 0);
			if (cqes[i]->user_data != want)
				wrong("user data", cqes[i]->user_data, want);
			want++;
		}
		io_uring_cq_advance(&l->ring, n);
		left -= n;
	}
	l->reaped = want;
}

static void nops(struct loop *l)
{
	for (unsigned i = 0; i < l->rounds; i++) {
		fill(l);
		submit(l);
		reap(l);
	}
	l->ops += (uint64_t)l->rounds * l->batch;
}

static uint64_t split_mix(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static void send_read(struct loop *l)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&l->ring);
	unsigned i;

	if (!sqe)
		wrong("entries", 0, 1);
	i = l->free[--l->nfree];
	l->at[i] = (uint64_t)((unsigned __int128)split_mix(&l->state) * l->blocks >> 64) * BLOCK;
	io_uring_prep_read(sqe, l->fd, l->bufs + (size_t)i * BLOCK, BLOCK, l->at[i]);
	io_uring_sqe_set_data64(sqe, i);
}

static unsigned reap_reads(struct loop *l)
{
	struct io_uring_cqe *cqes[ENTRIES];
	unsigned n = io_uring_peek_batch_cqe(&l->ring, cqes, l->depth);

	for (unsigned i = 0; i < n; i++) {
		unsigned at = cqes[i]->user_data;
		uint64_t stamp[2];

		if (cqes[i]->res != BLOCK)
			wrong("result", cqes[i]->res, BLOCK);
		memcpy(stamp, l->bufs + (size_t)at * BLOCK, sizeof(stamp));
		if (stamp[1] != l->at[at])
			wrong("bytes of offset", stamp[1], l->at[at]);
		if (stamp[0] != l->content)
			wrong("bytes of the file with seed", stamp[0], l->content);
		l->free[l->nfree++] = at;
	}
	io_uring_cq_advance(&l->ring, n);
	return n;
}

static void reads(struct loop *l)
{
	for (unsigned sent = 0, done = 0; done < l->reads;) {
		int err;

		for (; l->nfree > 0 && sent < l->reads; sent++)
			send_read(l);
		err = io_uring_submit_and_wait(&l->ring, 1);
		if (err < 0 && err != -EINTR)
			fail("io_uring_enter", -err);
		done += reap_reads(l);
	}
	l->ops += l->reads;
}

static int64_t nanos(time_t sec, int64_t nsec)
{
	return (int64_t)sec * 1000000000 + nsec;
}

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return nanos(t.tv_sec, t.tv_nsec);
}

static int64_t cpu(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return nanos(u.ru_utime.tv_sec, u.ru_utime.tv_usec * 1000) +
	       nanos(u.ru_stime.tv_sec, u.ru_stime.tv_usec * 1000);
}

// run repeats chunks for so many seconds, one chunk at least, and returns the
// nanoseconds it took.
static int64_t run(struct loop *l, double seconds)
{
	int64_t begin = now(), length = (int64_t)(seconds * 1e9), passed;

	do {
		l->chunk(l);
		passed = now() - begin;
	} while (passed < length);
	return passed;
}

static void open_ring(struct loop *l, const char *name)
{
	unsigned flags = 0;
	int err;

	if (strcmp(name, "defer") == 0) {
		flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
			IORING_SETUP_TASKRUN_FLAG;
		l->wait = 1;
	} else if (strcmp(name, "default") != 0) {
		fprintf(stderr, "unknown ring %s\n", name);
		exit(1);
	}
	err = io_uring_queue_init(ENTRIES, &l->ring, flags);
	if (err)
		fail("io_uring_setup", -err);
}

static void usage(const char *why)
{
	fprintf(stderr, "%s\nusage: ring nop RING BATCH ROUNDS FIRST WARM SECONDS\n"
			"       ring read RING DEPTH READS FILE SPAN CONTENT SEED DIRECT WARM SECONDS\n", why);
	exit(2);
}

static void prepare_nops(struct loop *l, char **argv)
{
	l->chunk = nops;
	l->batch = strtoul(argv[3], NULL, 10);
	l->rounds = strtoul(argv[4], NULL, 10);
	l->sent = l->reaped = strtoull(argv[5], NULL, 10);
	if (l->batch < 1 || l->batch > ENTRIES || l->rounds < 1)
		usage("batch must be 1 to 256, rounds at least 1");
}

static void prepare_reads(struct loop *l, char **argv)
{
	l->chunk = reads;
	l->depth = strtoul(argv[3], NULL, 10);
	l->reads = strtoul(argv[4], NULL, 10);
	l->blocks = strtoull(argv[6], NULL, 10) / BLOCK;
	l->content = strtoull(argv[7], NULL, 10);
	if (l->depth < 1 || l->depth > ENTRIES || l->reads < 1 || l->blocks < 1)
		usage("depth must be 1 to 256, reads at least 1, the span a block");
	l->state = strtoull(argv[8], NULL, 10) * 0x9e3779b97f4a7c15;
	l->fd = open(argv[5], O_RDONLY | O_CLOEXEC | (strcmp(argv[9], "1") == 0 ? O_DIRECT : 0));
	if (l->fd < 0)
		fail(argv[5], errno);
	if (posix_memalign((void **)&l->bufs, BLOCK, (size_t)l->depth * BLOCK))
		fail("memory", ENOMEM);
	memset(l->bufs, 1, (size_t)l->depth * BLOCK); // no measured read causes a page fault
	while (l->nfree < l->depth) {
		l->free[l->nfree] = l->nfree;
		l->nfree++;
	}
}

int main(int argc, char **argv)
{
	static struct loop l;
	int64_t cpu_before, cpu_used, elapsed;
	uint64_t before;

	if (argc == 8 && strcmp(argv[1], "nop") == 0)
		prepare_nops(&l, argv);
	else if (argc == 12 && strcmp(argv[1], "read") == 0)
		prepare_reads(&l, argv);
	else
		usage("unknown arguments");
	open_ring(&l, argv[2]);
	run(&l, strtod(argv[argc - 2], NULL));
	before = l.ops;
	cpu_before = cpu();
	elapsed = run(&l, strtod(argv[argc - 1], NULL));
	cpu_used = cpu() - cpu_before;
	printf("{\"ops\":%" PRIu64 ",\"elapsed_ns\":%" PRId64 ",\"cpu_ns\":%" PRId64
	       ",\"setup_flags\":%u,\"compiler\":\"%s\"}\n",
	       l.ops - before, elapsed, cpu_used, l.ring.flags, COMPILER);
	return 0;
}
