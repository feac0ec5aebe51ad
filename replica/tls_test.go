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

// authority issues certificates for nodes on loopback.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	must(t, err)
	a := &authority{t: t, key: key}
	a.cert, err = x509.ParseCertificate(der)
	must(t, err)
	return a
}

// issue returns a configuration with a certificate for names.
func (a *authority) issue(names ...string) *tls.Config {
	a.t.Helper()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, a.key.Public(), a.key)
	must(a.t, err)
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: a.key}}, RootCAs: pool, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}
}

// TestTLS: nodes with certificates replicate. A client without one is refused, and one whose certificate is
// for another name: it is no member, whatever it says.
// Promise: replica/unauthorised-peers-refused
func TestTLS(t *testing.T) {
	a := newAuthority(t)
	config := a.issue("a", "b", "c")
	c := newCluster(t, 3, Options{TLS: config})
	leader := c.leader()
	execAll(t, open(t, leader, "db"), "CREATE TABLE t(x)", "INSERT INTO t VALUES(1)")
	c.judge()
	followers := c.followers()
	to, from := followers[0], followers[1]
	for what, stranger := range map[string]*tls.Config{"plain text": nil, "no certificate": {RootCAs: config.RootCAs},
		"another authority": newAuthority(t).issue("a", "b", "c"), "another name": a.issue("x")} {
		for _, kind := range []string{kindRaft, kindRequest, kindFetch, kindForward, kindTerm} {
			n := &Node{opts: Options{ID: from.ID(), TLS: stranger}, life: life{closing: t.Context()}}
			n.membership.directory = from.membership.directory
			w := &wire{node: n, address: c.addrs[from.ID()]}
			n.wire = w
			ctx, cancel := contextFor(t)
			if conn, err := w.dial(ctx, peer{to.ID(), to.Address()}, kind); err == nil {
				conn.Close()
				t.Errorf("%s, %s: the stranger was let in", what, kind)
			}
			cancel()
		}
	}
	// The one that answers has to show a certificate with its name, too.
	c.stop(from.ID())
	o := c.options(from.ID())
	o.TLS = a.issue("x")
	c.open(o)
	ctx, cancel := contextFor(t)
	defer cancel()
	if conn, err := to.wire.dial(ctx, peer{from.ID(), from.Address()}, kindRaft); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a member with a certificate for another name: %v, %v", conn, err)
	}
	o = c.options("x")
	o.Peers, o.Dir, o.Listen = nil, t.TempDir(), "127.0.0.1:0"
	o.TLS = &tls.Config{}
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "RequireAndVerifyClientCert") {
		t.Errorf("TLS without certificates of clients: %v", err)
	}
}
