// SPDX-License-Identifier: MIT

package ktls

import (
	"bytes"
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// wire is the connection between crypto/tls and the socket. During the handshake it keeps
// what crypto/tls sends. After the kernel was given the keys, it decrypts the records that
// crypto/tls sends on its own, and sends their content through the kernel.
type wire struct {
	net.Conn

	mu      sync.Mutex // of sending by crypto/tls, and of handOver
	sent    []byte     // during the handshake
	keys    keyLog     // likewise
	raw     syscall.RawConn
	own     *trafficKey // by which crypto/tls encrypts its records; nil unless the kernel sends
	seq     uint64      // of its next record
	aborted bool        // a fatal alert ended the connection

	refused atomic.Bool // the peer's KeyUpdate was refused
}

// below returns a copy of a ClientHelloInfo for the program's callbacks.
func (w *wire) below(hello *tls.ClientHelloInfo) *tls.ClientHelloInfo {
	own := *hello
	own.Conn = w.Conn
	return &own
}

// Write is called by crypto/tls with whole records.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.own != nil {
		return len(p), w.forward(p)
	}
	if w.keys.ended {
		return w.Conn.Write(p)
	}
	n, err := w.Conn.Write(p)
	w.sent = append(w.sent, p[:n]...)
	return n, err
}

// handOver passes the keys for sending to the kernel. If it returns an error, crypto/tls
// goes on.
func (w *wire) handOver(state tls.ConnectionState) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.sent, w.keys.handshake, w.keys.traffic, w.keys.ended = nil, nil, nil, true }()
	if err := available(); err != nil {
		return err
	}
	if state.Version != tls.VersionTLS13 {
		return fmt.Errorf("%s was negotiated; only TLS 1.3 is passed to the kernel", tls.VersionName(state.Version))
	}
	suite, ok := suites[state.CipherSuite]
	if !ok {
		return fmt.Errorf("%s was negotiated; only AES-GCM is passed to the kernel", tls.CipherSuiteName(state.CipherSuite))
	}
	socket, ok := w.Conn.(syscall.Conn)
	if !ok {
		return fmt.Errorf("a %T gives no access to its descriptor", w.Conn)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	key, seq, err := w.keys.position(suite, w.sent)
	if err != nil {
		return err
	}
	var refused error
	err = raw.Control(func(fd uintptr) {
		if errno := sys.SockTLS(int(fd)); errno != 0 {
			refused = noKernelTLS(errno)
		} else if errno := sys.SockTLSSend(int(fd), key.info(seq)); errno != 0 {
			refused = fmt.Errorf("the kernel refused %s: %w", tls.CipherSuiteName(state.CipherSuite), errno)
		}
	})
	if err = errors.Join(err, refused); err != nil {
		return err
	}
	w.raw, w.own, w.seq = raw, key, seq
	return nil
}

// Types of records, and of the message KeyUpdate.
const (
	recordAlert     = 21
	recordHandshake = 22
	recordData      = 23
	keyUpdate       = 24
)

// forward sends the content of records through the kernel. crypto/tls sends alerts, and on
// a KeyUpdate its own.
func (w *wire) forward(p []byte) error {
	for len(p) > 0 {
		record, rest, err := cutRecord(p)
		if err != nil {
			return err
		}
		p = rest
		content, err := w.own.open(record, w.seq)
		if err != nil {
			return fmt.Errorf("ktls: a record of crypto/tls cannot be read: %w", err)
		}
		w.seq++
		content = bytes.TrimRight(content, "\x00") // padding
		if len(content) == 0 {
			return errors.New("ktls: a record of crypto/tls is empty")
		}
		typ, content := content[len(content)-1], content[:len(content)-1]
		switch {
		case typ == recordHandshake && len(content) > 0 && content[0] == keyUpdate:
			// The kernel keeps its key: the message is not sent. crypto/tls uses its next
			// keys from now on, for both directions.
			w.refused.Store(true)
			if w.own, err = w.own.next(); err != nil {
				return err
			}
			w.seq = 0
		case w.aborted: // only the first fatal alert counts
		default:
			if err := w.sendRecord(typ, content); err != nil {
				return err
			}
		}
	}
	return nil
}

// abort sends a fatal alert, once.
func (w *wire) abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.aborted {
		w.aborted = true
		_ = w.sendRecord(recordAlert, []byte{2, 80}) // internal_error; the caller returns the cause
	}
}

// sendRecord sends a record that is not application data, which the kernel encrypts.
func (w *wire) sendRecord(typ byte, p []byte) error {
	var errno syscall.Errno
	err := w.raw.Write(func(fd uintptr) bool {
		for {
			errno = sys.SockTLSRecord(int(fd), typ, p)
			if errno != syscall.EINTR {
				return errno != syscall.EAGAIN
			}
		}
	})
	if err == nil && errno != 0 {
		err = &net.OpError{Op: "write", Net: w.LocalAddr().Network(), Source: w.LocalAddr(), Addr: w.RemoteAddr(),
			Err: os.NewSyscallError("sendmsg", errno)}
	}
	return err
}

// keyLog receives the secrets of a connection from crypto/tls, which writes them in NSS's
// format: label, client random, secret.
type keyLog struct {
	next               io.Writer // the program's
	client             bool
	ended              bool   // secrets are no longer kept
	handshake, traffic []byte // for sending
}

// logKeys has crypto/tls write the secrets of a connection to its wire.
func (w *wire) logKeys(config *tls.Config) {
	w.keys.next = config.KeyLogWriter
	config.KeyLogWriter = &w.keys
}

// Write implements io.Writer. It is called by the handshake only.
func (k *keyLog) Write(line []byte) (int, error) {
	f := bytes.Fields(line)
	if len(f) == 3 {
		secret := make([]byte, hex.DecodedLen(len(f[2])))
		if _, err := hex.Decode(secret, f[2]); err == nil {
			k.keep(string(f[0]), secret)
		}
	}
	if k.next != nil {
		return k.next.Write(line)
	}
	return len(line), nil
}

// keep takes the secrets with which this side sends from the lines of crypto/tls's key log.
func (k *keyLog) keep(label string, secret []byte) {
	own := "SERVER_"
	if k.client {
		own = "CLIENT_"
	}
	switch label {
	case own + "HANDSHAKE_TRAFFIC_SECRET":
		k.handshake = secret
	case own + "TRAFFIC_SECRET_0":
		k.traffic = secret
	}
}

// position returns the key for sending and the number of records that were sent with it.
// Each encrypted record of the handshake is opened, first with the handshake's key, then
// with that one: a server may have sent session tickets with it. A record that neither opens
// is an error.
func (k *keyLog) position(s suite, sent []byte) (*trafficKey, uint64, error) {
	if k.handshake == nil || k.traffic == nil {
		return nil, 0, errors.New("crypto/tls did not log its keys")
	}
	before, err := s.derive(k.handshake)
	if err != nil {
		return nil, 0, err
	}
	key, err := s.derive(k.traffic)
	if err != nil {
		return nil, 0, err
	}
	var handshake, traffic uint64
	for len(sent) > 0 {
		record, rest, err := cutRecord(sent)
		if err != nil {
			return nil, 0, err
		}
		sent = rest
		if record[0] != recordData {
			continue // hello, change_cipher_spec
		}
		if traffic == 0 {
			if _, err := before.open(record, handshake); err == nil {
				handshake++
				continue
			}
		}
		if _, err := key.open(record, traffic); err != nil {
			return nil, 0, errors.New("a record of the handshake was encrypted with an unknown key")
		}
		traffic++
	}
	if handshake == 0 {
		return nil, 0, errors.New("the handshake has no encrypted record")
	}
	return key, traffic, nil
}

// headLen is the length of a record's header: type, version, length.
const headLen = 5

func cutRecord(p []byte) (record, rest []byte, err error) {
	if len(p) >= headLen {
		if end := headLen + int(binary.BigEndian.Uint16(p[3:])); end <= len(p) {
			return p[:end], p[end:], nil
		}
	}
	return nil, nil, errors.New("ktls: crypto/tls sent a part of a record")
}

// suite is a cipher suite of TLS 1.3 that the kernel and this package know.
type suite struct {
	cipherType uint16 // TLS_CIPHER_AES_GCM_128, TLS_CIPHER_AES_GCM_256
	keyLen     int
	hash       crypto.Hash
}

var suites = map[uint16]suite{
	tls.TLS_AES_128_GCM_SHA256: {51, 16, crypto.SHA256},
	tls.TLS_AES_256_GCM_SHA384: {52, 32, crypto.SHA384},
}

func (s suite) new() hash.Hash {
	if s.hash == crypto.SHA384 {
		return sha512.New384()
	}
	return sha256.New()
}

// trafficKey encrypts records.
type trafficKey struct {
	suite
	secret  []byte
	key, iv []byte
	aead    cipher.AEAD
}

// derive returns the key of a secret (RFC 8446, 7.3).
func (s suite) derive(secret []byte) (*trafficKey, error) {
	k := &trafficKey{suite: s, secret: secret}
	var err error
	if k.key, err = s.expand(secret, "key", s.keyLen); err != nil {
		return nil, err
	}
	if k.iv, err = s.expand(secret, "iv", 12); err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(k.key)
	if err != nil {
		return nil, err
	}
	k.aead, err = cipher.NewGCM(block)
	return k, err
}

// next returns the key after a KeyUpdate (RFC 8446, 7.2).
func (k *trafficKey) next() (*trafficKey, error) {
	secret, err := k.expand(k.secret, "traffic upd", k.hash.Size())
	if err != nil {
		return nil, err
	}
	return k.derive(secret)
}

// expand is HKDF-Expand-Label with an empty context.
func (s suite) expand(secret []byte, label string, n int) ([]byte, error) {
	label = "tls13 " + label
	info := binary.BigEndian.AppendUint16(nil, uint16(n))
	info = append(info, byte(len(label)))
	info = append(info, label...)
	info = append(info, 0)
	return hkdf.Expand(s.new, secret, string(info), n)
}

// open decrypts a record with a sequence number. The type follows the content.
func (k *trafficKey) open(record []byte, seq uint64) ([]byte, error) {
	nonce := bytes.Clone(k.iv)
	for i := range 8 {
		nonce[4+i] ^= byte(seq >> (56 - 8*i))
	}
	return k.aead.Open(nil, nonce, record[headLen:], record[:headLen])
}

// info returns struct tls12_crypto_info of the cipher for the kernel: version, cipher, the
// last eight bytes of the IV, key, the first four, and the next sequence number.
func (k *trafficKey) info(seq uint64) []byte {
	b := binary.NativeEndian.AppendUint16(nil, tls.VersionTLS13)
	b = binary.NativeEndian.AppendUint16(b, k.cipherType)
	b = append(b, k.iv[4:]...)
	b = append(b, k.key...)
	b = append(b, k.iv[:4]...)
	return binary.BigEndian.AppendUint64(b, seq)
}
