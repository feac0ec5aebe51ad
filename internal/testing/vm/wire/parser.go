// SPDX-License-Identifier: MIT

package wire

import (
	"bytes"
	"encoding/json"
)

// maxHeld bounds how much of one line the parser keeps while it may still
// turn out to be a marker; a longer line is output.
const maxHeld = 64 << 10

// Parser parses the stream of a Writer. It removes the carriage returns that a serial
// line adds. It is not safe for concurrent use.
type Parser struct {
	prefix   []byte
	onEvent  func(Event)
	onOutput func([]byte)

	held   []byte // the current line as long as it may be a marker
	inLine bool   // the current line is output, part of it already passed on
	cr     bool   // a carriage return came last and is not passed on yet
}

// NewParser returns a parser for markers that carry the nonce. onEvent gets
// every marker, onOutput everything else; the slice is valid for the call only.
func NewParser(nonce string, onEvent func(Event), onOutput func([]byte)) *Parser {
	return &Parser{prefix: prefix(nonce), onEvent: onEvent, onOutput: onOutput}
}

// Write takes the next bytes of the stream. It never fails.
func (p *Parser) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			p.partial(p.uncarriage(b, false))
			break
		}
		p.line(p.uncarriage(b[:end], true))
		b = b[end+1:]
	}
	return n, nil
}

// Close passes on the rest of an unfinished line.
func (p *Parser) Close() error {
	rest := p.held
	if p.cr {
		rest = append(rest, '\r')
	}
	p.held, p.cr, p.inLine = nil, false, false
	p.output(rest)
	return nil
}

// uncarriage removes the carriage return the line discipline put before a
// newline, which may have come with the previous bytes.
func (p *Parser) uncarriage(b []byte, lineEnd bool) []byte {
	if p.cr && (len(b) > 0 || !lineEnd) {
		b = append([]byte{'\r'}, b...)
	}
	p.cr = false
	if len(b) > 0 && b[len(b)-1] == '\r' {
		b = b[:len(b)-1]
		p.cr = !lineEnd
	}
	return b
}

// partial takes a piece of a line whose newline has not come.
func (p *Parser) partial(b []byte) {
	if p.inLine {
		p.output(b)
		return
	}
	p.held = append(p.held, b...)
	if len(p.held) <= maxHeld && p.mayBeMarker() {
		return
	}
	p.output(p.held)
	p.inLine = len(p.held) > 0
	p.held = p.held[:0]
}

func (p *Parser) mayBeMarker() bool {
	n := min(len(p.held), len(p.prefix))
	return bytes.Equal(p.held[:n], p.prefix[:n])
}

// line takes the rest of a line, without its newline.
func (p *Parser) line(b []byte) {
	if !p.inLine {
		b = append(p.held, b...)
		p.held = b[:0]
		if e, ok := p.marker(b); ok {
			p.onEvent(e)
			return
		}
	}
	p.inLine = false
	p.output(b)
	p.onOutput([]byte{'\n'})
}

func (p *Parser) marker(line []byte) (Event, bool) {
	body, ok := bytes.CutPrefix(line, p.prefix)
	if !ok || len(line) > maxHeld {
		return Event{}, false
	}
	var e Event
	if json.Unmarshal(body, &e) != nil || e.Kind == "" {
		return Event{}, false
	}
	return e, true
}

func (p *Parser) output(b []byte) {
	if len(b) > 0 {
		p.onOutput(b)
	}
}
