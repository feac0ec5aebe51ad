// SPDX-License-Identifier: MIT

package stress

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/ringside-io/ringside/ufile"
)

// fileVerbs are steps with files by their names.
var fileVerbs = []*verb{
	{"open", []string{"file", "path"}, 2, func(g *generator) []int { return []int{g.slot(), g.path()} }, (*worker).openStep},
	{"close", []string{"file"}, 1, func(g *generator) []int { return []int{g.slot()} }, (*worker).closeStep},
	{"read", []string{"file", "at", "n", "way", "after"}, 8, makeTransfer, (*worker).readStep},
	{"write", []string{"file", "at", "n", "way", "after"}, 6, makeTransfer, (*worker).writeStep},
	{"batch", []string{"file", "at", "n", "count", "write"}, 2, func(g *generator) []int {
		return []int{g.slot(), g.at(), 1 + g.IntN(2), 1 + g.IntN(24), g.IntN(2)}
	}, (*worker).batchStep},
	{"append", []string{"n"}, 1, func(g *generator) []int { return []int{g.bytes()} }, (*worker).appendStep},
	{"closeunder", []string{"file", "at", "n"}, 1, func(g *generator) []int {
		return []int{g.slot(), g.at(), g.blocks()}
	}, (*worker).closeUnderStep},
}

func makeTransfer(g *generator) []int {
	return []int{g.slot(), g.at(), g.blocks(), pick(g.Rand, wayPlain, wayPlain, wayContext), g.after()}
}

// opened is an open file with its model.
type opened struct {
	f      File
	path   int
	models *FileModel
}

// file returns the file in a slot, and opens one if the slot is empty.
func (a *worker) file(slot int) *opened {
	if a.files[slot] == nil {
		a.open(slot, (a.number+slot)%len(a.p.files))
	}
	return a.files[slot]
}

func (a *worker) open(slot, path int) {
	path %= len(a.p.files)
	f, err := a.p.w.OpenFile(path)
	a.done(1)
	if err != nil {
		a.refused("open", err)
		return
	}
	a.files[slot] = &opened{f, path, a.p.files[path]}
}

func (a *worker) closeFile(slot int) {
	if o := a.files[slot]; o != nil {
		a.files[slot] = nil
		a.check("close", o.f.Close())
		a.done(1)
	}
}

func (a *worker) openStep(x []int) {
	a.closeFile(x[0])
	a.open(x[0], x[1])
}

func (a *worker) closeStep(x []int) { a.closeFile(x[0]) }

func (a *worker) readStep(x []int) {
	if o := a.file(x[0]); o != nil {
		p := a.buffer(min(x[2], mostBlocks) * Block)
		a.read(o, p, x[1], x[3], x[4], false)
		a.let(p, a.err)
	}
}

func (a *worker) writeStep(x []int) {
	if o := a.file(x[0]); o != nil {
		p := a.buffer(min(x[2], mostBlocks) * Block)
		a.write(o, p, x[1], x[3], x[4], false)
		a.let(p, a.err)
	}
}

// stepContext returns the context of a step.
func stepContext(way, after int) (context.Context, func()) {
	if way == wayContext {
		return cancelled(after)
	}
	return nil, func() {}
}

// read reads into p and checks the bytes. closing means that the file may be
// closed meanwhile. It reports whether the file was closed.
func (a *worker) read(o *opened, p []byte, at, way, after int, closing bool) bool {
	first, n := o.models.Range(at, len(p)/Block)
	p = p[:n*Block]
	ctx, stop := stepContext(way, after)
	begin := o.models.BeginRead()
	var err error
	if ctx == nil {
		n, err = o.f.ReadAt(p, int64(first)*Block)
	} else {
		n, err = o.f.ReadAtContext(ctx, p, int64(first)*Block)
	}
	if wrong := o.models.EndRead(begin, first, p[:n]); wrong != nil {
		a.problem("file %d: %v", o.path, wrong)
	}
	stop()
	a.transferred(closing)
	return a.fileEnd(err, n == len(p), way, closing)
}

// write writes new content.
func (a *worker) write(o *opened, p []byte, at, way, after int, closing bool) bool {
	first, n := o.models.Range(at, len(p)/Block)
	p = p[:n*Block]
	ctx, stop := stepContext(way, after)
	stamp := o.models.BeginWrite(first, n)
	o.models.Fill(p, stamp, first)
	var err error
	var wrote int
	if ctx == nil {
		wrote, err = o.f.WriteAt(p, int64(first)*Block)
	} else {
		wrote, err = o.f.WriteAtContext(ctx, p, int64(first)*Block)
	}
	switch {
	case err == nil:
		o.models.EndWrite(stamp, first, n, n, 0)
	case !taken(err):
		o.models.EndWrite(stamp, first, n, 0, n)
	}
	stop()
	a.transferred(closing)
	return a.fileEnd(err, wrote == len(p), way, closing)
}

// transferred counts an operation. Operations that are repeated until a file is closed are
// not counted but pause instead: a simulated clock does not advance while a goroutine is
// busy.
func (a *worker) transferred(closing bool) {
	if closing {
		time.Sleep(time.Microsecond)
		return
	}
	a.done(1)
}

// fileEnd checks the error of a transfer, and reports whether the file was closed.
func (a *worker) fileEnd(err error, whole bool, way int, closing bool) bool {
	a.err = err
	switch {
	case err == nil && !whole:
		a.problem("a part, and no error")
	case err == nil:
	case closing && errors.Is(err, os.ErrClosed):
		return true
	case way == wayContext && errors.Is(err, errChanged):
	case a.p.w.Broken(err):
	case err == io.EOF, !a.p.w.Tolerates(err):
		a.problem("%v", err)
	}
	return false
}

// batchStep moves many ranges of a file at once.
func (a *worker) batchStep(x []int) {
	o := a.file(x[0])
	if o == nil {
		return
	}
	f, ok := o.f.(*ufile.File)
	if !ok {
		return
	}
	count := min(max(x[3], 1), 64)
	ranges := make([]ufile.Range, count)
	firsts, stamps := make([]int, count), make([]uint64, count)
	begin, n := o.models.BeginRead(), 0
	for i := range ranges {
		firsts[i], n = o.models.Range(x[1]+i*5, min(x[2], mostBlocks))
		p := make([]byte, n*Block)
		ranges[i] = ufile.Range{File: f, Buf: p, Off: int64(firsts[i]) * Block}
		if x[4] != 0 {
			stamps[i] = o.models.BeginWrite(firsts[i], n)
			o.models.Fill(p, stamps[i], firsts[i])
		}
	}
	_ = a.p.w.Batch(x[4] != 0, ranges) // each range has its own error
	for i, r := range ranges {
		if stamps[i] != 0 {
			sure := 0
			if r.Err == nil {
				sure = n
			}
			o.models.EndWrite(stamps[i], firsts[i], n, sure, n-sure)
		} else if wrong := o.models.judgeRead(begin, firsts[i], r.Buf[:r.N]); wrong != nil {
			a.problem("file %d: %v", o.path, wrong)
		}
		a.fileEnd(r.Err, r.N == len(r.Buf), wayPlain, false)
	}
	o.models.forget(begin)
	a.done(count)
}

// appendStep appends a record that names its worker.
func (a *worker) appendStep(x []int) {
	p := make([]byte, 8+x[0])
	binary.LittleEndian.PutUint32(p, uint32(a.number))
	binary.LittleEndian.PutUint32(p[4:], uint32(a.records))
	Bytes(p[8:], recordBytes(a.number, a.records))
	if err := a.p.w.Append(p); err != nil {
		a.problem("%v", err)
		return
	}
	a.done(1)
	a.records++
	a.p.mu.Lock()
	defer a.p.mu.Unlock()
	a.p.appended[a.number] = a.records
}

// closeUnderStep closes a file while other goroutines read and write it, and opens more
// files, which may get its number. Those files must not be read or written.
func (a *worker) closeUnderStep(x []int) {
	o := a.file(x[0])
	if o == nil {
		return
	}
	a.files[x[0]] = nil
	var users, begun sync.WaitGroup
	const many, busy = 3, 6
	gone := make(chan struct{})
	begun.Add(many)
	for i := range many {
		user := &worker{p: a.p, number: a.number, step: a.step}
		users.Go(func() {
			p := make([]byte, min(x[2], mostBlocks)*Block)
			use := user.read
			if i == 0 {
				use = user.write
			}
			signal := sync.OnceFunc(begun.Done)
			for range busy {
				closed := use(o, p, x[1]+i, wayPlain, 0, true)
				if signal(); closed {
					return
				}
				if taken(user.err) {
					p = make([]byte, len(p))
				}
			}
			if <-gone; !use(o, p, x[1]+i, wayPlain, 0, true) {
				user.problem("it began after Close, without an error")
			}
		})
	}
	begun.Wait()
	a.check("close", o.f.Close())
	close(gone)
	for i := range slots {
		if a.files[i] == nil {
			a.open(i, o.path+1+i)
		}
	}
	users.Wait()
	a.done(many)
}
