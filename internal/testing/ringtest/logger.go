// SPDX-License-Identifier: MIT

package ringtest

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Logger returns a logger for a test and a function that waits for a line with the
// text. Lines are written by any goroutine; the first hundred are kept.
func Logger(t testing.TB) (logger *slog.Logger, await func(text string)) {
	lines := make(lineWriter, 100)
	return slog.New(slog.NewTextHandler(lines, nil)), func(text string) {
		t.Helper()
		end := time.After(Patience)
		for {
			select {
			case line := <-lines:
				if strings.Contains(line, text) {
					return
				}
			case <-end:
				t.Errorf("nothing was logged with %q", text)
				return
			}
		}
	}
}

type lineWriter chan string

// Write implements io.Writer.
func (w lineWriter) Write(p []byte) (int, error) {
	select {
	case w <- string(p):
	default:
	}
	return len(p), nil
}
