// SPDX-License-Identifier: MIT

package ufile_test

import (
	"fmt"
	"log"
	"os"

	"github.com/ringside-io/ringside/ufile"
)

// An append returns when its record is durable. Opening the log again, after a
// crash as after a Close, finds every such record.
func ExampleOpenAppender() {
	dir, err := os.MkdirTemp("", "log")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	a, err := ufile.OpenAppender(dir, ufile.AppenderOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := a.Append([]byte("credit 100")); err != nil {
		log.Fatal(err) // not known to be durable, and the appender is done for
	}
	// Both or none:
	checkpoint, err := a.AppendBatch([][]byte{[]byte("debit 30"), []byte("fee 1")})
	if err != nil {
		log.Fatal(err)
	}
	if err := a.Close(); err != nil {
		log.Fatal(err)
	}

	a, err = ufile.OpenAppender(dir, ufile.AppenderOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	for r, err := range a.Records(ufile.Position{}) {
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
