// SPDX-License-Identifier: MIT

package overlay

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Command returns the go command with the overlay. verb is build, install, run or test, and args
// are what follows it. The overlay is linked in each main package that is built. Build information
// gets a build tag with the names of the options.
func (t *Toolchain) Command(cache string, o Options, verb string, args []string) (*exec.Cmd, error) {
	flags, rest := split(args)
	if has(flags, "overlay") || verb == "test" && has(beforeArgs(rest), "overlay") || has(words(t.GOFLAGS), "overlay") {
		return nil, errors.New("the go command takes one overlay: leave out -overlay, also in GOFLAGS")
	}
	mains := packages(verb, rest)
	if has(flags, coverage...) || has(words(t.GOFLAGS), coverage...) {
		mains = nil // such programs import runtime/coverage, which is linked
	}
	o.tests = verb == "test"
	path, err := t.overlay(cache, o, flags, mains)
	if err != nil {
		return nil, err
	}
	first := []string{verb}
	if v, at := value(flags, "C"); at == 0 { // must come first
		n := 1
		if !strings.Contains(flags[0], "=") {
			n = 2
		}
		first, flags = append(first, "-C="+v), flags[n:]
	}
	first = append(first, "-overlay="+path)
	if verb == "test" { // go vet changes to the directory of each package, and the overlay has new ones
		first = append(first, "-vet=off")
	}
	if t.GOOS == "linux" {
		flags = t.tag(flags, "ringside."+o.String())
	}
	cmd := exec.Command(t.goCommand, slices.Concat(first, flags, rest)...)
	cmd.Env = t.env
	return cmd, nil
}

// coverage are the flags with which a program records its coverage.
var coverage = []string{"cover", "coverpkg", "covermode"}

// packages returns the packages among what follows the flags, or Go files, whose programs are built. The programs of
// tests import a package that is linked.
func packages(verb string, rest []string) []string {
	if len(rest) > 0 && rest[0] == "--" {
		rest = rest[1:]
	}
	switch {
	case verb == "test":
		return nil
	case len(rest) == 0:
		return []string{"."}
	case verb == "run" && !strings.HasSuffix(rest[0], ".go"):
		return rest[:1] // the others are arguments of the program
	}
	return rest
}

// Overlay returns the path of an overlay that is linked in the main packages among args, which may
// follow flags of the go command.
func (t *Toolchain) Overlay(cache string, o Options, args []string) (string, error) {
	flags, rest := split(args)
	if len(rest) == 0 {
		return t.overlay(cache, o, flags, nil)
	}
	return t.overlay(cache, o, flags, packages("build", rest))
}

func (t *Toolchain) overlay(cache string, o Options, flags, mains []string) (string, error) {
	if t.GOOS != "linux" || len(mains) == 0 {
		return Make(t, cache, o)
	}
	p := t.findPrograms(flags, mains)
	o.mains = p.all
	path, err := Make(t, cache, o)
	if err != nil {
		return "", err
	}
	return p.link(path)
}

// String returns the names of the options.
func (o Options) String() string {
	var names []string
	for name, on := range map[string]bool{"files": o.Files, "fronts": o.Fronts, "sockets": o.Sockets} {
		if on {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ".")
}

// switches are the flags of the go command that take no value.
var switches = strings.Fields(
	"a artifacts asan benchmem buildvcs c cover failfast fullpath i json linkshared modcacherw msan n race short trimpath v work x")

// split separates the flags of a go command from the packages, or what else follows.
func split(args []string) (flags, rest []string) {
	for i := 0; i < len(args); i++ {
		if !strings.HasPrefix(args[i], "-") || args[i] == "-" || args[i] == "--" || name(args[i]) == "args" {
			return args[:i], args[i:]
		}
		if !strings.Contains(args[i], "=") && !slices.Contains(switches, strings.TrimPrefix(name(args[i]), "test.")) {
			i++
		}
	}
	return args, nil
}

// name is the name of a flag.
func name(arg string) string {
	n, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
	return n
}

// beforeArgs returns what go test reads itself: flags may follow the packages.
func beforeArgs(rest []string) []string {
	i := slices.IndexFunc(rest, func(arg string) bool { return strings.HasPrefix(arg, "-") && name(arg) == "args" })
	if i < 0 {
		return rest
	}
	return rest[:i]
}

// words splits GOFLAGS as the go command does: a word with spaces has quotes around it.
func words(text string) (all []string) {
	const space = " \t\r\n"
	for text = strings.Trim(text, space); text != ""; text = strings.TrimLeft(text, space) {
		end := space
		if text[0] == '\'' || text[0] == '"' {
			end, text = text[:1], text[1:]
		}
		i := strings.IndexAny(text+end, end)
		all, text = append(all, text[:i]), text[min(i+1, len(text)):]
	}
	return all
}

func has(flags []string, names ...string) bool {
	return slices.ContainsFunc(flags, func(f string) bool {
		return strings.HasPrefix(f, "-") && slices.Contains(names, name(f))
	})
}

// value returns the value of a flag, and where it is.
func value(flags []string, flag string) (string, int) {
	for i, f := range slices.Backward(flags) {
		if !strings.HasPrefix(f, "-") || name(f) != flag {
			continue
		}
		if _, v, ok := strings.Cut(f, "="); ok {
			return v, i
		}
		if i+1 < len(flags) {
			return flags[i+1], i
		}
	}
	return "", -1
}

// tag adds a build tag, which the go command records in the program, to those of the flags, or of
// GOFLAGS.
func (t *Toolchain) tag(flags []string, tag string) []string {
	tags, at := value(flags, "tags")
	if at < 0 {
		tags, _ = value(words(t.GOFLAGS), "tags")
	}
	tags = strings.Join(append(strings.FieldsFunc(tags, func(r rune) bool { return strings.ContainsRune(", '\"", r) }), tag), ",")
	return append(slices.Clone(flags), "-tags="+tags) // the last one holds
}

// mainFile is the file that joins main packages.
const mainFile = "zz_ringside_linux.go"

// programs are the main packages among the arguments of a go command.
type programs struct {
	dirs []string // of those to which a file can be added
	file string   // or the first Go file of a program that is given by its files
	text []byte   // of that file
	all  bool     // there are such programs and no others
}

// findPrograms asks the go command for the main packages. It refuses overlays of packages in the module cache.
// Those of GOROOT get no file either, nor those that would embed the file, or the changed text of theirs.
func (t *Toolchain) findPrograms(flags, rest []string) (p programs) {
	if len(rest) > 0 && strings.HasSuffix(rest[0], ".go") {
		var err error
		if p.file, err = filepath.Abs(filepath.Join(WorkDir(flags), rest[0])); err == nil {
			p.text, err = os.ReadFile(p.file)
		}
		p.all = err == nil && clauseEnd(p.text) > 0
		if slices.ContainsFunc(rest, func(name string) bool { return embeds(filepath.Join(WorkDir(flags), name)) }) {
			p = programs{}
		}
		return p // go build says what is wrong
	}
	const format = `{{if eq .Name "main"}}{{.Dir}}{{range .EmbedPatterns}}{{"\t"}}{{.}}{{end}}{{end}}`
	args := []string{"list", "-find", "-e", "-f", format}
	for _, f := range []string{"tags", "modfile", "mod", "C"} {
		if v, at := value(flags, f); at >= 0 {
			args = slices.Insert(args, 1, "-"+f+"="+v)
		}
	}
	cmd := exec.Command(t.goCommand, append(append(args, "--"), rest...)...)
	cmd.Env = t.env
	out, _ := cmd.Output() // go build says what is wrong
	mains := 0
	for line := range strings.Lines(string(out)) {
		dir, patterns, _ := strings.Cut(strings.TrimRight(line, "\r\n"), "\t")
		if dir == "" {
			continue
		}
		mains++
		embedded := slices.ContainsFunc(strings.Split(patterns, "\t"), func(pattern string) bool {
			ok, _ := path.Match(strings.TrimPrefix(pattern, "all:"), mainFile)
			return ok
		})
		if !embedded && !below(dir, t.GOMODCACHE) && !below(dir, t.GOROOT) {
			p.dirs = append(p.dirs, dir)
		}
	}
	p.all = mains > 0 && len(p.dirs) == mains
	return p
}

// link returns an overlay in which the programs import the library.
func (p programs) link(base string) (string, error) {
	replace, err := readOverlay(base)
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(base)
	for _, d := range p.dirs {
		replace[filepath.Join(d, mainFile)] = filepath.Join(dir, mainFile)
	}
	if at := clauseEnd(p.text); at > 0 { // the import stands on the line of the package clause
		imports, err := os.ReadFile(filepath.Join(dir, mainFile))
		if err != nil {
			return "", err
		}
		_, list, _ := strings.Cut(string(imports), "\n\n")
		linked := string(p.text[:at]) + "; " + strings.ReplaceAll(strings.TrimSpace(list), "\n", "; ") + string(p.text[at:])
		if replace[p.file], err = writeOnce(dir, "main", ".go", []byte(linked)); err != nil {
			return "", err
		}
	}
	text, err := overlayText(replace)
	if err != nil {
		return "", err
	}
	return writeOnce(dir, "overlay", ".json", text)
}

// embeds reports whether a Go file embeds files, which may be itself.
func embeds(name string) bool {
	text, _ := os.ReadFile(name) // go build says what is wrong
	return bytes.Contains(text, []byte("\n//go:embed "))
}

// clauseEnd returns where the package clause of a file of package main ends, or 0.
func clauseEnd(text []byte) int {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, "", text, parser.PackageClauseOnly)
	if err != nil || parsed.Name.Name != "main" {
		return 0
	}
	return set.Position(parsed.Name.End()).Offset
}

// WorkDir is the directory to which -C among the arguments of a go command changes, or "".
func WorkDir(args []string) string {
	flags, _ := split(args)
	dir, _ := value(flags, "C")
	return dir
}

func below(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// writeOnce writes a file whose name has the hash of its text, unless it exists.
func writeOnce(dir, prefix, suffix string, text []byte) (string, error) {
	sum := sha256.Sum256(text)
	path := filepath.Join(dir, prefix+"-"+hex.EncodeToString(sum[:8])+suffix)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	temp, err := os.CreateTemp(dir, unfinished)
	if err != nil {
		return "", needsDir(err)
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(text)
	if err := errors.Join(err, temp.Close()); err != nil {
		return "", err
	}
	return path, os.Rename(temp.Name(), path)
}
