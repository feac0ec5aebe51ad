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
	// title stands before the notes, after is the time that follows this task.
	title string
	after atomic.Int64
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
			decor.Any(b.left(time.Now())),
		),
	)
}

// Part begins a part of a longer run. It sets the part's title, and how long the parts after it will
// take, which is added to the time left. A negative time is not known.
func (b *Bar) Part(title string, after time.Duration) {
	if b == nil {
		return
	}
	b.title = title
	b.after.Store(int64(after))
}

// Note changes the words beside the bar.
func (b *Bar) Note(format string, args ...any) {
	if b == nil {
		return
	}
	text := b.title + fmt.Sprintf(format, args...)
	b.note.Store(&text)
}

// left returns the time to the end of the task that began then, and of the parts after it.
func (b *Bar) left(began time.Time) func(decor.Statistics) string {
	return func(s decor.Statistics) string {
		if s.Current <= 0 {
			return "--:-- left"
		}
		d := time.Duration(float64(time.Since(began)) / float64(s.Current) * float64(max(s.Total-s.Current, 0)))
		text := clock(d) + " left"
		if after := time.Duration(b.after.Load()); after > 0 {
			text += ", " + clock(d+after) + " in all"
		}
		return text
	}
}

// clock writes minutes and seconds.
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
