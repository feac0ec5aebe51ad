/* Does ext4 keep what was written and synced again after a write behind the end of a file has failed?
 *
 * cc -O2 -o again ext4-written-again.c && sudo ./again; exit status 1 if synced bytes are lost.
 * Needs root, /dev/loop-control, mkfs.ext4 and losetup. The disk is a loop device over a file in a small
 * tmpfs. A write fails because its blocks have been punched out of that file, and the tmpfs is full. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 4096, IMAGE = 64 << 20, HOLE = 8 << 20, SIZE = 4 * BLOCK };

static char dir[] = "/tmp/again-XXXXXX", name[64], text[64], loop[64];

static void die(const char *what) { perror(what); exit(2); }

static void run(const char *command) {
	if (system(command)) { fprintf(stderr, "failed: %s\n", command); exit(2); }
}

static const char *in(const char *part) { snprintf(text, sizeof text, "%s/%s", dir, part); return text; }

static void mount_disk(void) {
	if (mount(loop, strcpy(name, in("mnt")), "ext4", 0, "")) die("mount the disk");
}

int main(int argc, char **argv) {
	int cut = argc > 1 && !strcmp(argv[1], "cut");   /* the file at its old end, before it is written again */
	int drop = argc > 1 && !strcmp(argv[1], "drop"); /* the page cache of the file before that */
	char command[256], *again = malloc(SIZE), *got = malloc(SIZE);
	if (!mkdtemp(dir) || mount("none", dir, "tmpfs", 0, "size=72m") || mkdir(in("mnt"), 0700)) die("tmpfs");
	int image = open(in("image"), O_RDWR | O_CREAT, 0600);
	snprintf(command, sizeof command, "truncate -s %d %s && mkfs.ext4 -q -b 4096 -E nodiscard,lazy_itable_init=0 %s", IMAGE, in("image"), in("image"));
	run(command);
	if (fallocate(image, 0, 0, IMAGE)) die("fallocate"); /* the journal can be written */
	snprintf(command, sizeof command, "losetup -f --show %s", in("image"));
	FILE *p = popen(command, "r");
	if (!fgets(loop, sizeof loop, p) || pclose(p)) die("losetup");
	loop[strcspn(loop, "\n")] = 0;
	mount_disk();

	int f = open(in("mnt/file"), O_RDWR | O_CREAT, 0600), block = 0;
	memset(again, 'g', BLOCK);
	if (pwrite(f, again, BLOCK, 0) != BLOCK || fsync(f)) die("the first block");
	sync();
	if (ioctl(f, FIBMAP, &block)) die("FIBMAP");
	off_t hole = (off_t)(block + 1) * BLOCK;
	if (fallocate(image, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, hole, HOLE)) die("punch");
	int filler = open(in("filler"), O_WRONLY | O_CREAT, 0600);
	memset(again, 'a', SIZE);
	while (write(filler, again, SIZE) > 0) {}
	while (write(filler, again, BLOCK) > 0) {}

	if (pwrite(f, again, SIZE, BLOCK) != SIZE) die("write");
	int failed = fsync(f) ? errno : 0;
	printf("first fsync: %s\n", strerror(failed));
	if (close(filler) || unlink(in("filler"))) die("filler");
	if (cut && ftruncate(f, BLOCK)) die("truncate");
	if (drop && (errno = posix_fadvise(f, 0, 0, POSIX_FADV_DONTNEED))) die("drop");
	if (pwrite(f, again, SIZE, BLOCK) != SIZE) die("write again");
	if (fsync(f)) die("second fsync");
	printf("second fsync: Success\n");
	close(f);
	if (umount(strcpy(name, in("mnt")))) die("umount");
	mount_disk();
	f = open(in("mnt/file"), O_RDONLY);
	int lost = pread(f, got, SIZE, BLOCK) != SIZE || memcmp(got, again, SIZE);
	printf("after a remount the bytes are %s\n", lost ? "LOST" : "there");
	close(f);
	umount(strcpy(name, in("mnt")));
	snprintf(command, sizeof command, "losetup -d %s", loop);
	run(command);
	close(image);
	umount(dir);
	rmdir(dir);
	return !failed ? 2 : lost;
}
