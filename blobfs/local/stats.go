package local

// Stats are the store's figures of one moment, for metrics and for people.
type Stats struct {
	Folders []FolderStats
	Blobs   int
	Logs    int
	// LogExtentsReady counts the zeroed log files that no log uses yet.
	LogExtentsReady int
}

// FolderStats are the figures of one data folder.
type FolderStats struct {
	Path string
	// FreeBytes is what the file system says; -1 if it does not answer.
	FreeBytes int64
	// BlobFiles and BlobBytes are the sealed extents and the size of their files.
	BlobFiles int
	BlobBytes int64
	// QuarantineFiles and QuarantineBytes are the extents in quarantine; they are not counted above.
	QuarantineFiles int
	QuarantineBytes int64
	// LogFiles and LogBytes are the log files: of logs here, replicas, and spare ones.
	LogFiles int
	LogBytes int64
	// Retired is why the folder takes no writes until the store is opened
	// again; nil if it does.
	Retired error
}

// Stats returns the figures. It asks the file systems for their free space and else
// reads nothing from disk.
func (s *Store) Stats() Stats {
	var st Stats
	byFolder := map[*folder]*FolderStats{}
	for _, f := range s.folders {
		fs := &FolderStats{Path: f.path, FreeBytes: -1}
		if free, err := f.fs.FreeBytes(f.path); err == nil {
			fs.FreeBytes = free
		}
		if f.isRetired() {
			fs.Retired = *f.retired.Load()
		}
		byFolder[f] = fs
	}
	s.mu.Lock()
	st.Blobs = s.mu.blobs.Len()
	s.mu.blobs.Ascend(func(b *blob) bool {
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
	s.mu.Unlock()
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
	for _, l := range s.replicas.all() {
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
