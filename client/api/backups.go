package api

import (
	"time"

	"github.com/steledb/stele/internal/wire"
)

// States of backups: the values of BackupInfo.State.
const (
	BackupMaking = "making"
	BackupMade   = "made"
	BackupFailed = "failed"
)

// Bounds of backups.
const (
	// BackupTablesMax is the number of tables of one backup.
	BackupTablesMax = 1000
	// BackupsMax is the number of backups of a cluster.
	BackupsMax = 1000
	// BackupKeepMax is the longest time for which a backup can be kept, unless it is kept until it is deleted: ten years. Longer times are
	// reduced to it.
	BackupKeepMax = 10 * 365 * 24 * time.Hour
	// BackupsPageMax is the number of backups in one result of list_backups.
	BackupsPageMax = 50
)

// CreateBackupRequest holds the parameters of create_backup:
//
//	[[table…], options?]    options: keep_ms
//
// The result is the backup's id.
type CreateBackupRequest struct {
	Options
	// Tables are the names of the tables; none: all tables.
	Tables []string
	// Keep is how long the backup is kept; 0: until it is deleted.
	Keep time.Duration
}

// Append encodes the parameters.
func (r *CreateBackupRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	if r.Keep > 0 {
		n++
	}
	e.Array(1 + min(n, 1))
	e.Array(len(r.Tables))
	for _, name := range r.Tables {
		e.Str(name)
	}
	r.Options.append(e, n)
	if r.Keep > 0 {
		e.Str("keep_ms")
		e.Int(wholeMillis(r.Keep))
	}
}

// Decode decodes the n parameters in d.
func (r *CreateBackupRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodCreateBackup, n, 1, 2); err != nil {
		return err
	}
	*r = CreateBackupRequest{}
	if err := decodeList(d, "tables of a backup", BackupTablesMax, func() error {
		r.Tables = append(r.Tables, d.Str())
		return nil
	}); err != nil {
		return err
	}
	return r.Options.decode(d, n > 1, r)
}

func (r *CreateBackupRequest) option(key []byte, d *wire.Decoder) bool {
	if string(key) != "keep_ms" {
		return false
	}
	r.Keep = millisOption(d, "keep_ms", BackupKeepMax)
	return true
}

// BackupInfo describes a backup.
type BackupInfo struct {
	ID    string `json:"id"`
	State string `json:"state"` // BackupMaking and the other states
	// CreatedMS, EndedMS and ExpiresMS are in ms since 1970: when it was asked for; when it was made or failed, 0 before; when it is
	// deleted, 0 if never.
	CreatedMS int64    `json:"created_ms"`
	EndedMS   int64    `json:"ended_ms"`
	ExpiresMS int64    `json:"expires_ms"`
	By        string   `json:"by"`    // the user who asked for it; empty on an open cluster
	Error     string   `json:"error"` // why it failed, or why it is not made yet
	Tables    []string `json:"tables"`
	Tablets   int64    `json:"tablets"`
	Bytes     int64    `json:"bytes"` // of the files that it keeps; tables may use them too
}

func (b *BackupInfo) fields() fields {
	return fields{
		{"id", &b.ID}, {"state", &b.State}, {"created_ms", &b.CreatedMS}, {"ended_ms", &b.EndedMS}, {"expires_ms", &b.ExpiresMS}, {"by", &b.By},
		{"error", &b.Error}, {"tables", &texts{&b.Tables, "tables", BackupTablesMax}}, {"tablets", &b.Tablets}, {"bytes", &b.Bytes},
	}
}

// Backups is the result of list_backups: backups in order of their ids, the first after the given one.
type Backups struct{ Backups []BackupInfo }

func (b *Backups) fields() fields {
	return fields{{"backups", &list[BackupInfo]{all: &b.Backups, fields: (*BackupInfo).fields, what: "backups", max: BackupsPageMax}}}
}

// Append encodes the result.
func (b *Backups) Append(e *wire.Encoder) { b.fields().append(e) }

// Decode decodes the result.
func (b *Backups) Decode(d *wire.Decoder) error {
	*b = Backups{}
	return b.fields().decode(d)
}
