// SPDX-License-Identifier: MIT

package datafile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Sweep removes the data files in dir whose owner has died, with their scratch directories, and
// returns their paths. It ignores files in use, files of other users and files that are not
// regular.
func Sweep(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var removed []string
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !isDataFile(entry.Name()) {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		if sweepOne(path) == nil {
			removed = append(removed, path)
		}
	}
	return append(removed, sweepScratch(dir)...), nil
}

// isDataFile reports whether name has the form that newName makes.
func isDataFile(name string) bool {
	digits, ok := strings.CutPrefix(name, namePrefix)
	if !ok {
		return false
	}
	digits, ok = strings.CutSuffix(digits, nameSuffix)
	return ok && len(digits) == 16 && strings.Trim(digits, "0123456789abcdef") == ""
}

// errLocked is returned by lock when another process has locked the file.
var errLocked = errors.New("locked by another process")

// scratchSuffix replaces the suffix of a data file in the name of its scratch directory.
const scratchSuffix = ".d"

// Scratch returns a directory next to the file, for further files, and creates it if necessary.
// [File.Remove] removes it with its content. If the process is killed, [Sweep] removes it, because
// the data file is gone.
func (d *File) Scratch() (string, error) {
	dir := scratchOf(d.path)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return dir, nil
}

func scratchOf(path string) string { return strings.TrimSuffix(path, nameSuffix) + scratchSuffix }

// sweepScratch removes the directories in dir whose data files are gone and returns their paths. A
// data file is removed after its directory, so these directories are not in use.
func sweepScratch(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var removed []string
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), scratchSuffix)
		if !ok || !entry.IsDir() || !isDataFile(name+nameSuffix) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(dir, name+nameSuffix)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		if os.RemoveAll(path) == nil {
			removed = append(removed, path)
		}
	}
	return removed
}
