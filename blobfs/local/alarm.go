package local

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// alarmFile exists in a folder while an alarm is not cleared.
const alarmFile = "ALARM"

// alarms has the alarm that stops garbage collection.
type alarms struct {
	*disks

	// mu guards alarm. Never held across I/O.
	mu struct {
		sync.Mutex
		alarm string // see Alarm
	}
}

func (f *folder) alarmPath() string { return filepath.Join(f.path, alarmFile) }

// Alarm returns why garbage collection must stop: something in quarantine was in use. It is empty
// if there is no alarm. Alarms survive restarts.
func (s *alarms) Alarm() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.alarm
}

// RaiseAlarm records an alarm that stops garbage collection, durably if any folder accepts writes.
// The first alarm is kept; later ones are only logged.
func (s *alarms) RaiseAlarm(what string) {
	s.cfg.Logger.Error("garbage collection stopped", "cause", what, "remedy", "find out why the sweep took data in use for garbage, then clear the alarm")
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
	s.cfg.Logger.Error("alarm not stored: it is lost when the node restarts")
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

// ClearAlarm lets garbage collection continue. ErrFolderRetired if an alarm file cannot be removed.
func (s *alarms) ClearAlarm() error {
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

// loadAlarm loads a folder's alarm. An alarm file that is empty or cannot be read counts as an
// alarm.
func (s *alarms) loadAlarm(f *folder) {
	text, err := readAll(f.fs, f.alarmPath())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	what := strings.TrimSpace(string(text))
	if what == "" {
		what = fmt.Sprintf("alarm file %s is empty or cannot be read", f.alarmPath())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.alarm = what
}
