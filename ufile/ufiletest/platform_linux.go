// SPDX-License-Identifier: MIT

package ufiletest

func platform() []test {
	return []test{
		scripted("Pipe/Methods", pipeMethods),
		scripted("Pipe/Transfer", pipeTransfer),
		scripted("Pipe/Deadline", pipeDeadline),
		{"Pipe/Close", pipeClose},
		scripted("Device/Null", deviceNull),
		scripted("Device/Zero", deviceZero),
		scripted("Device/Full", deviceFull),
		scripted("Proc", proc),
		scripted("Unseekable", unseekable),
		scripted("Limit", limit),
		scripted("SeekHole", seekHole),
		scripted("OpenFlags", openFlags),
		scripted("Direct/Aligned", directAligned),
		scripted("Direct/Misaligned", directMisaligned),
		{"Direct/Concurrent", directConcurrent},
		{"Direct/Close", directClose},
	}
}
