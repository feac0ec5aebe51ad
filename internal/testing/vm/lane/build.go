// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ringside-io/ringside/internal/testing/vm"
	"github.com/ringside-io/ringside/internal/testing/vm/wire"
)

const (
	module  = "github.com/ringside-io/ringside"
	machine = module + "/internal/testing/vm"
)

// cargo is the content of the guest: built once, booted on each kernel.
type cargo struct {
	dir   string
	init  string
	names []string // of the jobs, for the output
	jobs  []wire.Job
	files []vm.File
}

func (c *cargo) remove() { os.RemoveAll(c.dir) }

// build compiles the guest's first process and the programs.
func build(ctx context.Context, opt options) (c *cargo, err error) {
	dir, err := os.MkdirTemp("", "ringside-lane-*")
	if err != nil {
		return nil, err
	}
	c = &cargo{dir: dir, init: filepath.Join(dir, "init")}
	defer func() {
		if err != nil {
			c.remove()
		}
	}()
	if _, err := opt.goTool(ctx, "build", "-o", c.init, machine+"/init"); err != nil {
		return nil, err
	}
	if opt.arch == runtime.GOARCH {
		for _, name := range opt.tools {
			if err := c.addTool(ctx, name); err != nil {
				return c, err
			}
		}
	}
	if opt.main != "" {
		return c, c.addMain(ctx, opt)
	}
	return c, c.addTests(ctx, opt)
}

func (c *cargo) addMain(ctx context.Context, opt options) error {
	host := filepath.Join(c.dir, "main")
	if _, err := opt.goTool(ctx, "build", "-o", host, opt.main); err != nil {
		return err
	}
	guest := "/bin/" + path.Base(filepath.ToSlash(opt.main))
	c.add(opt.main, host, wire.Job{Path: guest, Args: opt.args, Dir: "/tmp", Timeout: opt.timeout})
	return nil
}

// addTool adds a program of the host and the libraries that ldd lists. Nothing is added if
// the host does not have it.
func (c *cargo) addTool(ctx context.Context, name string) error {
	program, err := exec.LookPath(name)
	if err != nil {
		return nil
	}
	c.files = append(c.files, vm.File{Host: program, Guest: program})
	out, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return fmt.Errorf("ldd %s: %w", program, err)
	}
	for field := range strings.FieldsSeq(string(out)) {
		if filepath.IsAbs(field) {
			c.files = append(c.files, vm.File{Host: field, Guest: field})
		}
	}
	return nil
}

func (c *cargo) add(name, host string, job wire.Job) {
	c.names = append(c.names, name)
	c.jobs = append(c.jobs, job)
	c.files = append(c.files, vm.File{Host: host, Guest: job.Path})
}

func (c *cargo) addTests(ctx context.Context, opt options) error {
	pkgs, err := testPackages(ctx, opt)
	if err != nil {
		return err
	}
	hosts, err := c.compile(ctx, opt, pkgs)
	if err != nil {
		return err
	}
	for i, p := range pkgs {
		host := hosts[i]
		dir := path.Join("/src", strings.TrimPrefix(p.ImportPath, module))
		c.add(p.ImportPath, host, wire.Job{
			Path: path.Join("/bin", path.Base(p.ImportPath)+"-"+strconv.Itoa(i)+".test"),
			Args: testArgs(opt),
			Dir:  dir,
			// The test binary's own limit comes first: its message is better.
			Timeout: opt.timeout + 5*time.Second,
		})
		data := filepath.Join(p.Dir, "testdata")
		if info, err := os.Stat(data); err == nil && info.IsDir() {
			c.files = append(c.files, vm.File{Host: data, Guest: path.Join(dir, "testdata")})
		}
	}
	return nil
}

// compile builds the test binary of each package, without debug information.
// Linking takes most of the time and uses little more than one processor.
func (c *cargo) compile(ctx context.Context, opt options, pkgs []pkg) ([]string, error) {
	hosts, errs := make([]string, len(pkgs)), make([]error, len(pkgs))
	turn := make(chan struct{}, max(2, runtime.NumCPU()/2))
	var all sync.WaitGroup
	for i, p := range pkgs {
		hosts[i] = filepath.Join(c.dir, strconv.Itoa(i)+".test")
		all.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			_, errs[i] = opt.goTool(ctx, "test", "-c", "-ldflags=-w", "-o", hosts[i], p.ImportPath)
		})
	}
	all.Wait()
	return hosts, errors.Join(errs...)
}

func testArgs(opt options) []string {
	args := []string{"-test.v", "-test.paniconexit0", "-test.timeout=" + opt.timeout.String()}
	if !opt.long {
		args = append(args, "-test.short")
	}
	if opt.run != "" {
		args = append(args, "-test.run="+opt.run)
	}
	if opt.bench != "" {
		args = append(args, "-test.bench="+opt.bench)
	}
	return args
}

// pkg holds the needed fields of "go list -json".
type pkg struct {
	Dir, ImportPath           string
	Module                    struct{ Path string }
	TestGoFiles, XTestGoFiles []string
}

// noKernel are packages whose tests do not depend on the kernel: texts, tables and
// simulations.
var noKernel = map[string]bool{
	module + "/internal/abi":               true,
	module + "/internal/fdlock":            true,
	module + "/internal/testing/lint":      true,
	module + "/internal/inflight":          true,
	module + "/internal/testing/kernelsim": true,
	module + "/internal/sys":               true,
}

// testPackages lists the packages with tests. Without patterns these are the packages of
// the core module whose tests depend on the kernel, except those of package vm, which
// cannot run in its own guest.
func testPackages(ctx context.Context, opt options) ([]pkg, error) {
	patterns := opt.pkgs
	all := len(patterns) == 0
	if all {
		patterns = []string{module + "/..."}
	}
	args := append([]string{"list", "-json=Dir,ImportPath,Module,TestGoFiles,XTestGoFiles"}, patterns...)
	out, err := opt.goTool(ctx, args...)
	if err != nil {
		return nil, err
	}
	pkgs, err := selectPackages(out, all)
	if err == nil && len(pkgs) == 0 {
		err = errors.New("no packages with tests")
	}
	return pkgs, err
}

func selectPackages(list []byte, onlyCore bool) ([]pkg, error) {
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(list)); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			return pkgs, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 {
			continue
		}
		if onlyCore && (p.Module.Path != module || noKernel[p.ImportPath] ||
			p.ImportPath == machine || strings.HasPrefix(p.ImportPath, machine+"/")) {
			continue
		}
		pkgs = append(pkgs, p)
	}
}

// goTool runs the go command for the guest's system.
func (o *options) goTool(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+o.arch, "CGO_ENABLED=0", "GOFLAGS="+withoutRace(os.Getenv("GOFLAGS")))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// withoutRace removes -race, which needs cgo.
func withoutRace(flags string) string {
	var keep []string
	for f := range strings.FieldsSeq(flags) {
		if f != "-race" && !strings.HasPrefix(f, "-race=") {
			keep = append(keep, f)
		}
	}
	return strings.Join(keep, " ")
}
