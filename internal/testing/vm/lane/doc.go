// SPDX-License-Identifier: MIT

// Command lane runs the repository's tests on other Linux kernels.
//
//	go run ./internal/testing/vm/lane -kernel 6.1 -kernel 6.12
//
// It builds the test binary of each package whose tests depend on the kernel, for
// linux/amd64 without cgo, boots the newest packaged kernel of each version
// under qemu, runs the binaries there one after the other as root, and prints a
// line for each. With -arch arm64 binaries, kernels and machine are arm64; the
// host needs qemu-system-aarch64 (Debian: qemu-system-arm) and no other tool. As many
// kernels run at the same time as there are processors, see -at-once; their lines are
// printed kernel by kernel. The exit status is 1 when a test or a machine failed. If qemu
// or a kernel is not available, the lane fails if CI is set to true, and is skipped by
// name otherwise.
//
// The tests find in their environment
//
//   - RINGSIDE_LANE, the requested kernel version: the source tree is missing;
//     only the package's testdata is there, in the working directory;
//   - RINGSIDE_MUST=io_uring: a test that would skip because io_uring is
//     forbidden must fail;
//   - TMPDIR, an ext4 file system with O_DIRECT if mkfs.ext4 is installed,
//     a tmpfs otherwise; /tmp is always a tmpfs.
//
// With -main the lane runs a command of the repository instead of tests, and
// prints its output:
//
//	go run ./internal/testing/vm/lane -kernel 6.12 -sysctl kernel.io_uring_disabled=2 -main ./cmd/ringside -- probe --json
package main
