// SPDX-License-Identifier: MIT

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestQueries creates, fills, reads, imports and deletes databases by the command, on the leader and on another node.
//
// Promise: replica/command-queries
func TestQueries(t *testing.T) {
	place := t.TempDir()
	dirs, addrs := map[string]string{}, freeAddresses(t, "a", "b", "c", "web")
	var peers []string
	for _, id := range []string{"a", "b", "c"} {
		dirs[id] = filepath.Join(place, id)
		peers = append(peers, id+"="+addrs[id])
	}
	for id, dir := range dirs {
		args := []string{"-id", id, "-dir", dir, "-listen", addrs[id], "-peers", strings.Join(peers, ","), "-election", "3s"}
		if id == "a" {
			args = append(args, "-metrics", addrs["web"], "-backup", filepath.Join(place, "target"))
		}
		node(t, args...)
	}
	lead := func() string { return leader(t, dirs) }
	other := func() string {
		if lead() == dirs["a"] {
			return dirs["b"]
		}
		return dirs["a"]
	}
	ok := func(want string, dir func() string, args ...string) {
		t.Helper()
		if code, out, errs := at(t, dir, args...); code != exitOK || out != want {
			t.Errorf("%q: %d, %q, %s; want %q", args, code, out, errs, want)
		}
	}
	fails := func(want string, dir func() string, args ...string) {
		t.Helper()
		if code, _, errs := at(t, dir, args...); code != exitFailure || !strings.Contains(errs, want) {
			t.Errorf("%q: %d, %s; want %q", args, code, errs, want)
		}
	}
	ok("", lead, "create", "one")
	fails("already exists", lead, "create", "one")
	fails("is not the leader", other, "create", "two")
	eventually(t, "the other node has the database", func() error {
		if _, out, _ := at(t, other, "list"); out != "one\n" {
			return errors.New(out)
		}
		return nil
	})
	ok("2 rows changed\n", other, "exec", "one", "CREATE TABLE t(x, y); INSERT INTO t VALUES(9007199254740993, 'a'), (NULL, x'00ff')")
	ok("x                 y\n9007199254740993  a\nNULL              x'00ff'\n", other, "query", "one", "SELECT * FROM t")
	ok("count(*)\n2\n", other, "query", "-stale", "0s", "one", "SELECT count(*) FROM t")
	ok("{\n\t\"columns\": [\n\t\t\"y\"\n\t],\n\t\"rows\": []\n}\n", lead, "query", "-json", "one", "SELECT y FROM t WHERE y='b'")
	fails("no such table", lead, "query", "one", "SELECT * FROM missing")
	fails("no database", lead, "exec", "missing", "CREATE TABLE t(x)")
	fails("other files", other, "exec", "one", "ATTACH '"+place+"/x' AS x")
	ok("", lead, "import", "copy", filepath.Join(lead(), "data", "one"))
	ok("count(*)\n2\n", lead, "query", "copy", "SELECT count(*) FROM t")
	ok("", lead, "delete", "copy")
	ok("[\n\t\"one\"\n]\n", lead, "list", "-json")
	fails("is not a member", lead, "remove", "nobody")
	fails("see -timeout", lead, "query", "-timeout", "1ns", "one", "SELECT 1")

	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 200, "/debug/vars": 200, "/": 404, "/health": 404, "/metrics/x": 404} {
		var p []byte
		eventually(t, "the node is ready", func() error { // in an election it is not
			r, err := http.Get("http://" + addrs["web"] + path)
			if err != nil {
				return err
			}
			p, err = io.ReadAll(r.Body)
			r.Body.Close()
			if err != nil || r.StatusCode != want {
				return fmt.Errorf("%s: %d instead of %d: %s", path, r.StatusCode, want, p)
			}
			return nil
		})
		for _, name := range []string{"term ", "lag_entries ", "fetched_total ", "uncertain_total ", "leader_silence_seconds ", "backup_lag_seconds ", "backup_active "} {
			if path == "/metrics" && !strings.Contains(string(p), "\nringside_replica_"+name) {
				t.Errorf("%s has no %s", path, name)
			}
		}
	}
}

// TestRecoverCommand: without -yes it says what is lost, and changes nothing.
//
// Promise: replica/recover
func TestRecoverCommand(t *testing.T) {
	dir, addrs := t.TempDir(), freeAddresses(t, "a")
	args := []string{"-id", "a", "-dir", dir, "-listen", addrs["a"]}
	stop := node(t, append(args, "-peers", "a="+addrs["a"])...)
	leader(t, map[string]string{"a": dir})
	before := status(t, dir).Cluster
	stop()
	if code, out, errs := command(append([]string{"recover"}, args...)...); code != exitFailure || !strings.Contains(out, "LOST") || !strings.Contains(errs, "-yes") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, out, errs := command(append([]string{"recover", "-yes"}, args...)...); code != exitOK || !strings.Contains(out, "the only member") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	node(t, args...)
	leader(t, map[string]string{"a": dir})
	if after := status(t, dir).Cluster; after == before {
		t.Error("the cluster has no new identity")
	}
}

// issue writes a certificate for a name, of an authority of its own, into files.
func issue(t *testing.T, dir, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: der}, "ca": {Type: "CERTIFICATE", Bytes: der}, "key": {Type: "EC PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCertificatesAreRenewed: certificates and their authority are read again when the files have changed, by both
// sides of a connection. Files that cannot be used change nothing.
//
// Promise: replica/command-queries
func TestCertificatesAreRenewed(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	issue(t, dir, "first")
	config, err := tlsConfig(in("cert"), in("key"), in("ca"))
	if err != nil {
		t.Fatal(err)
	}
	meet := func() (names [2]string, err error) {
		near, far := net.Pipe() // without a buffer: both ends may write when one of them refuses the other
		defer near.Close()
		defer far.Close()
		_ = near.SetDeadline(time.Now().Add(5 * time.Second))
		_ = far.SetDeadline(time.Now().Add(5 * time.Second))
		server := tls.Server(far, config)
		done := make(chan error, 1)
		go func() { done <- server.Handshake() }()
		c := config.Clone()
		c.ServerName = "127.0.0.1"
		client := tls.Client(near, c)
		if err := errors.Join(client.Handshake(), <-done); err != nil {
			return names, err
		}
		return [2]string{client.ConnectionState().PeerCertificates[0].Subject.CommonName, server.ConnectionState().PeerCertificates[0].Subject.CommonName}, nil
	}
	expect := func(want string) {
		t.Helper()
		eventually(t, "the certificate is "+want, func() error {
			names, err := meet()
			if err == nil && names != [2]string{want, want} {
				err = errors.New(strings.Join(names[:], " "))
			}
			return err
		})
	}
	expect("first")
	issue(t, dir, "the second one")
	expect("the second one")
	if err := os.WriteFile(in("cert"), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	time.Sleep(recheck) // the files are looked at again
	expect("the second one")
}
