// SPDX-License-Identifier: MIT

package abi_test

import (
	"flag"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

var headerFlag = flag.String("header", "/usr/include/linux/io_uring.h", "the kernel's header to compare the constants with")

// TestHeader compares every constant that the installed header also has.
func TestHeader(t *testing.T) {
	ours := sourceConstants(t)
	text, err := os.ReadFile(*headerFlag)
	if err != nil {
		t.Skipf("needs the kernel's header: %v", err)
	}
	theirs := parseHeader(string(text))
	compared := 0
	for name, want := range theirs {
		got, ok := ours[name]
		if !ok || strings.HasSuffix(name, "_LAST") { // the header belongs to another kernel
			continue
		}
		if compared++; !constant.Compare(got, token.EQL, want) {
			t.Errorf("%s is %v, the header has %v", name, got, want)
		}
	}
	if compared < 100 {
		t.Errorf("only %d constants found in %s: it was misread", compared, *headerFlag)
	}
	t.Logf("%d of %d constants compared", compared, len(ours))
}

var (
	comments  = regexp.MustCompile(`(?s)/\*.*?\*/`)
	defines   = regexp.MustCompile(`(?m)^#define[ \t]+(\w+)[ \t]+(.+)$`)
	enums     = regexp.MustCompile(`(?s)\benum\b[^{};]*\{(.*?)\}`)
	directive = regexp.MustCompile(`(?m)^#.*$`)
	casts     = regexp.MustCompile(`\(__\w+\)`)
	suffixes  = regexp.MustCompile(`\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b`)
	allOnes   = regexp.MustCompile(`~0\b`)
)

// parseHeader returns the integer constants of a C header.
func parseHeader(text string) map[string]constant.Value {
	text = comments.ReplaceAllString(text, "")
	known := map[string]constant.Value{}
	for _, e := range enums.FindAllStringSubmatch(directive.ReplaceAllString(text, ""), -1) {
		parseEnum(known, e[1])
	}
	for _, d := range defines.FindAllStringSubmatch(text, -1) {
		if v := evalC(known, d[2]); v != nil {
			known[d[1]] = v
		}
	}
	return known
}

func parseEnum(known map[string]constant.Value, body string) {
	next := constant.MakeInt64(0)
	for member := range strings.SplitSeq(body, ",") {
		name, expr, given := strings.Cut(member, "=")
		if given {
			next = evalC(known, expr)
		}
		name = strings.TrimSpace(name)
		if name == "" || next == nil {
			continue
		}
		known[name] = next
		next = constant.BinaryOp(next, token.ADD, constant.MakeInt64(1))
	}
}

// evalC evaluates a constant expression of C by parsing it as one of Go; it returns nil for
// an expression that it cannot evaluate.
func evalC(known map[string]constant.Value, expr string) constant.Value {
	expr = suffixes.ReplaceAllString(casts.ReplaceAllString(expr, ""), "$1")
	e, err := parser.ParseExpr(allOnes.ReplaceAllString(expr, "0xffffffff"))
	if err != nil {
		return nil
	}
	return evalGo(known, e)
}

func evalGo(known map[string]constant.Value, e ast.Expr) constant.Value {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.INT {
			return constant.MakeFromLiteral(e.Value, e.Kind, 0)
		}
	case *ast.Ident:
		return known[e.Name]
	case *ast.ParenExpr:
		return evalGo(known, e.X)
	case *ast.UnaryExpr:
		if x := evalGo(known, e.X); x != nil && e.Op == token.SUB {
			return constant.UnaryOp(e.Op, x, 0)
		}
	case *ast.BinaryExpr:
		return evalBinary(known, e)
	}
	return nil
}

func evalBinary(known map[string]constant.Value, e *ast.BinaryExpr) constant.Value {
	x, y := evalGo(known, e.X), evalGo(known, e.Y)
	if x == nil || y == nil {
		return nil
	}
	switch e.Op {
	case token.SHL:
		bits, _ := constant.Uint64Val(y)
		return constant.Shift(x, e.Op, uint(bits))
	case token.ADD, token.OR:
		return constant.BinaryOp(x, e.Op, y)
	}
	return nil
}

func TestParseHeader(t *testing.T) {
	got := parseHeader(`
enum bits { A_BIT, /* first */ B_BIT,
#ifdef X
#endif
	C_BIT = 7, D_BIT };
enum { MANY	= (1U << 4), };
#define B	(1U << B_BIT) /* a comment */
#define MINUS	(-2)
#define ALL		(~0U)
#define FAR 0x80000000ULL
#define TYPED	((__u32)1 << C_BIT)
#define FUNCTION(x) x
#define UNKNOWN sizeof(int)
`)
	want := map[string]int64{"A_BIT": 0, "B_BIT": 1, "C_BIT": 7, "D_BIT": 8, "MANY": 16, "B": 2, "MINUS": -2,
		"ALL": 1<<32 - 1, "FAR": 1 << 31, "TYPED": 128}
	for name, v := range want {
		if got[name] == nil || !constant.Compare(got[name], token.EQL, constant.MakeInt64(v)) {
			t.Errorf("%s is %v, want %d", name, got[name], v)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
}
