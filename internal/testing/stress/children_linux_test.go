// SPDX-License-Identifier: MIT

package stress

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

var shrinkFlag = flag.Bool("shrink", false, "TestShrinking shrinks the given seed; for failures that end the whole program")

// shrinkInChildren runs smaller and smaller scenarios in child processes, so that panics,
// races and hangs count as failures, and prints the smallest one that fails.
func shrinkInChildren(t *testing.T, s *Scenario) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Log(err)
		return
	}
	end := time.Now().Add(2 * time.Minute)
	small := Shrink(s, 500, func(s *Scenario) bool {
		name := write(t, s)
		defer os.Remove(name)
		for range 3 { // the order of goroutines may decide
			if time.Now().After(end) {
				return false
			}
			c := exec.Command(self, "-test.run=^TestReplay$", "-test.timeout=40s", "-scenario="+name)
			if c.Run() != nil {
				return true
			}
		}
		return false
	})
	fmt.Fprintf(os.Stderr, "the smallest scenario that was found: %d steps of %d workers, of %d and %d. Save it as FILE and run it with\n"+
		"go test -race ./internal/testing/stress -run 'TestReplay$' -scenario FILE\n\n%v\n",
		small.Steps(), len(small.Workers), s.Steps(), len(s.Workers), small)
}

// TestShrinking shrinks a failure that ends its process.
func TestShrinking(t *testing.T) {
	if !*shrinkFlag {
		t.Skip("needs -shrink")
	}
	ringtest.NeedRing(t)
	for _, w := range environments() {
		if w.name == *environmentFlag {
			shrinkInChildren(t, Generate(w.name, *seedFlag, w.size, w.settings))
		}
	}
}
