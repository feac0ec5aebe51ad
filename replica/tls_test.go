// SPDX-License-Identifier: MIT

package replica

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"
)

// certificates returns a configuration for nodes on loopback that verify each other.
func certificates(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	must(t, err)
	parsed, err := x509.ParseCertificate(der)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, RootCAs: pool, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}
}

// TestTLS: nodes with certificates replicate, and a client without one is refused.
func TestTLS(t *testing.T) {
	config := certificates(t)
	c := newCluster(t, 3, Options{TLS: config})
	leader := c.leader()
	execAll(t, open(t, leader, "db"), "CREATE TABLE t(x)", "INSERT INTO t VALUES(1)")
	c.judge()
	for what, stranger := range map[string]*tls.Config{"plain text": nil, "no certificate": {RootCAs: config.RootCAs}, "another authority": certificates(t)} {
		w := &wire{node: &Node{opts: Options{ID: "a", TLS: stranger}, closing: t.Context()}, address: c.addrs["a"]}
		ctx, cancel := contextFor(t)
		if conn, err := w.dial(ctx, c.followers()[0].Address(), kindRequest); err == nil {
			conn.Close()
			t.Errorf("%s: the stranger was let in", what)
		}
		cancel()
	}
	o := c.options("x")
	o.Peers, o.Dir, o.Listen = nil, t.TempDir(), "127.0.0.1:0"
	o.TLS = &tls.Config{}
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "RequireAndVerifyClientCert") {
		t.Errorf("TLS without certificates of clients: %v", err)
	}
}
