// SPDX-License-Identifier: MIT

package ktls_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/unet/ktls"
)

// needTool returns the path of a program that judges.
func needTool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("needs %s (apt-get install %[1]s)", name)
	}
	return path
}

var ciphers = []string{"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}

// backendFor returns the backend of a connection with a cipher.
func (b bed) backendFor(cipher string) string {
	if strings.Contains(cipher, "CHACHA") {
		return "crypto/tls"
	}
	return b.name
}

// serve accepts a connection and passes it to f. The result of f is sent to the channel.
func (b bed) serve(t *testing.T, f func(c *ktls.Conn) error) (addr string, result chan error) {
	t.Helper()
	l, err := b.listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	result = make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			result <- err
			return
		}
		s := ktls.Server(b.below(c), &ktls.Config{TLS: serverConfig()})
		defer s.Close()
		result <- f(s)
	}()
	return l.Addr().String(), result
}

// TestOpenSSLReceives has openssl receive a file, with each cipher.
// Promise: unet/unet-ktls-sends
func TestOpenSSLReceives(t *testing.T) {
	openssl := needTool(t, "openssl")
	eachBed(t, func(t *testing.T, b bed) {
		want := random(size(8<<20) + 3)
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, cipher := range ciphers {
			addr, result := b.serve(t, func(c *ktls.Conn) error {
				f, err := os.Open(path)
				if err != nil {
					return err
				}
				defer f.Close()
				if _, err := c.ReadFrom(f); err != nil {
					return err
				}
				if name, reason := c.Backend(); name != b.backendFor(cipher) {
					t.Errorf("%s: backend %s, because %s", cipher, name, reason)
				}
				return c.CloseWrite()
			})
			cmd := exec.Command(openssl, "s_client", "-quiet", "-connect", addr, "-ciphersuites", cipher, "-servername", "localhost")
			cmd.Stdin = bytes.NewReader(nil)
			got, err := cmd.Output()
			if err != nil && !errors.As(err, new(*exec.ExitError)) {
				t.Fatal(err)
			}
			if err := <-result; err != nil {
				t.Errorf("%s: %v", cipher, err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s: openssl received %d bytes, which differ from the %d of the file", cipher, len(got), len(want))
			}
		}
	})
}

// TestOpenSSLKeyUpdate has openssl change its keys, and then ask for new ones.
// Promise: unet/unet-ktls-sends
func TestOpenSSLKeyUpdate(t *testing.T) {
	openssl := needTool(t, "openssl")
	eachBed(t, func(t *testing.T, b bed) {
		addr, result := b.serve(t, func(c *ktls.Conn) error {
			lines := bufio.NewScanner(c)
			for lines.Scan() {
				if _, err := c.Write([]byte("echo " + lines.Text() + "\n")); err != nil {
					return err
				}
			}
			return lines.Err()
		})
		cmd := exec.Command(openssl, "s_client", "-connect", addr)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, both, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		cmd.Stdout, cmd.Stderr = both, both
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		both.Close()
		lines, log := bufio.NewScanner(out), ""
		// say sends a line, and waits for another one: openssl drops what follows a
		// command in the same read.
		say := func(text, want string) bool {
			io.WriteString(in, text+"\n")
			for lines.Scan() {
				if log += lines.Text() + "\n"; lines.Text() == want {
					return true
				}
			}
			return false
		}
		if !say("one", "echo one") {
			t.Error("no answer")
		}
		// Change keys, do not ask.
		if !say("k", "KEYUPDATE") || !say("two", "echo two") {
			t.Error("no answer after the peer has changed its keys")
		}
		// Ask for new keys.
		answered := say("K", "KEYUPDATE") && say("three", "echo three")
		in.Close()
		for lines.Scan() {
			log += lines.Text() + "\n"
		}
		cmd.Wait()
		err = <-result
		if b.name == "crypto/tls" {
			if err != nil || !answered {
				t.Errorf("answered %t, %v", answered, err)
			}
			return
		}
		if answered || !errors.Is(err, ktls.ErrKeyUpdate) {
			t.Errorf("answered %t, %v; want ErrKeyUpdate", answered, err)
		}
		if !strings.Contains(log, "alert internal error") {
			t.Errorf("openssl got no alert:\n%s", log)
		}
	})
}

// TestCurl downloads a large file by curl, twice on one connection.
// Promise: unet/unet-ktls-sends
func TestCurl(t *testing.T) {
	curl := needTool(t, "curl")
	eachBed(t, func(t *testing.T, b bed) {
		dir := t.TempDir()
		want := random(size(4<<20) + 5)
		if err := os.WriteFile(filepath.Join(dir, "file"), want, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := b.listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.FileServer(http.Dir(dir))}
		served := make(chan error, 1)
		go func() {
			served <- server.Serve(ktls.NewListener(belowListener{l, b}, &ktls.Config{TLS: serverConfig()}))
		}()
		url := "https://" + l.Addr().(*net.TCPAddr).String() + "/file"
		for i, cipher := range ciphers {
			if i != 1 && testing.Short() { // an emulated machine takes seconds to start curl
				continue
			}
			got, err := exec.Command(curl, "-s", "-S", "-k", "--tls13-ciphers", cipher, "--tlsv1.3", url, url).CombinedOutput()
			if err != nil || !bytes.Equal(got, append(bytes.Clone(want), want...)) {
				t.Errorf("%s: %d bytes, %v: %.200s", cipher, len(got), err, got)
			}
		}
		server.Close()
		<-served
	})
}
