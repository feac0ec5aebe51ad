// SPDX-License-Identifier: MIT

package vm

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const searchOutput = `linux-image-6.1.0-9-cloud-amd64 - Linux 6.1 for x86-64 cloud (signed)
linux-image-6.1.0-47-cloud-amd64-dbg - Debug symbols
linux-image-6.1.0-56-cloud-amd64-unsigned - Linux 6.1 for x86-64 cloud
linux-image-6.1.0-10-cloud-amd64 - Linux 6.1 for x86-64 cloud (signed)
linux-image-6.1.0-10-cloud-amd64 - listed twice
linux-image-6.1.0-11-rt-amd64 - real time
linux-image-cloud-amd64 - Linux for x86-64 cloud (meta-package)
linux-image-6.12-cloud-amd64 - Linux for x86-64 cloud (meta-package)
linux-image-6.12.9+deb12-cloud-amd64 - Linux 6.12
linux-image-6.12.117+deb12-cloud-amd64 - Linux 6.12
linux-image-6.12.117+deb12-cloud-arm64 - Linux 6.12
`

func TestKernelPackages(t *testing.T) {
	for _, tt := range []struct {
		arch, version string
		want          []string
	}{
		{"amd64", "6.1", []string{"linux-image-6.1.0-10-cloud-amd64", "linux-image-6.1.0-9-cloud-amd64"}},
		{"amd64", "6.12", []string{"linux-image-6.12.117+deb12-cloud-amd64", "linux-image-6.12.9+deb12-cloud-amd64"}},
		{"amd64", "6.18", nil},
		{"arm64", "6.1", nil},
		{"arm64", "6.12", []string{"linux-image-6.12.117+deb12-cloud-arm64"}},
	} {
		if got := kernelPackages(searchOutput, tt.version, tt.arch); !slices.Equal(got, tt.want) {
			t.Errorf("%s %s: got %q, want %q", tt.arch, tt.version, got, tt.want)
		}
	}
}

// fakeApt lists packages and "downloads" them.
type fakeApt struct {
	list, updated string // the lists before and after an update
	fail          error  // the error of every download
	root          bool   // the lists may be updated
	downloads     []string
	updates       int
}

func (a *fakeApt) search(context.Context) (string, error) { return a.list, nil }

func (a *fakeApt) mayUpdate() bool { return a.root }

func (a *fakeApt) update(context.Context) error {
	a.updates++
	a.list = a.updated
	return nil
}

func (a *fakeApt) kernel(_ context.Context, pkg, path string) error {
	a.downloads = append(a.downloads, pkg)
	if a.fail != nil {
		return a.fail
	}
	if err := os.MkdirAll(moduleDir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(pkg), 0o644)
}

func TestFetchKernel(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	source := &fakeApt{list: searchOutput, updated: searchOutput}
	for range 2 {
		k, err := fetchKernel(ctx, source, dir, "amd64", "6.1")
		if err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(k.Image); string(data) != "linux-image-6.1.0-10-cloud-amd64" {
			t.Errorf("image holds %q, %v", data, err)
		}
	}
	if len(source.downloads) != 1 || source.updates != 0 {
		t.Errorf("downloads %q, %d updates", source.downloads, source.updates)
	}

	// If a newer one cannot be downloaded, the older one must be used.
	source = &fakeApt{list: "linux-image-6.1.0-11-cloud-amd64", fail: errors.New("not found")}
	source.updated = source.list
	k, err := fetchKernel(ctx, source, dir, "amd64", "6.1")
	if err != nil || k.Package != "linux-image-6.1.0-10-cloud-amd64" {
		t.Errorf("got %+v, %v", k, err)
	}
}

func TestFetchKernelUnavailable(t *testing.T) {
	cause := errors.New("not found")
	for name, source := range map[string]*fakeApt{
		"not listed":     {list: "linux-image-6.12-cloud-amd64"},
		"not downloaded": {list: searchOutput, updated: searchOutput, fail: cause},
	} {
		_, err := fetchKernel(context.Background(), source, t.TempDir(), "amd64", "6.12")
		var unavailable *UnavailableError
		if !errors.As(err, &unavailable) {
			t.Errorf("%s: got %v", name, err)
		}
		if source.fail != nil && !errors.Is(err, cause) {
			t.Errorf("%s: the cause is lost: %v", name, err)
		}
	}
}

// An update needs root: other users must use the lists as they are.
func TestFetchKernelUpdates(t *testing.T) {
	source := &fakeApt{updated: searchOutput}
	_, err := fetchKernel(context.Background(), source, t.TempDir(), "amd64", "6.12")
	if err == nil || source.updates != 0 {
		t.Errorf("not allowed: got %v after %d updates", err, source.updates)
	}
	source.root = true
	k, err := fetchKernel(context.Background(), source, t.TempDir(), "amd64", "6.12")
	if err != nil || source.updates != 1 || k.Version != "6.12" {
		t.Errorf("got %+v, %v after %d updates", k, err, source.updates)
	}
}

func TestFetchKernelVersion(t *testing.T) {
	for _, version := range []string{"", "6", "6.1.2", "6.1; true", "../6.1"} {
		if _, err := FetchKernel(context.Background(), "amd64", version); err == nil {
			t.Errorf("%q was accepted", version)
		}
	}
}

func TestCacheDir(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("RINGSIDE_KERNEL_CACHE", dir)
	if got, err := CacheDir(); err != nil || got != dir {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := FetchKernel(context.Background(), "vax", "6.1"); err == nil || !strings.Contains(err.Error(), "amd64, arm64") {
		t.Errorf("an unknown architecture: %v", err)
	}
	if _, ok := CachedKernel("amd64", "6.1"); ok {
		t.Error("found a kernel in an empty cache")
	}
	image := filepath.Join(dir, "linux-image-6.1.0-3-cloud-amd64.vmlinuz")
	if err := os.WriteFile(image, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if k, ok := CachedKernel("amd64", "6.1"); !ok || k.Image != image {
		t.Errorf("got %+v, %t", k, ok)
	}
}

func TestKernelFromTar(t *testing.T) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, name := range []string{"./boot/config-6.1", "./usr/vmlinuz-no", "./boot/vmlinuz-6.1", "./boot/later",
		"./lib/modules/6.1/kernel/net/tls/tls.ko.xz", "./lib/modules/6.1/kernel/crypto/gcm.ko", "./lib/modules/6.1/kernel/crypto/ccm.ko"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(name)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		w.Write([]byte(name))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "package.vmlinuz")
	if err := os.Mkdir(moduleDir(dst), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := kernelFromTar(&archive, dst, moduleDir(dst)); err != nil {
		t.Fatal(err)
	}
	k := cachedKernel(filepath.Dir(dst), "6.1", "package")
	if got := len(k.Modules); got != 2 || filepath.Base(k.Modules[0]) != "gcm.ko" || filepath.Base(k.Modules[1]) != "tls.ko.xz" {
		t.Errorf("modules %q", k.Modules)
	}
	if data, err := os.ReadFile(dst); string(data) != "./boot/vmlinuz-6.1" {
		t.Errorf("got %q, %v", data, err)
	}
	if err := kernelFromTar(bytes.NewReader(make([]byte, 1024)), dst, moduleDir(dst)); err == nil {
		t.Error("want an error without an image")
	}
}

func TestUnavailableError(t *testing.T) {
	err := &UnavailableError{Reason: "no qemu", Remedy: "install it", Cause: os.ErrNotExist}
	if got, want := err.Error(), "no qemu (file does not exist): install it"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(err, os.ErrNotExist) {
		t.Error("the cause is lost")
	}
}
