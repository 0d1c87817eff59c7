package world

import (
	"fmt"
	"os"
	"syscall"
)

// logWindow is how many bytes of the log are mapped at a time. It is a multiple of all sizes of pages.
const logWindow = 16 << 20

// logFile is the file of all events. What was written is in the file even if the program ends in any way, since the file is mapped. Then zeros
// follow it.
type logFile struct {
	f      *os.File
	window []byte // mapped
	start  int64  // of the window
	used   int    // of the window
}

func createLog(name string) (*logFile, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("write the events: %w", err)
	}
	return &logFile{f: f}, nil
}

// Write implements io.Writer.
func (l *logFile) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if l.used == len(l.window) {
			if err := l.next(); err != nil {
				return n, err
			}
		}
		copied := copy(l.window[l.used:], p[n:])
		l.used, n = l.used+copied, n+copied
	}
	return n, nil
}

// next maps the next part of the file.
func (l *logFile) next() (err error) {
	if l.window != nil {
		if err := syscall.Munmap(l.window); err != nil {
			return fmt.Errorf("unmap the events: %w", err)
		}
	}
	l.start, l.used, l.window = l.start+int64(len(l.window)), 0, nil
	if err := l.f.Truncate(l.start + logWindow); err != nil {
		return err
	}
	l.window, err = syscall.Mmap(int(l.f.Fd()), l.start, logWindow, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map the events: %w", err)
	}
	return nil
}

// Close ends the file after what was written.
func (l *logFile) Close() error {
	if err := l.f.Truncate(l.start + int64(l.used)); err != nil {
		return err
	}
	return l.f.Close()
}
