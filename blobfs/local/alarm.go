package local

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"
)

// alarmFile is there in a folder while an alarm has not been cleared.
const alarmFile = "ALARM"

func (f *folder) alarmPath() string { return filepath.Join(f.path, alarmFile) }

// Alarm returns why a sweep must not go on, as something in quarantine was needed; empty if there is no
// reason. It outlasts the process.
func (s *Store) Alarm() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.alarm
}

// RaiseAlarm notes, durably if any folder still works, that a sweep must not go on. The first alarm is kept, the
// others are logged.
func (s *Store) RaiseAlarm(what string) {
	s.cfg.Logger.Error("the sweep of garbage is stopped: "+what, "do", "find out why the sweep did not know that it is needed, then clear the alarm")
	s.mu.Lock()
	first := s.mu.alarm == ""
	if first {
		s.mu.alarm = what
	}
	s.mu.Unlock()
	if !first || s.cfg.ReadOnly {
		return
	}
	text := fmt.Sprintf("%s %s\n", time.Now().UTC().Format(time.RFC3339), what)
	for _, f := range s.folders {
		if f.isRetired() {
			continue
		}
		err := f.writeAlarm(text)
		if err == nil {
			return
		}
		f.failed(err)
	}
	s.cfg.Logger.Error("alarm could not be kept: it is forgotten when the node restarts")
}

func (f *folder) writeAlarm(text string) error {
	file, err := f.fs.Create(f.alarmPath())
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = file.WriteAt([]byte(text), 0)
	if err == nil {
		err = file.Sync()
	}
	if errClose := file.Close(); err == nil {
		err = errClose
	}
	if err == nil {
		err = f.fs.SyncDir(f.path)
	}
	return err
}

// ClearAlarm lets sweeps go on. ErrFolderRetired if the note of it cannot be removed.
func (s *Store) ClearAlarm() error {
	var errs []error
	for _, f := range s.folders {
		if f.unreadable {
			continue
		}
		if _, _, err := f.fs.Stat(f.alarmPath()); err == nil {
			if err = f.remove(f.alarmPath()); err == nil {
				err = f.fs.SyncDir(f.path)
			}
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clear alarm: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.alarm = ""
	return nil
}

// loadAlarm takes note of a folder's alarm. One that cannot be read is one, too.
func (s *Store) loadAlarm(f *folder) {
	text, err := readAll(f.fs, f.alarmPath())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	what := strings.TrimSpace(string(text))
	if what == "" {
		what = fmt.Sprintf("%s is there, and tells nothing", f.alarmPath())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.alarm = what
}
