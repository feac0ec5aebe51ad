// SPDX-License-Identifier: MIT

package echo

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/peers/nginx"
)

// TestFiles checks that each engine serves the same file.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f.jpg"), []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, engine := range []string{NameStd, NameConn, NamePlain, NameServe, NameServeNet, NameNginx} {
		t.Run(engine, func(t *testing.T) {
			s, err := Start(Setup{Engine: engine, Files: dir})
			if engine == NameNginx && (errors.Is(err, nginx.ErrMissing) || runtime.GOOS != "linux") || engine == NamePlain && runtime.GOOS != "linux" {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.Get("http://" + s.Addr() + "/f.jpg")
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(res.Body)
			res.Body.Close()
			if string(b) != "content" || err != nil || res.Header.Get("Content-Type") != "image/jpeg" {
				t.Errorf("%q %v, %v", b, res.Header, err)
			}
			http.DefaultClient.CloseIdleConnections()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, engine := range []string{NameServe, NameNginx, NameServeNet} {
		if _, err := Start(Setup{Engine: engine}); !errors.Is(err, errOnlyFiles) {
			t.Errorf("%s: %v", engine, err)
		}
	}
	if _, err := Start(Setup{Engine: NameEvent, Files: dir}); err == nil {
		t.Error("the echo server accepted files")
	}
}
