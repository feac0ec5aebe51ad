// SPDX-License-Identifier: MIT

package appendlog_test

import (
	"fmt"
	"log"
	"os"

	"github.com/ringside-io/ringside/appendlog"
)

// An append returns when its record is durable. When the log is opened again, after Close
// or after a crash, it contains every such record.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "log")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	a, err := appendlog.Open(dir, appendlog.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := a.Append([]byte("credit 100")); err != nil {
		log.Fatal(err) // the record is not known to be durable, and the log accepts no more
	}
	// Both or neither:
	checkpoint, err := a.AppendBatch([][]byte{[]byte("debit 30"), []byte("fee 1")})
	if err != nil {
		log.Fatal(err)
	}
	if err := a.Close(); err != nil {
		log.Fatal(err)
	}

	a, err = appendlog.Open(dir, appendlog.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	for r, err := range a.Records(appendlog.Position{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d: %s\n", r.Seq, r.Data)
	}
	for r, err := range a.Records(checkpoint) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("since the checkpoint: %s\n", r.Data)
	}
	// Output:
	// 1: credit 100
	// 2: debit 30
	// 3: fee 1
	// since the checkpoint: debit 30
	// since the checkpoint: fee 1
}
