// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// loaded runs a load, for longer if no request is answered in that time, and returns
// what it prints.
func loaded(t *testing.T, d time.Duration, args ...string) (options, string) {
	t.Helper()
	dir := t.TempDir()
	for ; ; d *= 4 {
		o, err := parse(append(args, "-for", d.String(), "-dir", dir), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		switch err := run(t.Context(), o, &out); {
		case err == nil:
			return o, out.String()
		case !errors.Is(err, errNothing) || d > 20*time.Second:
			t.Fatal(err)
		}
	}
}

func TestComparison(t *testing.T) {
	o, out := loaded(t, 50*time.Millisecond, "-compare", "-pairs", "1", "-tenants", "3")
	for _, word := range []string{"default ", "ringside-log ", "ratio ", "requests/s", "p99 ms", "threads", "3 tenants, 3 connections"} {
		if !strings.Contains(out, word) {
			t.Errorf("%q is not in\n%s", word, out)
		}
	}
	if left, err := os.ReadDir(o.dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// More tenants than connections and than databases that may be open.
func TestLoad(t *testing.T) {
	_, out := loaded(t, 100*time.Millisecond, "-tenants", "8", "-conns", "3", "-open", "4", "-vfs", "ringside")
	for _, word := range []string{"ringside: 8 tenants, 3 connections", "requests/s, p50", " 0 errors"} {
		if !strings.Contains(out, word) {
			t.Errorf("%q is not in\n%s", word, out)
		}
	}
}

// A service that loses what it acknowledged is found out.
func TestLostItemsAreFound(t *testing.T) {
	k, _ := serve(t, config{dir: t.TempDir()})
	l := load{tenants: 2, conns: 1}
	a := newAsker(l, k.addr, 0)
	defer a.close()
	if err := a.store(0); err != nil {
		t.Fatal(err)
	}
	if err := a.fetch(0); err != nil {
		t.Error(err)
	}
	r := &result{}
	r.add([]*asker{a})
	if err := r.verify(k, l); err != nil {
		t.Error(err)
	}
	r.Stored++
	if err := r.verify(k, l); err == nil {
		t.Error("a lost item was not missed")
	}
	a.item[0]++
	if err := a.fetch(0); err == nil {
		t.Error("another item than was stored was taken")
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{
		{"x"}, {"-vfs", "nosuch"}, {"-open", "0"}, {"-tenants", "0"}, {"-reads", "100"}, {"-reads", "-1"}, {"-for", "-1s"}, {"-nosuch"}, {"-pairs", "0"},
	} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	o, err := parse([]string{"-compare", "-tenants", "5"}, io.Discard)
	if err != nil || o.load.conns != 5 || o.load.span != 3*time.Second {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestSpread(t *testing.T) {
	if s := spread("%.0f", []float64{3, 1, 2}); s != "2 (1–3)" {
		t.Error(s)
	}
	if s := spread("%.1f", []float64{4, 1, 2, 3}); s != "2.5 (1.0–4.0)" {
		t.Error(s)
	}
}
