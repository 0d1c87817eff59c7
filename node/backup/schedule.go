package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
)

// SchedulesDir is the directory of the lock service with the schedules of backups.
const SchedulesDir = "/schedules"

// SchedulePath returns the path of a schedule.
func SchedulePath(name string) string { return SchedulesDir + "/" + name }

// ScheduledTable is a table of a schedule. The id counts while there is such a table, so that a renamed table stays in the schedule; else the name.
type ScheduledTable struct {
	ID   uint64
	Name string // when the schedule was made
}

// Schedule is the content of a schedule's file.
type Schedule struct {
	Created time.Time
	By      string // the user who made it; empty on an open cluster
	// Every is the time from one due time to the next, and First the first one. A backup expires Keep after it was requested.
	Every, Keep time.Duration
	First       time.Time
	// Last is the due time of the last run, and LastID its backup; zero and empty before the first run.
	Last   time.Time
	LastID string
	// Error is why the run that is due has not begun, or which tables the last run has left out.
	Error string
	// Tables are the tables; nil: all tables of the cluster at the time of a run.
	Tables []ScheduledTable
}

const (
	scheduleVersion = 1
	scheduleValues  = 10
)

// Due returns the newest due time that is not after now, if it is after that of the last run; zero otherwise. Runs that were missed are so made up for by
// one.
func (s *Schedule) Due(now time.Time) time.Time {
	if now.Before(s.First) {
		return time.Time{}
	}
	due := s.First.Add(now.Sub(s.First) / s.Every * s.Every)
	if !due.After(s.Last) {
		return time.Time{}
	}
	return due
}

// Next returns the first due time that is after now and after that of the last run.
func (s *Schedule) Next(now time.Time) time.Time {
	if now.Before(s.Last) { // the clock was ahead
		now = s.Last
	}
	if now.Before(s.First) {
		return s.First
	}
	return s.First.Add((now.Sub(s.First)/s.Every + 1) * s.Every)
}

// scheduledIDDigits is the number of digits of an id that depend on the name of the schedule.
const scheduledIDDigits = 6

// ScheduledID returns the id of the backup of a due time. It is the same whichever master begins it, so that a run is made once. Ids sort by time.
func ScheduledID(schedule string, due time.Time) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", schedule, due.UnixMilli()))
	return due.UTC().Format("20060102-150405-") + hex.EncodeToString(sum[:])[:scheduledIDDigits]
}

// Encode encodes the schedule.
func (s *Schedule) Encode() []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(scheduleValues)
	e.Uint(scheduleVersion)
	e.Int(s.Created.UnixMilli())
	e.Str(s.By)
	e.Int(s.Every.Milliseconds())
	e.Int(s.Keep.Milliseconds())
	e.Int(s.First.UnixMilli())
	e.Int(millis(s.Last))
	e.Str(s.LastID)
	e.Str(s.Error)
	s.appendTables(e)
	return append([]byte(nil), e.Bytes()...)
}

func (s *Schedule) appendTables(e *wire.Encoder) {
	if s.Tables == nil {
		e.Nil()
		return
	}
	e.Array(len(s.Tables))
	for _, t := range s.Tables {
		e.Array(2)
		e.Uint(t.ID)
		e.Str(t.Name)
	}
}

func (s *Schedule) decodeTables(d *wire.Decoder) {
	if d.IsNil() {
		return
	}
	s.Tables = []ScheduledTable{}
	for range d.ArrayMax(api.BackupTablesMax) {
		if d.Array() != 2 && d.Err() == nil {
			d.Fail(errors.New("a table that is no pair"))
		}
		s.Tables = append(s.Tables, ScheduledTable{d.Uint(), d.Str()})
	}
}

// DecodeSchedule decodes what Encode returned.
func DecodeSchedule(b []byte) (*Schedule, error) {
	d, more, err := wire.BeginRecord(b, "schedule of backups", scheduleVersion, scheduleValues)
	if err != nil {
		return nil, err
	}
	ms := func() time.Duration { return time.Duration(d.Int()) * time.Millisecond }
	s := &Schedule{Created: time.UnixMilli(d.Int()), By: d.Str(), Every: ms(), Keep: ms(), First: time.UnixMilli(d.Int())}
	if last := d.Int(); last != 0 {
		s.Last = time.UnixMilli(last)
	}
	s.LastID, s.Error = d.Str(), d.Str()
	s.decodeTables(&d)
	for range more {
		d.Skip()
	}
	if err := d.Err(); err != nil {
		return nil, fmt.Errorf("schedule of backups: %w", err)
	}
	if s.Every <= 0 || s.Keep <= 0 {
		return nil, fmt.Errorf("schedule of backups: every %v for %v", s.Every, s.Keep)
	}
	return s, nil
}
