// SPDX-License-Identifier: MIT

// Package progress shows the progress of a run on a terminal.
package progress

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// refresh is long enough not to disturb measurements.
const refresh = 250 * time.Millisecond

// Bar shows one task after another on one line. All methods of a nil *Bar work and do nothing.
type Bar struct {
	out  *mpb.Progress
	bar  *mpb.Bar
	note atomic.Pointer[string]
	// title precedes the notes. after is the expected time of the parts that follow the current
	// one.
	title string
	after atomic.Int64
	// until is when the current part ends, in nanoseconds since 1970, or 0.
	until atomic.Int64
}

// New returns a bar that draws on w, which must be a terminal.
func New(w io.Writer) *Bar {
	return &Bar{out: mpb.New(mpb.WithOutput(w), mpb.WithWidth(80), mpb.WithRefreshRate(refresh), mpb.WithAutoRefresh())}
}

// Start begins a task of total steps. It removes an unfinished task from the screen.
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
			decor.Any(b.left(time.Now())),
		),
	)
}

// Part begins a part of a longer run. It sets the part's title. after is the expected time of the
// following parts, and is added to the displayed time left. A negative value means that it is
// unknown.
func (b *Bar) Part(title string, after time.Duration) {
	if b == nil {
		return
	}
	b.title = title
	b.after.Store(int64(after))
	b.until.Store(0)
}

// Until sets when the part ends. Without it the time left is estimated from the steps done.
func (b *Bar) Until(end time.Time) {
	if b != nil {
		b.until.Store(end.UnixNano())
	}
}

// Note changes the text next to the bar.
func (b *Bar) Note(format string, args ...any) {
	if b == nil {
		return
	}
	text := b.title + fmt.Sprintf(format, args...)
	b.note.Store(&text)
}

// left returns a function that estimates the time to the end of the task that began at began, and
// of the parts after it.
func (b *Bar) left(began time.Time) func(decor.Statistics) string {
	return func(s decor.Statistics) string {
		after := max(time.Duration(b.after.Load()), 0)
		if until := b.until.Load(); until > 0 {
			return clock(max(time.Until(time.Unix(0, until)), 0)+after) + " left"
		}
		if s.Current <= 0 {
			return "--:-- left"
		}
		d := time.Duration(float64(time.Since(began)) / float64(s.Current) * float64(max(s.Total-s.Current, 0)))
		return clock(d+after) + " left"
	}
}

// clock formats minutes and seconds.
func clock(d time.Duration) string {
	d = d.Round(time.Second)
	return fmt.Sprintf("%02d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

// Add counts n more steps as done.
func (b *Bar) Add(n int64) {
	if b != nil && b.bar != nil {
		b.bar.IncrInt64(n)
	}
}

// Close removes the bar and waits until nothing more is drawn. The bar cannot be used again.
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
