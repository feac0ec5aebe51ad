// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/echo"
	"github.com/ringside-io/ringside/cmd/internal/sqlitebench"
	"github.com/ringside-io/ringside/cmd/internal/suite"
)

const (
	// drawnTime is the time of a drawn cell, with what it takes to prepare it.
	drawnTime = 10 * time.Second
	maxDrawn  = 1000
)

// drawn draws cells from the axes on which programs differ: cells beside the published ones may lose.
type drawn struct {
	*rand.Rand
	dir string
}

// parts returns n parts, most of which have one cell. Values that do not go together are drawn
// again.
func (d drawn) parts(n int, flags *benchFlags) (parts []allPart, err error) {
	draw := []func() (string, benchmark){d.file, d.append, d.net, d.net, d.watch, d.sqlite}
	for tries := range 100 * n {
		title, b := draw[(len(parts)+tries/100)%len(draw)]()
		if err = b.configure(flags); err == nil {
			parts = append(parts, allPart{title, b, 1})
		}
		if len(parts) == n {
			return parts, nil
		}
	}
	return nil, err
}

// one returns one of some values.
func one[T any](d drawn, values ...T) T { return values[d.IntN(len(values))] }

// between returns a number whose logarithm is evenly distributed.
func (d drawn) between(low, high float64) int {
	return int(math.Round(low * math.Pow(high/low, d.Float64())))
}

func (d drawn) file() (string, benchmark) {
	o := suite.FileOptions{
		Dir: d.dir, Size: 256 << 20, NoFio: true, Fast: suite.FastNone,
		Workloads: []string{one(d, "randread", "randread", "randwrite", "sync", "open", "batch")},
		Blocks:    []int{d.between(1, 256) * 4096}, Goroutines: []int{d.between(1, 512)},
		Caches: []string{one(d, suite.CacheHot, suite.CacheDirect, suite.CacheCold)},
	}
	return o.Workloads[0], &fileBench{o}
}

func (d drawn) append() (string, benchmark) {
	return "appends", &fileBench{suite.FileOptions{
		Dir: d.dir, Size: 256 << 20, NoFio: true, Fast: suite.FastNone, Workloads: []string{"append"},
		Records: []int{d.between(24, 64<<10)}, Goroutines: []int{d.between(1, 512)},
	}}
}

func (d drawn) net() (string, benchmark) {
	o := suite.NetOptions{
		Workloads:   []string{one(d, suite.NetWords()["workload"]...)},
		Connections: []int{d.between(1, 1000)}, Sizes: []int{d.between(64, 1<<20)},
		Engines: []string{echo.NameStd, one(d, echo.NameConn, echo.NameEvent)},
		IdleFor: time.Second,
	}
	if o.Workloads[0] == "http" && d.IntN(2) == 0 {
		o.Bodies = []int{d.between(64, 1<<20)}
	}
	return o.Workloads[0], &netBench{o}
}

func (d drawn) watch() (string, benchmark) {
	words := suite.WatchWords()
	return "watching", &watchBench{suite.WatchOptions{
		Sources: []string{one(d, words["source"]...)}, Modes: []string{one(d, words["mode"]...)},
		Active: []int{d.between(1, 1000)}, Idle: []int{one(d, 0, d.between(1, 5000))},
	}}
}

func (d drawn) sqlite() (string, benchmark) {
	words := suite.SQLiteWords()
	o := suite.SQLiteOptions{
		Dir: d.dir, Scale: 20, Workloads: []string{suite.TenantsWork},
		Engines:  []string{sqlitebench.Default, one(d, sqlitebench.Ringside, sqlitebench.Log)},
		Journals: []string{one(d, words["journal"]...)}, Commits: []string{one(d, words["commit"]...)},
	}
	if o.Journals[0] == sqlitebench.Rollback { // with FULL the default VFS does not sync the directory
		o.Journals[0] = sqlitebench.Extra
	}
	if d.IntN(4) > 0 {
		o.Databases = []int{d.between(1, 128)}
	} else {
		o.Connections = []int{d.between(2, 32)}
	}
	return fmt.Sprintf("SQLite, %s", o.Journals[0]), &sqliteBench{o}
}
