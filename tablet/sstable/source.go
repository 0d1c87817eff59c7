package sstable

// Source is the bytes of one finished SSTable, wherever they are. It is safe
// for concurrent use. blobfs.Reader is one.
type Source interface {
	// ReadChecked fills p with the bytes from off on and returns nil only if
	// ok(p) did. When ok fails, the source may fill p again from another
	// replica and ask ok once more. An error means that no copy satisfied
	// ok, or that none could be read; it may name the rotten bytes. A read
	// beyond Size is an error.
	ReadChecked(p []byte, off int64, ok func(p []byte) error) error
	// Size returns the length in bytes. It never changes.
	Size() int64
}

// Is says whether a source begins as an SSTable does.
func Is(src Source) (bool, error) {
	if src.Size() < int64(len(magic)) {
		return false, nil
	}
	p := make([]byte, len(magic))
	err := src.ReadChecked(p, 0, func([]byte) error { return nil })
	return string(p) == magic, err
}
