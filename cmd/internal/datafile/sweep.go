// SPDX-License-Identifier: MIT

package datafile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Sweep removes the data files in dir that no living process owns, with their scratch directories,
// and returns their paths. Files in use, files of another user or that are not
// regular files are left alone.
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

// isDataFile reports whether name is exactly what newName makes.
func isDataFile(name string) bool {
	digits, ok := strings.CutPrefix(name, namePrefix)
	if !ok {
		return false
	}
	digits, ok = strings.CutSuffix(digits, nameSuffix)
	return ok && len(digits) == 16 && strings.Trim(digits, "0123456789abcdef") == ""
}

// errLocked is returned by lock when another process holds the file.
var errLocked = errors.New("locked by another process")
