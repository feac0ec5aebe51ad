// SPDX-License-Identifier: MIT

package ufiletest

import (
	"io/fs"
	"testing"
)

// test is one subtest of the suite.
type test struct {
	name string
	run  func(t *testing.T, s suite)
}

// suite is an implementation under test.
type suite struct{ open opener }

// Run runs the suite as subtests of t. open opens a file with the results and errors of
// os.OpenFile, and must return a nil interface with an error. It is called concurrently.
// The suite closes every file.
func Run(t *testing.T, open func(name string, flag int, perm fs.FileMode) (File, error)) {
	t.Helper()
	s := suite{open}
	for _, test := range append(portable(), platform()...) {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
}

func portable() []test {
	return []test{
		scripted("Open", openErrors),
		scripted("Methods/ReadWrite", methodsReadWrite),
		scripted("Methods/ReadOnly", methodsReadOnly),
		scripted("Methods/WriteOnly", methodsWriteOnly),
		scripted("Methods/Append", methodsAppend),
		scripted("Methods/Empty", methodsEmpty),
		scripted("Methods/Directory", methodsDirectory),
		scripted("Methods/Closed", methodsClosed),
		scripted("Methods/Nil", methodsNil),
		scripted("ReadAt/Matrix", readAtMatrix),
		scripted("ReadAt/Offsets", readAtOffsets),
		scripted("WriteAt/Matrix", writeAtMatrix),
		scripted("WriteAt/Offsets", writeAtOffsets),
		scripted("Append", appendToEnd),
		scripted("Sparse", sparse),
		scripted("Truncate", truncate),
		scripted("Seek", seek),
		scripted("Position", position),
		scripted("ReadFrom", readFrom),
		scripted("WriteTo", writeTo),
		scripted("ReadDir", readDir),
		scripted("TwoHandles", twoHandles),
		scripted("Large", large),
		scripted("Stat", stat),
		scripted("Descriptor", descriptor),
		{"Concurrent/Disjoint", concurrentDisjoint},
		{"Concurrent/Truncate", concurrentTruncate},
		{"Close/ReadAt", closeUnderReadAt},
		{"Close/WriteAt", closeUnderWriteAt},
		{"Close/Twice", closeTwice},
		{"Conformance/Reader", conformReader},
		{"Conformance/FS", conformFS},
	}
}

// rounds returns full, or brief with -short.
func rounds(full, brief int) int {
	if testing.Short() {
		return brief
	}
	return full
}

// scripted makes a test of a script.
func scripted(name string, play func(c *script)) test {
	return test{name, func(t *testing.T, s suite) { s.compare(t, play) }}
}
