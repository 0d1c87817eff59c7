package sstable

// Source is the content of a finished SSTable, local or remote. It is safe for concurrent use.
// blobfs.Reader implements it.
type Source interface {
	// ReadChecked reads len(p) bytes at off into p and returns nil only if ok(p) did. If ok fails,
	// the source may read from another replica and call ok again. An error means that no copy
	// satisfied ok, or that none could be read; it may locate the corrupt bytes. A read beyond Size
	// is an error.
	ReadChecked(p []byte, off int64, ok func(p []byte) error) error
	// Size returns the length in bytes. It never changes.
	Size() int64
}

// Is reports whether a source begins with the magic of an SSTable.
func Is(src Source) (bool, error) {
	if src.Size() < int64(len(magic)) {
		return false, nil
	}
	p := make([]byte, len(magic))
	err := src.ReadChecked(p, 0, func([]byte) error { return nil })
	return string(p) == magic, err
}
