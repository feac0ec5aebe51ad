// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/ringside-io/ringside/cmd/internal/echo"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

const (
	nameFiles = "files"
	// trialFile is asked for when engines show that they work.
	trialFile = "/trial.jpg"
	// From largeFile on the generator does not look at all of an answer. Where muchAtOnce is asked for,
	// a window must be longer to have some answers in it.
	largeFile  = 256 << 10
	muchAtOnce = 64 << 20
	// fullPipe bounds how many bytes may be asked for at once.
	fullPipe = 4 << 30
)

// filesEngines are those that serve files; the others are compared to the first.
var filesEngines = []string{echo.NameStd, echo.NameServe, echo.NameServeNet, echo.NameNginx}

// filesWork asks for a file that is in the page cache.
type filesWork struct{}

func (filesWork) name() string { return nameFiles }

func (filesWork) engines() []string {
	return []string{echo.NameStd, echo.NameServe, echo.NameServeNet, echo.NameConn, echo.NameNginx}
}

// cells returns each length of a file with each number of connections, unless together they are more than
// the machine could send in a window.
func (filesWork) cells(o NetOptions) []netCell {
	var out []netCell
	for _, procs := range orOwn(o.Procs, []int{0}) {
		for _, size := range filesSizes(o) {
			for _, n := range o.connectionsOr(1, 32, 256) {
				if len(o.Connections) > 0 || int64(n)*int64(size) < fullPipe {
					out = append(out, netCell{workload: nameFiles, connections: n, size: size, procs: procs})
				}
			}
		}
	}
	return out
}

func filesSizes(o NetOptions) []int {
	return orOwn(o.Sizes, []int{1 << 10, 16 << 10, 1 << 20, 64 << 20})
}

// makeFiles makes a directory with a file for each length.
func makeFiles(o NetOptions) (dir string, err error) {
	if dir, err = os.MkdirTemp(DefaultDir(), "ringside-files-*"); err != nil {
		return "", err
	}
	names := map[string]int{trialFile: 1}
	for _, size := range filesSizes(o) {
		names[fileName(size)] = size
	}
	var seed [32]byte
	for name, size := range names {
		data := make([]byte, size)
		_, _ = rand.NewChaCha8(seed).Read(data) // never fails
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return "", errors.Join(err, os.RemoveAll(dir))
		}
	}
	return dir, nil
}

// fileName has a type that all engines know and none compresses.
func fileName(size int) string { return fmt.Sprintf("/%d.jpg", size) }

func (filesWork) round(ctx context.Context, n *netRun, c netCell, engine string) (report.Sample, error) {
	window := n.opts.Duration
	if int64(c.size)*int64(c.connections) >= muchAtOnce {
		window *= 5
	}
	job := n.job(c, window)
	job.HTTP, job.Path, job.Discard = true, fileName(c.size), c.size >= largeFile
	s, err := n.env.Round(ctx, echo.Setup{Engine: engine, Procs: c.procs, Files: n.files}, n.peer, job)
	if err != nil {
		return report.Sample{}, err
	}
	return n.filesSample(s), nil
}

// filesSample counts answers by what was received of them: where few are sent in a window, it matters
// that its ends fall into some.
func (n *netRun) filesSample(s echo.Sample) report.Sample {
	out := n.echoSample(s)
	if s.Answer == 0 || s.Received == 0 {
		return out
	}
	answers := float64(s.Received) / float64(s.Answer)
	m := out.Metrics
	for _, perOp := range []string{measure.CPUUsPerOp, measure.BytesPerOp, measure.AllocsPerOp, measure.NsPerOp} {
		if v, ok := m[perOp]; ok {
			m[perOp] = v * float64(s.Ops) / answers
		}
	}
	m[measure.OpsPerS] = answers / s.Elapsed.Seconds()
	m[measure.MBPerS] = float64(s.Received) / 1e6 / s.Elapsed.Seconds()
	return out
}
