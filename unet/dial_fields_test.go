// SPDX-License-Identifier: MIT

package unet

import (
	"context"
	"net"
	"reflect"
	"syscall"
	"testing"
	"time"
)

// TestFieldsReachNet sets each field that package net has, and checks that it reaches the
// net.Dialer or the net.ListenConfig that is used.
// Promise: unet/code-compiles-net
func TestFieldsReachNet(t *testing.T) {
	reach(t, &Dialer{}, func(d *Dialer) *net.Dialer { n := d.std(); return &n })
	reach(t, &ListenConfig{}, (*ListenConfig).std)
}

func reach[O, N any](t *testing.T, ours *O, std func(*O) *N) {
	o := reflect.ValueOf(ours).Elem()
	fields := reflect.VisibleFields(reflect.TypeFor[N]())
	for _, f := range fields {
		if f.IsExported() {
			o.FieldByName(f.Name).Set(some(t, f.Type))
		}
	}
	n := reflect.ValueOf(std(ours)).Elem()
	for _, f := range fields {
		if f.IsExported() && n.FieldByName(f.Name).IsZero() {
			t.Errorf("%T.%s does not reach %T", ours, f.Name, std(ours))
		}
	}
}

// some returns a nonzero value of a type.
func some(t *testing.T, of reflect.Type) reflect.Value {
	for _, v := range []any{
		time.Second, time.Unix(1, 0), true, &net.Resolver{}, make(<-chan struct{}), net.KeepAliveConfig{Enable: true},
		func(string, string, syscall.RawConn) error { return nil },
		func(context.Context, string, string, syscall.RawConn) error { return nil },
		net.Addr(&net.TCPAddr{}),
	} {
		if v := reflect.ValueOf(v); v.Type().AssignableTo(of) {
			return v
		}
	}
	t.Fatalf("no value of %v", of)
	return reflect.Value{}
}
