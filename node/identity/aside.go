package identity

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/steledb/stele/internal/vfs"
)

// AsideKept is how long the log of a former vote is kept.
const AsideKept = 7 * 24 * time.Hour

// asideTime is the layout of the time, in UTC, in the name of a log that is set aside.
const asideTime = "20060102T150405Z"

// asideName returns the first unused name for a log that is set aside at a time.
func (d *dataFolder) asideName(now time.Time) (string, error) {
	path := filepath.Join(d.path, asideFolder+"."+now.UTC().Format(asideTime))
	for n := 1; ; n++ {
		name := path
		if n > 1 {
			name = fmt.Sprintf("%s.%d", path, n)
		}
		exists, err := vfs.Exists(d.fs, name)
		if err != nil || !exists {
			return name, err
		}
	}
}

// setAsideAt returns when the log in a folder of that name was set aside; ok is false if the name is another one.
func setAsideAt(name string) (at time.Time, ok bool) {
	text, ok := strings.CutPrefix(name, asideFolder+".")
	text, _, _ = strings.Cut(text, ".")
	at, err := time.Parse(asideTime, text)
	return at, ok && err == nil
}

// RemoveAside removes the logs of former votes that were set aside more than AsideKept before now, and returns their paths. Until then a log may be
// the only copy of changes that a recovery of the lock service has lost. The caller must know that the lock service works without them. An error of one
// does not keep the others from being removed.
func (s *Self) RemoveAside(now time.Time) (removed []string, failed error) {
	var dirs []dataFolder
	s.View(func(f *Folders) { dirs = f.dirs })
	for i := range dirs { // without the lock: no other name is made of these
		d := &dirs[i]
		names, err := d.fs.ReadDir(d.path)
		if err != nil {
			failed = errors.Join(failed, err) // the other folders may work
			continue
		}
		for _, name := range names {
			if at, ok := setAsideAt(name); !ok || now.Sub(at) <= AsideKept {
				continue
			}
			path := filepath.Join(d.path, name)
			if err := vfs.RemoveAll(d.fs, path); err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			removed = append(removed, path)
		}
	}
	return removed, failed
}
