package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/steledb/stele/internal/vfs"
)

// Names of the logs.
const (
	Actions      = "audit"
	TableActions = "table-admins"
	Refusals     = "refusals"
)

// recentBytes bounds what Recent reads of a file.
const recentBytes = 256 << 10

// Recent returns the last lines of a log, the newest first, at most linesMax: those of its current file and, if that has fewer, of the one before. It reads
// at most 256 KiB of each. Errors: an unknown name, and those of the file system.
func (l *Log) Recent(name string, linesMax int) ([]string, error) {
	if !slices.Contains([]string{Actions, TableActions, Refusals}, name) {
		return nil, fmt.Errorf("no audit log %q: %s, %s or %s", name, Actions, TableActions, Refusals)
	}
	var all []string
	for _, file := range []string{name + ".log", name + ".log.1"} {
		lines, err := lastLines(l.cfg.FS, filepath.Join(l.cfg.Dir, file))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // there is none yet, or it has just become the one before
			return nil, err
		}
		if all = append(all, lines...); len(all) >= linesMax {
			break
		}
	}
	return all[:min(len(all), linesMax)], nil
}

// lastLines returns the last lines of a file, the newest first. A line without an end, which is being written, is left out.
func lastLines(fsys vfs.FS, path string) (lines []string, err error) {
	f, err := fsys.OpenRead(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil || size == 0 {
		return nil, err
	}
	b := make([]byte, min(size, recentBytes))
	if _, err := f.ReadAt(b, size-int64(len(b))); err != nil {
		return nil, err
	}
	if size > int64(len(b)) { // the first line may lack its start
		_, b, _ = bytes.Cut(b, []byte("\n"))
	}
	end := bytes.LastIndexByte(b, '\n')
	for line := range bytes.Lines(b[:end+1]) {
		lines = append(lines, string(bytes.TrimSuffix(line, []byte("\n"))))
	}
	slices.Reverse(lines)
	return lines, nil
}
