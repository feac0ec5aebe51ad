//go:build ignore

// SPDX-License-Identifier: MIT
//
// The workload "nop" in C on liburing, step by step what cmd/internal/workload
// does in Go: the same ring, the same entries, the same checks, and the clock
// read as seldom. The go command leaves this file alone; it is compiled when
// the suite runs.
//
// usage: nop RING BATCH ROUNDS FIRST WARM SECONDS
//   RING     default, or defer for SINGLE_ISSUER|DEFER_TASKRUN|TASKRUN_FLAG
//   BATCH    entries per submission
//   ROUNDS   submissions between two readings of the clock
//   FIRST    user data of the first entry
//   WARM     seconds before the measured window
//   SECONDS  its length

#include <inttypes.h>
#include <liburing.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define ENTRIES 256

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

struct loop {
	struct io_uring ring;
	unsigned batch;
	unsigned rounds;
	int wait; // submit and wait in one call
	uint64_t sent, reaped;
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

// run repeats chunks of rounds for so many seconds, one chunk at least, and
// returns the nanoseconds it took.
static int64_t run(struct loop *l, double seconds)
{
	int64_t begin = now(), length = (int64_t)(seconds * 1e9), passed;

	do {
		for (unsigned i = 0; i < l->rounds; i++) {
			fill(l);
			submit(l);
			reap(l);
		}
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

int main(int argc, char **argv)
{
	static struct loop l;
	int64_t cpu_before, cpu_used, elapsed;
	uint64_t before;

	if (argc != 7) {
		fprintf(stderr, "usage: nop RING BATCH ROUNDS FIRST WARM SECONDS\n");
		return 2;
	}
	l.batch = strtoul(argv[2], NULL, 10);
	l.rounds = strtoul(argv[3], NULL, 10);
	l.sent = l.reaped = strtoull(argv[4], NULL, 10);
	if (l.batch < 1 || l.batch > ENTRIES || l.rounds < 1) {
		fprintf(stderr, "batch must be 1 to %d, rounds at least 1\n", ENTRIES);
		return 2;
	}
	open_ring(&l, argv[1]);
	run(&l, strtod(argv[5], NULL));
	before = l.reaped;
	cpu_before = cpu();
	elapsed = run(&l, strtod(argv[6], NULL));
	cpu_used = cpu() - cpu_before;
	printf("{\"ops\":%" PRIu64 ",\"elapsed_ns\":%" PRId64 ",\"cpu_ns\":%" PRId64
	       ",\"setup_flags\":%u,\"compiler\":\"%s\"}\n",
	       l.reaped - before, elapsed, cpu_used, l.ring.flags, COMPILER);
	return 0;
}
