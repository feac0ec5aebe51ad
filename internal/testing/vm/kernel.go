// SPDX-License-Identifier: MIT

package vm

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// Kernel is a bootable image in the cache.
type Kernel struct {
	// Version is the requested version, such as "6.1".
	Version string
	// Package is the Debian package the image comes from.
	Package string
	// Image is the path of the vmlinuz.
	Image string
	// Modules are the paths of the package's modules for TLS in the kernel, in the order
	// in which they can be loaded.
	Modules []string
}

// moduleNames are the modules of TLS and of its ciphers, each after those that it needs.
// An architecture has some of them.
var moduleNames = []string{
	"cryptd", "crypto_simd", "gf128mul", "crypto_null", "ghash-generic", "aesni-intel", "gcm", "tls",
}

// CacheDir returns the directory of the cached kernels: $RINGSIDE_KERNEL_CACHE
// or ringside-kernels in the user's cache directory.
func CacheDir() (string, error) {
	if dir := os.Getenv("RINGSIDE_KERNEL_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for kernels, set RINGSIDE_KERNEL_CACHE: %w", err)
	}
	return filepath.Join(dir, "ringside-kernels"), nil
}

// apt has the operations of the package manager that fetching a kernel needs. Tests
// replace it.
type apt interface {
	search(ctx context.Context) (string, error)
	// mayUpdate reports whether update is allowed: the host's lists are root's.
	mayUpdate() bool
	update(ctx context.Context) error
	// kernel downloads a package and stores the kernel image in it at path, and its
	// modules in the directory moduleDir(path).
	kernel(ctx context.Context, pkg, path string) error
}

// FetchKernel returns the newest packaged kernel of a version such as "6.12" for
// an architecture. An image in the cache is used without a download. If downloading a
// newer one fails, an older one in the cache is used. Otherwise the error is an
// UnavailableError.
func FetchKernel(ctx context.Context, arch, version string) (Kernel, error) {
	if !regexp.MustCompile(`^[0-9]+\.[0-9]+$`).MatchString(version) {
		return Kernel{}, fmt.Errorf("kernel version %q is not of the form 6.1", version)
	}
	dir, err := CacheDir()
	if err != nil {
		return Kernel{}, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Kernel{}, err
	}
	if _, err := archOf(arch); err != nil {
		return Kernel{}, err
	}
	source := debianApt{arch: arch}
	if arch != runtime.GOARCH {
		source.state = filepath.Join(dir, "apt-"+arch)
	}
	return fetchKernel(ctx, source, dir, arch, version)
}

func fetchKernel(ctx context.Context, source apt, dir, arch, version string) (Kernel, error) {
	k, err := newestKernel(ctx, source, dir, arch, version)
	if err != nil && source.mayUpdate() && ctx.Err() == nil {
		// The lists may be empty, or older than the archive.
		if err2 := source.update(ctx); err2 != nil {
			err = errors.Join(err, err2)
		} else {
			k, err = newestKernel(ctx, source, dir, arch, version)
		}
	}
	if err == nil {
		return k, nil
	}
	if names := cachedKernels(dir, arch, version); len(names) > 0 {
		return cachedKernel(dir, version, names[0]), nil
	}
	return Kernel{}, &UnavailableError{
		Reason: "no Linux " + version + " kernel package",
		Remedy: "run apt-get update on a Debian release that has linux-image-" + version + ".*-cloud-" + arch + " (12 has 6.1 and 6.12)",
		Cause:  err,
	}
}

func newestKernel(ctx context.Context, source apt, dir, arch, version string) (Kernel, error) {
	list, err := source.search(ctx)
	if err != nil {
		return Kernel{}, err
	}
	names := kernelPackages(list, version, arch)
	if len(names) == 0 {
		return Kernel{}, fmt.Errorf("the package lists do not have it")
	}
	k := cachedKernel(dir, version, names[0])
	_, noImage := os.Stat(k.Image)
	_, noModules := os.Stat(moduleDir(k.Image))
	if noImage == nil && noModules == nil {
		return k, nil
	}
	if err := source.kernel(ctx, k.Package, k.Image); err != nil {
		return k, err
	}
	return cachedKernel(dir, version, names[0]), nil
}

func cachedKernel(dir, version, pkg string) Kernel {
	k := Kernel{Version: version, Package: pkg, Image: filepath.Join(dir, pkg+".vmlinuz")}
	for _, name := range moduleNames {
		// Of .ko, or of .ko.xz, which the kernel unpacks.
		files, _ := filepath.Glob(filepath.Join(moduleDir(k.Image), name+".ko*"))
		k.Modules = append(k.Modules, files...)
	}
	return k
}

// moduleDir returns the directory of the modules beside an image in the cache.
func moduleDir(image string) string { return strings.TrimSuffix(image, ".vmlinuz") + ".modules" }

// CachedKernel returns the newest image of a version in the cache, without
// asking for a newer one; false if there is none.
func CachedKernel(arch, version string) (Kernel, bool) {
	dir, err := CacheDir()
	if err != nil {
		return Kernel{}, false
	}
	names := cachedKernels(dir, arch, version)
	if len(names) == 0 {
		return Kernel{}, false
	}
	return cachedKernel(dir, version, names[0]), true
}

func cachedKernels(dir, arch, version string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var list strings.Builder
	for _, e := range entries {
		if pkg, ok := strings.CutSuffix(e.Name(), ".vmlinuz"); ok {
			list.WriteString(pkg + "\n")
		}
	}
	return kernelPackages(list.String(), version, arch)
}

// debianApt is the real package manager. With state, a directory, the lists of
// another architecture are kept there, and the host's remain as they are.
type debianApt struct {
	arch, state string
}

// get runs apt-get in dir.
func (a debianApt) get(ctx context.Context, dir string, args ...string) ([]byte, error) {
	options, err := a.options()
	if err != nil {
		return nil, err
	}
	return aptGet(ctx, dir, append(options, args...)...)
}

// options tells apt's programs the architecture.
func (a debianApt) options() ([]string, error) {
	options := []string{"-o", "APT::Sandbox::User=root"}
	if a.state != "" {
		for _, o := range []string{
			"APT::Architecture=" + a.arch, "APT::Architectures::=" + a.arch, "Acquire::Languages=none",
			"Dir::State=" + a.state, "Dir::State::Lists=" + a.state + "/lists", "Dir::State::status=/dev/null",
			"Dir::Cache=" + a.state + "/cache",
		} {
			options = append(options, "-o", o)
		}
		for _, d := range []string{"lists/partial", "cache/archives/partial"} {
			if err := os.MkdirAll(filepath.Join(a.state, d), 0o755); err != nil {
				return nil, err
			}
		}
	}
	return options, nil
}

func (a debianApt) search(ctx context.Context) (string, error) {
	args, err := a.options()
	if err != nil {
		return "", err
	}
	args = append(args, "search", "--names-only", "^linux-image-.*-cloud-"+a.arch+"$")
	out, err := output(ctx, "", "apt-cache", args...)
	return string(out), err
}

func (a debianApt) mayUpdate() bool { return a.state != "" || os.Geteuid() == 0 }

func (a debianApt) update(ctx context.Context) error {
	_, err := a.get(ctx, "", "update")
	return err
}

func (a debianApt) kernel(ctx context.Context, pkg, image string) error {
	tmp, err := os.MkdirTemp(filepath.Dir(image), "download-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if _, err := a.get(ctx, tmp, "download", pkg); err != nil {
		return err
	}
	debs, _ := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if len(debs) != 1 {
		return fmt.Errorf("apt-get download %s left %d packages, not one", pkg, len(debs))
	}
	unpacked, modules := filepath.Join(tmp, "vmlinuz"), filepath.Join(tmp, "modules")
	if err := os.Mkdir(modules, 0o755); err != nil {
		return err
	}
	if err := unpackKernel(ctx, debs[0], unpacked, modules); err != nil {
		return err
	}
	// The image comes last: a cache that has it is complete.
	if err := os.RemoveAll(moduleDir(image)); err != nil {
		return err
	}
	if err := os.Rename(modules, moduleDir(image)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err // it exists if another lane was faster
	}
	return os.Rename(unpacked, image)
}

// unpackKernel writes the kernel image in a package to the file image, and its modules for
// TLS to a directory. It reads the package as a stream: unpacking would put all modules
// on the disk.
func unpackKernel(ctx context.Context, deb, image, modules string) error {
	cmd := exec.CommandContext(ctx, "dpkg", "--fsys-tarfile", deb)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = kernelFromTar(pipe, image, modules)
	_, _ = io.Copy(io.Discard, pipe) // tar pads the archive
	return errors.Join(err, cmd.Wait())
}

func kernelFromTar(r io.Reader, image, modules string) error {
	found := false
	for archive := tar.NewReader(r); ; {
		head, err := archive.Next()
		if err == io.EOF && found {
			return nil
		}
		if err != nil {
			return fmt.Errorf("no kernel image in the package: %w", err)
		}
		dir, name := path.Split(path.Clean(head.Name))
		dst := ""
		switch module, _, _ := strings.Cut(name, ".ko"); {
		case head.Typeflag != tar.TypeReg:
		case dir == "boot/" && strings.HasPrefix(name, "vmlinuz-"):
			dst, found = image, true
		case strings.Contains(dir, "lib/modules/") && module != name && slices.Contains(moduleNames, module):
			dst = filepath.Join(modules, name)
		}
		if dst == "" {
			continue
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			return err
		}
		if err := os.WriteFile(dst, data, 0o644); err != nil {
			return err
		}
	}
}
