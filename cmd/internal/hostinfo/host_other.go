// SPDX-License-Identifier: MIT

//go:build !linux

package hostinfo

func kernelRelease() string { return "" }

func cpuModel() string { return "" }

func memory() memoryInfo { return memoryInfo{} }

func storage(string) storageInfo { return storageInfo{} }

func spoilers() []string { return nil }

func stolen() func() float64 { return func() float64 { return 0 } }
