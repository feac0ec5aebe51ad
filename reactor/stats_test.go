// SPDX-License-Identifier: MIT

package reactor

import (
	"reflect"
	"testing"
)

// TestStatsAddUp gives each counter a different value.
func TestStatsAddUp(t *testing.T) {
	var a Stats
	v := reflect.ValueOf(&a).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Int:
			f.SetInt(int64(i + 1))
		default:
			f.SetUint(uint64(i + 1))
		}
		if v.Type().Field(i).Tag.Get("json") == "" {
			t.Errorf("%s has no name in JSON", v.Type().Field(i).Name)
		}
	}
	sum := reflect.ValueOf(a.Plus(a))
	for i := range sum.NumField() {
		name, got := sum.Type().Field(i).Name, uint64(0)
		if f := sum.Field(i); f.Kind() == reflect.Int {
			got = uint64(f.Int())
		} else {
			got = f.Uint()
		}
		if got != uint64(2*(i+1)) {
			t.Errorf("%s: %d + %d = %d", name, i+1, i+1, got)
		}
	}
}
