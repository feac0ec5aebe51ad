// SPDX-License-Identifier: MIT

package ktls

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"io"
	"math"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestCertificate returns the certificate of all servers in tests.
var TestCertificate = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestDerive compares with the server's application keys of RFC 8448, section 3.
func TestDerive(t *testing.T) {
	k, err := suites[tls.TLS_AES_128_GCM_SHA256].derive(unhex(t, "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643"))
	if err != nil {
		t.Fatal(err)
	}
	if want := unhex(t, "9f02283b6c9c07efc26bb9f2ac92e356"); !bytes.Equal(k.key, want) {
		t.Errorf("key %x, want %x", k.key, want)
	}
	if want := unhex(t, "cf782b88dd83549aadf1e984"); !bytes.Equal(k.iv, want) {
		t.Errorf("IV %x, want %x", k.iv, want)
	}
	info := k.info(0x0102030405060708)
	if want := unhex(t, "dd83549aadf1e984 9f02283b6c9c07efc26bb9f2ac92e356 cf782b88 0102030405060708"); !bytes.Equal(info[4:], want) {
		t.Errorf("structure %x, want %x", info[4:], want)
	}
}

// TestPosition refuses a log of keys that does not open the handshake.
// Promise: unet/unet-ktls-sends
func TestPosition(t *testing.T) {
	s := suites[tls.TLS_AES_256_GCM_SHA384]
	secret := func(b byte) []byte { return bytes.Repeat([]byte{b}, 48) }
	record := func(secret []byte, seq uint64) []byte {
		k, err := s.derive(secret)
		if err != nil {
			t.Fatal(err)
		}
		content := []byte("message\x16")
		head := []byte{recordData, 3, 3, 0, byte(len(content) + 16)}
		nonce := bytes.Clone(k.iv)
		nonce[11] ^= byte(seq)
		return k.aead.Seal(head, nonce, content, head)
	}
	hello := []byte{recordHandshake, 3, 3, 0, 2, 2, 0, 20, 3, 3, 0, 1, 1}
	log := keyLog{handshake: secret(1), traffic: secret(2)}
	for name, tt := range map[string]struct {
		sent [][]byte
		want int // records with the traffic key; -1 for an error
	}{
		"no ticket":   {[][]byte{hello, record(secret(1), 0), record(secret(1), 1)}, 0},
		"two tickets": {[][]byte{hello, record(secret(1), 0), record(secret(2), 0), record(secret(2), 1)}, 2},
		"other key":   {[][]byte{hello, record(secret(1), 0), record(secret(3), 0)}, -1},
		"lost record": {[][]byte{hello, record(secret(1), 0), record(secret(2), 1)}, -1},
		"order":       {[][]byte{hello, record(secret(1), 0), record(secret(2), 0), record(secret(1), 1)}, -1},
		"no record":   {[][]byte{hello}, -1},
		"cut record":  {[][]byte{hello, record(secret(1), 0)[:20]}, -1},
	} {
		_, n, err := log.position(s, bytes.Join(tt.sent, nil))
		if (err != nil) != (tt.want < 0) || err == nil && int(n) != tt.want {
			t.Errorf("%s: %d records, %v; want %d", name, n, err, tt.want)
		}
	}
	if _, _, err := new(keyLog).position(s, nil); err == nil {
		t.Error("a position without keys")
	}
}

func sockets(t testing.TB) (dialed, accepted net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if dialed, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialed.Close(); accepted.Close() })
	return dialed, accepted
}

// TestSendFile checks that files take sendfile, which the bytes do not show.
func TestSendFile(t *testing.T) {
	if err := available(); err != nil {
		t.Skipf("needs the kernel's TLS (CONFIG_TLS): %v", err)
	}
	dialed, accepted := sockets(t)
	s := Server(accepted, &Config{TLS: &tls.Config{Certificates: []tls.Certificate{TestCertificate()}}})
	c := tls.Client(dialed, &tls.Config{InsecureSkipVerify: true})
	go c.Handshake()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(10_000); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ limit, want int64 }{{6000, 6000}, {math.MaxInt64, 4000}} {
		n, handled, err := s.sendFile(fileOf(f), step.limit)
		if n != step.want || !handled || err != nil {
			t.Errorf("sendFile: %d, %t, %v", n, handled, err)
		}
		if _, err := io.ReadFull(c, make([]byte, n)); err != nil { // all has left the kernel
			t.Error(err)
		}
	}
}

// BenchmarkReadFrom sends a file of 8 MiB from the page cache to a peer that discards what it
// receives without decrypting it.
func BenchmarkReadFrom(b *testing.B) {
	const size = 8 << 20
	f, err := os.Create(filepath.Join(b.TempDir(), "file"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"kernel", "crypto/tls"} {
		b.Run(name, func(b *testing.B) {
			if err := available(); err != nil && name == "kernel" {
				b.Skipf("needs the kernel's TLS (CONFIG_TLS): %v", err)
			}
			dialed, accepted := sockets(b)
			var writes countedWrites
			if name != "kernel" {
				writes.Conn = accepted
				accepted = &writes
			}
			s := Server(accepted, &Config{TLS: &tls.Config{Certificates: []tls.Certificate{TestCertificate()}}})
			c := tls.Client(dialed, &tls.Config{InsecureSkipVerify: true})
			go func() {
				if c.Handshake() == nil {
					_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{dialed}, make([]byte, 1<<20))
				}
			}()
			if err := s.Handshake(); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.Seek(0, io.SeekStart); err != nil {
					b.Fatal(err)
				}
				if n, err := s.ReadFrom(f); n != size || err != nil {
					b.Fatal(n, err)
				}
			}
			if name != "kernel" {
				b.ReportMetric(float64(writes.n)/float64(b.N)/(size>>20), "writes/MiB")
			}
		})
	}
}

// countedWrites counts the writes of crypto/tls, and hides the descriptor.
type countedWrites struct {
	net.Conn
	n int
}

func (c *countedWrites) Write(p []byte) (int, error) {
	c.n++
	return c.Conn.Write(p)
}

// TestKernelRefuses passes a cipher to the kernel that it does not know, after its TLS is
// attached to the socket. crypto/tls goes on.
// Promise: unet/unet-ktls-sends
func TestKernelRefuses(t *testing.T) {
	if err := available(); err != nil {
		t.Skipf("needs the kernel's TLS (CONFIG_TLS): %v", err)
	}
	for id, s := range suites {
		defer func() { suites[id] = s }()
		changed := s
		changed.cipherType = 9999
		suites[id] = changed
	}
	dialed, accepted := sockets(t)
	server := tls.Server(accepted, &tls.Config{Certificates: []tls.Certificate{TestCertificate()}})
	c := Client(dialed, &Config{TLS: &tls.Config{InsecureSkipVerify: true}})
	go func() {
		_, _ = io.Copy(server, server)
		_ = server.Close()
	}()
	if _, err := c.Write([]byte("through crypto/tls")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 18)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "through crypto/tls" {
		t.Errorf("read %q, %v", got, err)
	}
	if name, reason := c.Backend(); name != "crypto/tls" || !strings.Contains(reason, "refused") {
		t.Errorf("backend %s, because %s", name, reason)
	}
	if err := c.CloseWrite(); err != nil {
		t.Error(err)
	}
	if _, err := c.Read(got); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
