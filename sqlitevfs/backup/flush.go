// SPDX-License-Identifier: MIT

package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/superfly/ltx"
)

// stream is the end of a database's stream in the target. One goroutine at a time uses it.
type stream struct {
	known  bool // sums are those of transaction txid in the target
	txid   ltx.TXID
	sums   sums
	ready  *object // not yet in the target
	busy   bool    // a goroutine flushes; guarded by Backup.mu
	queued bool    // in the queue for a flush; guarded by Backup.mu
	again  bool    // the database was queued meanwhile; guarded by Backup.mu
	tries  int
	broken int // compactions that failed, one after the other

	done   uint64    // epoch up to which the target has the commits; guarded by Backup.mu
	stored uint64    // txid for Status; guarded by Backup.mu
	behind time.Time // of the oldest commit that the target lacks; guarded by Backup.mu
	last   time.Time // of the newest object; guarded by Backup.mu
	err    error     // of the last flush; guarded by Backup.mu
	levels uint      // bits of the queues for compaction; guarded by Backup.mu
}

// object is a file of a stream before it is in the target.
type object struct {
	File
	body   *io.SectionReader
	file   *os.File      // of body, if it is not in memory
	buffer *bytes.Buffer // of body, to be used again
	memo   int64         // bytes of memory
	since  time.Time
	epoch  uint64
	sums   func() // called when the object is in the target
}

// flush brings the commits of the database into the target.
func (d *database) flush(ctx context.Context) error {
	if err := d.b.own(ctx); err != nil { // before the target is read
		return err
	}
	if d.ready == nil {
		prepare := d.prepare
		if d.b.source != nil {
			prepare = d.prepareState
		}
		if err := prepare(ctx); err != nil || d.ready == nil {
			return err
		}
	}
	o := d.ready
	err := d.b.put(ctx, o.Object(d.name), io.NewSectionReader(o.body, 0, o.body.Size()), o.Time)
	if errors.Is(err, errConflict) { // of a Backup that is the owner no more: another state follows
		d.release()
		d.known = false
		if d.b.source == nil { // a former owner has stored the same of a source
			d.mu.Lock()
			d.lose(err)
			d.mu.Unlock()
		}
	}
	if err != nil {
		return err
	}
	d.release()
	d.txid, d.known = o.Max, true
	o.sums()
	d.b.stored(d, o)
	return nil
}

// release frees what the object that is ready holds.
func (d *database) release() {
	o := d.ready
	d.ready = nil
	d.b.memory.Add(-o.memo)
	o.discard()
	if o.buffer != nil {
		o.buffer.Reset()
		buffers.Put(o.buffer)
	}
}

// buffers are those of objects.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// prepare makes the next object. There is none if nothing has changed.
func (d *database) prepare(ctx context.Context) error {
	d.mu.Lock()
	d.waiting.Store(false) // a later commit begins a new turn
	d.takeFound()
	at := d.takeStamped()
	full := d.full
	since, epoch := d.flushing() // not of commits that come later
	d.mu.Unlock()
	d.b.begun(d, since)
	if !d.known {
		ok, err := d.connect(ctx)
		if err != nil {
			return err
		}
		full = full || !ok
	}
	if full {
		return d.prepareFull(since)
	}
	return d.prepareChanges(since, epoch, at)
}

// takeStamped takes the commits that are there, and returns the time of that. A Backup that starts does not compare a database
// that has not changed after that time: so looking again ends with a look that took less than clockStep, or the time is
// that before the last look. The caller holds the mutex.
func (d *database) takeStamped() (at time.Time) {
	for range 3 {
		at = stamp()
		d.take()
		if now := stamp(); now.Sub(at) < clockStep/2 {
			at = now
			break
		}
	}
	if begun := time.UnixMilli(d.begun.Load()).UTC(); d.writing.Load() && begun.Before(at) {
		return begun // all commits that were taken are older
	}
	return at
}

// takeFound takes the commits of the WAL that no connection has reported. The caller holds the mutex.
func (d *database) takeFound() {
	if d.adopted && d.end.Load() == 0 && d.cur.End == 0 {
		if err := d.takeAll(); err != nil {
			d.lose(err)
		}
	}
	d.adopted = false
}

// connect compares the state in which the database was found with the newest one in the target. It reports whether the
// pages that were taken continue that.
func (d *database) connect(ctx context.Context) (bool, error) {
	files, err := Files(ctx, d.b.target, d.name)
	if err != nil {
		return false, err
	}
	if d.txid = newest(files); d.txid == 0 { // there is nothing to compare
		d.baseState.CompareAndSwap(baseUnknown, baseLost)
		return false, nil
	}
	d.needBase()
	chain, err := plan(files)
	if err != nil {
		if errors.Is(err, ErrGap) {
			d.b.log.Warn("backup: a snapshot follows", "database", d.name, "error", err)
		}
		return false, nil
	}
	want, err := tail(ctx, d.b.target, d.name, chain[len(chain)-1])
	if err != nil && !errors.Is(err, ltx.ErrInvalidFile) {
		return false, err
	}
	d.baseMu.Lock()
	defer d.baseMu.Unlock()
	b := d.base
	d.base = nil
	if b == nil || err != nil {
		return false, nil
	}
	end, ok := b.match(want)
	if !ok {
		return false, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for n, i := range d.pages {
		if i.at != 0 && i.at <= end {
			delete(d.pages, n)
			d.b.memory.Add(-int64(len(i.data)))
		}
	}
	d.sums, d.known = b.sums, true
	return true, nil
}

// scratchPrefix begins the names of files in Options.Scratch.
const scratchPrefix = "ringside-backup-"

// scratch creates a file in Options.Scratch. Its name is removed at once, so that nothing is left of a process that is
// killed. Where the system refuses that, the name is removed after Close.
func (b *Backup) scratch() (*os.File, error) {
	f, err := os.CreateTemp(b.opts.Scratch, scratchPrefix+"*")
	if err == nil {
		os.Remove(f.Name())
	}
	return f, err
}

// prepareFull makes a snapshot. It has all transactions from the first one on.
func (d *database) prepareFull(since time.Time) error {
	s, err := d.snapshot()
	if err != nil {
		return err
	}
	defer s.file.Close()
	free := int64(len(s.changed) * s.page)
	defer func() { d.b.memory.Add(-free) }()
	if s.commit == 0 {
		d.b.finished(d, s.epoch)
		return nil // an empty database
	}
	o := &object{File: File{Level: levelSnapshot, Min: 1, Max: d.txid + 1, Time: s.at}, since: since, epoch: s.epoch}
	out, err := d.output(o, int64(s.commit)*int64(s.page))
	if err != nil {
		return err
	}
	all, err := encodeAll(out, o.header(s.page, s.commit, 0), s.each)
	o.sums = func() { d.sums = all }
	if err == nil {
		err = d.setReady(o, out)
	}
	if err != nil {
		o.discard()
		d.mu.Lock()
		d.lose(err)
		d.mu.Unlock()
	}
	return err
}

// output returns what an object of at most a number of bytes is written to.
func (d *database) output(o *object, size int64) (out io.Writer, err error) {
	if size <= maxMemory && d.b.memory.Load()+size <= d.b.opts.Memory {
		o.buffer = buffers.Get().(*bytes.Buffer)
		return o.buffer, nil
	}
	o.file, err = d.b.scratch()
	return o.file, err
}

// discard removes the file of an object.
func (o *object) discard() {
	if o.file != nil {
		o.file.Close()
		os.Remove(o.file.Name())
	}
}

// maxMemory is up to which size the snapshot of a database is made in memory, if Options.Memory has room for it.
const maxMemory = 8 << 20

func (d *database) setReady(o *object, out io.Writer) error {
	if buf, ok := out.(*bytes.Buffer); ok {
		o.memo = int64(buf.Len())
		o.body = io.NewSectionReader(bytes.NewReader(buf.Bytes()), 0, o.memo)
	} else {
		info, err := o.file.Stat()
		if err != nil {
			return err
		}
		o.body = io.NewSectionReader(o.file, 0, info.Size())
	}
	d.b.memory.Add(o.memo)
	o.Size = o.body.Size()
	d.ready = o
	return nil
}

// prepareChanges makes a file of the pages that were taken.
func (d *database) prepareChanges(since time.Time, epoch uint64, at time.Time) error {
	d.mu.Lock()
	pages, size, page := d.pages, d.size, d.page
	d.pages = make(map[uint32]image)
	d.mu.Unlock()
	defer func() {
		d.b.memory.Add(-int64(len(pages) * page))
		for _, i := range pages {
			freePage(i.data)
		}
	}()
	if size == 0 {
		size = uint32(len(d.sums.page))
	}
	for n := uint32(len(d.sums.page)) + 1; n <= size; n++ {
		if _, ok := pages[n]; !ok && n != ltx.LockPgno(uint32(page)) {
			return d.prepareFull(since) // SQLite does not write a page that is free
		}
	}
	before := d.sums.checksum()
	next := d.sums
	changed := make(map[uint32]uint64)
	for n, i := range pages {
		if sum := pageSum(n, i.data); n <= size && (int(n) > len(next.page) || next.page[n-1] != sum) {
			changed[n] = sum
		}
	}
	if len(changed) == 0 && int(size) == len(next.page) {
		d.b.finished(d, epoch)
		return nil
	}
	after := next.all
	for i := int(size); i < len(next.page); i++ {
		after ^= next.page[i]
	}
	for n, sum := range changed {
		if int(n) <= len(next.page) {
			after ^= next.page[n-1]
		}
		after ^= sum
	}
	o := &object{File: File{Min: d.txid + 1, Max: d.txid + 1, Time: at}, since: since, epoch: epoch}
	out := buffers.Get().(*bytes.Buffer)
	o.buffer = out
	err := encode(out, o.header(page, size, before), func(write func(uint32, []byte) error) (ltx.Checksum, error) {
		for _, n := range slices.Sorted(maps.Keys(changed)) {
			if err := write(n, pages[n].data); err != nil {
				return 0, err
			}
		}
		return ltx.ChecksumFlag | ltx.Checksum(after), nil
	})
	if err != nil {
		d.mu.Lock()
		d.lose(err)
		d.mu.Unlock()
		return err
	}
	o.sums = func() {
		for n, sum := range changed {
			d.sums.set(n, sum)
		}
		d.sums.resize(size)
		for int(size) > len(d.sums.page) {
			d.sums.set(size, 0)
		}
	}
	return d.setReady(o, out)
}

func stamp() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

func (f File) header(page int, size uint32, before ltx.Checksum) ltx.Header {
	h := ltx.Header{
		Version: ltx.Version, PageSize: uint32(page), Commit: size, MinTXID: f.Min, MaxTXID: f.Max,
		Timestamp: f.Time.UnixMilli(),
	}
	if f.Min > 1 {
		h.PreApplyChecksum = before
	}
	return h
}

// encodeAll writes a snapshot of the pages that each calls fn for, and returns their checksums.
func encodeAll(w io.Writer, h ltx.Header, each func(fn func(n uint32, p []byte) error) error) (all sums, err error) {
	err = encode(w, h, func(write func(uint32, []byte) error) (ltx.Checksum, error) {
		err := each(func(n uint32, p []byte) error {
			all.set(n, pageSum(n, p))
			return write(n, p)
		})
		return all.checksum(), err
	})
	return all, err
}

// encode writes a file. pages writes its pages in their order, and returns the checksum of the database.
func encode(w io.Writer, h ltx.Header, pages func(write func(n uint32, p []byte) error) (ltx.Checksum, error)) error {
	enc, err := ltx.NewEncoder(w)
	if err != nil {
		return err
	}
	if err := enc.EncodeHeader(h); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	sum, err := pages(func(n uint32, p []byte) error { return enc.EncodePage(ltx.PageHeader{Pgno: n}, p) })
	if err != nil {
		return errors.Join(err, enc.Cleanup())
	}
	enc.SetPostApplyChecksum(sum)
	return enc.Close()
}
