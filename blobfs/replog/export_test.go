package replog

// Remembered returns the number of extents of which the writer knows the salt, and of those that may use disk reserves.
func (w *Writer) Remembered() (salts, reserved int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.salts), len(w.placement.reserved)
}
