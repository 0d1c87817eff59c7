package local

import "time"

// Stats is a snapshot of the store's state, for metrics and operators.
type Stats struct {
	Folders []FolderStats
	Blobs   int
	Logs    int
	// LogExtentsReady is the number of spare log files.
	LogExtentsReady int
}

// FolderStats is the state of one data folder.
type FolderStats struct {
	Path string
	// FreeBytes is the free space according to the file system; -1 if unknown.
	FreeBytes int64
	// BlobFiles and BlobBytes are the number and the file size of sealed extents.
	BlobFiles int
	BlobBytes int64
	// QuarantineFiles and QuarantineBytes are the extents in quarantine, which the fields above
	// leave out.
	QuarantineFiles int
	QuarantineBytes int64
	// LogFiles and LogBytes are the log files: of local logs, replicas, and spares.
	LogFiles int
	LogBytes int64
	// Retired is the error that retired the folder until the store is reopened; nil if it accepts
	// writes. RetiredAt is when.
	Retired   error
	RetiredAt time.Time
}

// Stats returns a snapshot. It queries the file systems for free space and reads nothing else from
// disk.
func (s *Store) Stats() Stats {
	var st Stats
	byFolder := map[*folder]*FolderStats{}
	for _, f := range s.folders {
		fs := &FolderStats{Path: f.path, FreeBytes: -1}
		if free, err := f.fs.FreeBytes(f.path); err == nil {
			fs.FreeBytes = free
		}
		if r := f.retired.Load(); r != nil {
			fs.Retired, fs.RetiredAt = r.err, r.at
		}
		byFolder[f] = fs
	}
	s.extents.mu.Lock()
	st.Blobs = s.extents.mu.blobs.Len()
	s.extents.mu.blobs.Ascend(func(b *blob) bool {
		for _, p := range b.parts {
			byFolder[p.folder].BlobFiles++
			byFolder[p.folder].BlobBytes += extentFileBytes(p.length)
		}
		return true
	})
	s.quarantine.all.Ascend(func(q *quarantined) bool {
		for _, p := range q.parts {
			byFolder[p.folder].QuarantineFiles++
			byFolder[p.folder].QuarantineBytes += extentFileBytes(p.length)
		}
		return true
	})
	s.extents.mu.Unlock()
	addLog := func(f *logFile) {
		byFolder[f.folder].LogFiles++
		byFolder[f.folder].LogBytes += f.header.bytes
	}
	for _, log := range s.logStates() {
		log.mu.Lock()
		if len(log.extents) > 0 {
			st.Logs++
		}
		for _, f := range log.extents {
			addLog(f)
		}
		log.mu.Unlock()
	}
	for _, l := range s.logReplicas.all() {
		l.mu.Lock()
		for _, e := range l.extents {
			addLog(e.f)
		}
		l.mu.Unlock()
	}
	s.spares.mu.Lock()
	st.LogExtentsReady = len(s.spares.ready)
	for _, f := range s.spares.ready {
		addLog(f)
	}
	s.spares.mu.Unlock()
	for _, f := range s.folders {
		st.Folders = append(st.Folders, *byFolder[f])
	}
	return st
}
