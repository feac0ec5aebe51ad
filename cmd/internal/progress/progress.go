// SPDX-License-Identifier: MIT

// Package progress shows how far a run is, on a terminal only.
package progress

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// refresh is slow enough not to disturb what is measured meanwhile.
const refresh = 250 * time.Millisecond

// Bar shows one task after the other on one line. A nil *Bar shows nothing; all its methods work.
type Bar struct {
	out  *mpb.Progress
	bar  *mpb.Bar
	note atomic.Pointer[string]
}

// New returns a bar that draws on w, which must be a terminal.
func New(w io.Writer) *Bar {
	return &Bar{out: mpb.New(mpb.WithOutput(w), mpb.WithWidth(80), mpb.WithRefreshRate(refresh), mpb.WithAutoRefresh())}
}

// Start begins a task of total steps. A task that has not ended is removed from the screen.
func (b *Bar) Start(total int64, note string) {
	if b == nil {
		return
	}
	b.drop()
	b.Note("%s", note)
	b.bar = b.out.AddBar(total,
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return *b.note.Load() }, decor.WCSyncSpaceR)),
		mpb.AppendDecorators(
			decor.Percentage(decor.WC{W: 5}),
			decor.Name(" "),
			decor.AverageETA(decor.ET_STYLE_MMSS, decor.WC{W: 5}),
			decor.Name(" left"),
		),
	)
}

// Note changes the words beside the bar.
func (b *Bar) Note(format string, args ...any) {
	if b == nil {
		return
	}
	text := fmt.Sprintf(format, args...)
	b.note.Store(&text)
}

// Add tells that n more steps are done.
func (b *Bar) Add(n int64) {
	if b != nil && b.bar != nil {
		b.bar.IncrInt64(n)
	}
}

// Close removes the bar and waits until the screen is quiet. The bar cannot be used again.
func (b *Bar) Close() {
	if b == nil {
		return
	}
	b.drop()
	b.out.Wait()
}

func (b *Bar) drop() {
	if b.bar != nil {
		b.bar.Abort(true)
		b.bar.Wait()
		b.bar = nil
	}
}
