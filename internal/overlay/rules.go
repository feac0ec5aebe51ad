// SPDX-License-Identifier: MIT

package overlay

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"strings"
)

// patchPoll makes positional reads of files ask package ufile, and splice(2) from a socket to a file
// and sendfile(2) to a socket, which package os begins, ask package unet.
func (b *builder) patchPoll() error {
	p, err := b.open("internal/poll")
	if err != nil {
		return err
	}
	var errs []error
	if b.options.Files {
		errs = append(errs, b.patchReads(p))
	}
	if b.options.Sockets {
		errs = append(errs,
			p.addField("FD", "ringsideSocket RingsideSocket"),
			p.begin("", "Splice", "if src.ringsideSocket != nil { return src.ringsideSocket.RingsideSplice(dst, remain) }"),
			p.begin("", "SendFile", "if dstFD.ringsideSocket != nil { return ringsideSendFile(dstFD, src, size) }"),
			b.addHook("poll_sockets", "internal/poll/ringside_sockets.go"),
		)
	}
	return errors.Join(append(errs, p.write())...)
}

// patchReads makes positional reads of files ask package ufile.
func (b *builder) patchReads(p *pkg) error {
	const read = `
	if fd.isFile && RingsideOpen.Load() != nil {
		if n, ok, err := fd.ringsideRead(p, off); ok {
			fd.decref()
			return n, fd.eofError(n, err)
		}
	}
`
	return errors.Join(
		p.addField("FD", "ringside ringside"),
		p.after("FD", "Pread", "if err := fd.incref(); err != nil {\n\t\treturn 0, err\n\t}\n", read),
		p.begin("FD", "destroy", "\nfd.ringsideClose()\n"),
		b.addHook("poll", "internal/poll/ringside.go"),
	)
}

// patchOS makes package os open files through package ufile.
func (b *builder) patchOS() error {
	p, err := b.open("os")
	if err != nil {
		return err
	}
	p.keyLiterals("File", "file")
	p.keyLiterals("Root", "root")
	p.forward([]string{"File"}, "R != nil")
	p.forward([]string{"Root"}, "R != nil")
	const wrapNewFile = `if Ringside.Wrap != nil {
		f := StdNewFile(fd, name)
		if f == nil {
			return nil
		}
		return Ringside.Wrap(f)
	}`
	const wrapPipe = `if Ringside.Wrap != nil {
		r, w, err := StdPipe()
		if err != nil {
			return nil, nil, err
		}
		return Ringside.Wrap(r), Ringside.Wrap(w), nil
	}`
	return errors.Join(
		p.addField("File", "alt any // a *ufile.File"),
		p.addField("Root", "alt any // a *ufile.Root"),
		p.split("OpenFile", "if Ringside.OpenFile != nil { return Ringside.OpenFile(name, flag, perm) }"),
		p.split("OpenRoot", "if Ringside.OpenRoot != nil { return Ringside.OpenRoot(name) }"),
		p.split("NewFile", wrapNewFile),
		p.split("Pipe", wrapPipe),
		p.write(),
		b.addHook("os", "os/ringside.go"),
	)
}

// patchNet makes package net move data through package unet. Package net still creates,
// binds and connects a socket, as it does for unet. Then unet takes it over.
func (b *builder) patchNet() error {
	p, err := b.open("net")
	if err != nil {
		return err
	}
	p.keyLiterals("conn", "fd")
	p.forward([]string{"conn", "TCPConn", "UnixConn"}, "R.ok()", "TCPConn.SyscallConn", "UnixConn.SyscallConn", "TCPConn.WriteTo")
	p.forward([]string{"TCPListener", "UnixListener"}, "R.ok()",
		"TCPListener.Accept", "TCPListener.AcceptTCP", "UnixListener.Accept", "UnixListener.AcceptUnix")
	var errs []error
	for _, typ := range []string{"conn", "TCPListener", "UnixListener"} {
		errs = append(errs, p.addField(typ, "alt any // of package unet"))
	}
	for _, family := range []string{"TCP", "Unix"} {
		for _, name := range []string{"Accept", "Accept" + family} {
			errs = append(errs, p.acceptFrom(family+"Listener", name, "ringsideAccept"+family))
		}
	}
	errs = append(errs,
		p.wrapReturns("newTCPConn", "ringsideTCPConn"),
		p.wrapReturns("newUnixConn", "ringsideUnixConn"),
		p.wrapLiterals("TCPListener", "ringsideTCPListener"),
		p.wrapLiterals("UnixListener", "ringsideUnixListener"),
		p.begin("TCPConn", "SyscallConn", "if c.ok() && c.alt != nil { return ringsideRawConn(&c.conn) }"),
		p.begin("UnixConn", "SyscallConn", "if c.ok() && c.alt != nil { return ringsideRawConn(&c.conn) }"),
		p.begin("TCPConn", "WriteTo", "if a := ringsideWriterTo(c, w); a != nil { return a.WriteTo(ringsideWriter(w)) }"),
		p.begin("conn", "writeBuffers", "if w, ok := c.alt.(interface{ Writev(*Buffers) (int64, error) }); ok { return w.Writev(v) }"),
	)
	errs = append(errs, p.write(), b.addHook("net", "net/ringside.go"))
	if b.options.tests {
		errs = append(errs, b.patchNetTests())
	}
	return errors.Join(errs...)
}

// patchNetTests removes checks of package net's own descriptors and of the hooks in internal/poll
// from its tests, because sockets go through package unet. The hooks show whether sendfile, splice
// and writev were called. The sent and received data is still compared.
func (b *builder) patchNetTests() error {
	const (
		ours = "\tif Ringside.Load() != nil {\n"
		back = ours + "\t\treturn\n\t}\n"
	)
	return errors.Join(
		b.replaceText("net/sendfile_test.go", "\tif !supportsSendfile() {\n\t\tf()", "\tif Ringside.Load() != nil || !supportsSendfile() {\n\t\tf()"),
		b.replaceText("net/splice_linux_test.go",
			"\t// poll.Splice is expected to be called when", back+"\t// poll.Splice is expected to be called when"),
		b.replaceText("net/splice_linux_test.go",
			"\n\t// We should have called poll.Splice", "\n"+back+"\n\t// We should have called poll.Splice"),
		b.replaceText("net/writev_test.go", "\t\twriteLog.Lock() //", ours+"\t\t\treturn nil\n\t}\n\t\twriteLog.Lock() //"),
		b.replaceText("net/dial_test.go", "if len(after) != len(before)", "if Ringside.Load() == nil && len(after) != len(before)"),
		b.replaceText("net/mptcpsock_linux_test.go", "if hasSOLMPTCP && !", "if Ringside.Load() == nil && hasSOLMPTCP && !"),
	)
}

// replaceText replaces text in a file.
func (b *builder) replaceText(path, from, to string) error {
	text, err := b.source(path)
	if err != nil {
		return err
	}
	if !bytes.Contains(text, []byte(from)) {
		return fmt.Errorf("%s: no %q", path, from)
	}
	return b.add(path, bytes.ReplaceAll(text, []byte(from), []byte(to)))
}

// acceptFrom makes a listener with an alt accept through a function of the hooks.
func (p *pkg) acceptFrom(recv, name, accept string) error {
	const text = `
	if L.ok() && L.alt != nil {
		c, err := ACCEPT(L.alt, L.fd)
		if err != nil {
			return nil, err
		}
		return c, nil
	}
`
	return p.function(recv, name, func(f *file, fn *ast.FuncDecl) {
		l := fn.Recv.List[0].Names[0].Name
		p.insert(f, fn.Body.Lbrace+1, strings.NewReplacer("L.", l+".", "ACCEPT", accept).Replace(text))
	})
}
