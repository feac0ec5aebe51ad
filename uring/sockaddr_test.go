// SPDX-License-Identifier: MIT

package uring_test

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
	"unsafe"

	"github.com/ringside-io/ringside/uring"
)

// sockaddrBytes returns the bytes that the kernel would read of an address.
func sockaddrBytes(s *uring.Sockaddr) string {
	return string(unsafe.Slice((*byte)(unsafe.Pointer(s)), s.Len()))
}

// family encodes an address family.
func family(f uint16) string { return string(binary.NativeEndian.AppendUint16(nil, f)) }

func TestSockaddrIP(t *testing.T) {
	mapped := "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x7f\x00\x00\x01"
	for addr, want := range map[string]string{
		"127.0.0.1:80":           family(2) + "\x00\x50\x7f\x00\x00\x01" + strings.Repeat("\x00", 8),
		"0.0.0.0:0":              family(2) + strings.Repeat("\x00", 14),
		"[::1]:65535":            family(10) + "\xff\xff\x00\x00\x00\x00" + strings.Repeat("\x00", 15) + "\x01\x00\x00\x00\x00",
		"[::ffff:127.0.0.1]:443": family(10) + "\x01\xbb\x00\x00\x00\x00" + mapped + "\x00\x00\x00\x00",
		"[fe80::2%4294967295]:1": family(10) + "\x00\x01\x00\x00\x00\x00\xfe\x80" + strings.Repeat("\x00", 13) + "\x02\xff\xff\xff\xff",
	} {
		ap := netip.MustParseAddrPort(addr)
		s, err := uring.NewSockaddr(ap)
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		if got := sockaddrBytes(s); got != want {
			t.Errorf("%s is\n%x, want\n%x", addr, got, want)
		}
		if s.AddrPort() != ap || s.UnixPath() != "" {
			t.Errorf("%s comes back as %v, %q", addr, s.AddrPort(), s.UnixPath())
		}
	}
	for _, bad := range []netip.AddrPort{{}, netip.MustParseAddrPort("[fe80::1%eth0]:1"), netip.MustParseAddrPort("[fe80::1%4294967296]:1")} {
		if s, err := uring.NewSockaddr(bad); err == nil {
			t.Errorf("%v became %x", bad, sockaddrBytes(s))
		}
	}
}

func TestSockaddrUnix(t *testing.T) {
	long := strings.Repeat("x", 107)
	for path, want := range map[string]string{
		"":             family(1),
		"/some/path":   family(1) + "/some/path\x00",
		"@name":        family(1) + "\x00name",
		"@a\x00b\x00":  family(1) + "\x00a\x00b\x00",
		"@":            family(1) + "\x00",
		long:           family(1) + long + "\x00",
		"@" + long:     family(1) + "\x00" + long,
		"relative@too": family(1) + "relative@too\x00",
	} {
		s, err := uring.NewUnixSockaddr(path)
		if err != nil {
			t.Errorf("%q: %v", path, err)
			continue
		}
		if got := sockaddrBytes(s); got != want {
			t.Errorf("%q is\n%x, want\n%x", path, got, want)
		}
		if s.UnixPath() != path || s.AddrPort().IsValid() {
			t.Errorf("%q comes back as %q, %v", path, s.UnixPath(), s.AddrPort())
		}
	}
	nul, err := uring.NewUnixSockaddr("\x00name")
	if err != nil || nul.UnixPath() != "@name" {
		t.Errorf("a name after NUL: %q, %v", nul.UnixPath(), err)
	}
	for _, bad := range []string{long + "x", "@" + long + "x", "a\x00b"} {
		if s, err := uring.NewUnixSockaddr(bad); err == nil {
			t.Errorf("%q became %x", bad, sockaddrBytes(s))
		}
	}
}

// received returns an address as if the kernel had written it.
func received(b string) *uring.Sockaddr {
	s := (&uring.MultishotMsg{Name: []byte(b)}).Sockaddr()
	return &s
}

func TestSockaddrReceived(t *testing.T) {
	var s uring.Sockaddr
	if s.Len() != 0 || s.Family() != 0 || s.AddrPort().IsValid() || s.UnixPath() != "" {
		t.Errorf("the zero value is %v, %q", s.AddrPort(), s.UnixPath())
	}
	s = *mustSockaddr("127.0.0.1:80")
	if s.Reset(); s.Len() != 128 || s.Family() != 0 || s.AddrPort().IsValid() {
		t.Errorf("an empty address has room for %d bytes and holds %v", s.Len(), s.AddrPort())
	}
	for name, b := range map[string]string{
		"nothing": "", "half a family": "\x02", "family": family(2),
		"short IPv4": family(2) + "\x00\x50\x7f\x00\x00", "short IPv6": family(10) + strings.Repeat("\x00", 25),
		"no name": family(1), "other": family(16) + "netlink",
	} {
		if s := received(b); s.AddrPort().IsValid() || s.UnixPath() != "" {
			t.Errorf("%s: %v, %q", name, s.AddrPort(), s.UnixPath())
		}
	}
	// The kernel may omit the NUL, or add bytes after it.
	for b, want := range map[string]string{"/path": "/path", "/path\x00": "/path", "/path\x00rest": "/path", "\x00name\x00": "@name\x00"} {
		if got := received(family(1) + b).UnixPath(); got != want {
			t.Errorf("%q is %q, want %q", b, got, want)
		}
	}
}

// Promise: uring/bytes-shared-memory
func FuzzSockaddr(f *testing.F) {
	for _, addr := range []string{"127.0.0.1:80", "[fe80::1%7]:443"} {
		f.Add([]byte(sockaddrBytes(mustSockaddr(addr))))
	}
	for _, path := range []string{"", "/some/path", "@name", "@a\x00b"} {
		f.Add([]byte(sockaddrBytes(mustUnix(path))))
	}
	f.Add([]byte(family(1) + strings.Repeat("x", 126)))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := received(string(b))
		if s.Len() != min(len(b), 128) {
			t.Fatalf("%d bytes of %d", s.Len(), len(b))
		}
		if ap := s.AddrPort(); ap.IsValid() {
			again, err := uring.NewSockaddr(ap)
			if err != nil || again.AddrPort() != ap {
				t.Fatalf("%v comes back as %v, %v", ap, again.AddrPort(), err)
			}
		}
		if path := s.UnixPath(); path != "" {
			wantUnixRoundTrip(t, path)
		}
	})
}

// wantUnixRoundTrip encodes and decodes a path, or checks that a path that is too long is
// refused.
func wantUnixRoundTrip(t *testing.T, path string) {
	t.Helper()
	again, err := uring.NewUnixSockaddr(path)
	room := 107
	if path[0] == '@' {
		room = 108
	}
	switch {
	case len(path) > room:
		if err == nil {
			t.Fatalf("a path of %d bytes was accepted", len(path))
		}
	case err != nil:
		t.Fatalf("%q: %v", path, err)
	case again.UnixPath() != path || again.Len() > 110:
		t.Fatalf("%q comes back as %q in %d bytes", path, again.UnixPath(), again.Len())
	}
}
