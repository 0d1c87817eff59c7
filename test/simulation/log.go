package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
)

// regular reports whether a child can write its events to a file: virtual time stops while a write to a pipe waits for its reader. Files in /dev may be
// the standard output, which is another file in a child.
func regular(file string) bool {
	if file == "" || file == os.DevNull {
		return true
	}
	info, err := os.Stat(file)
	return errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() && !strings.HasPrefix(file, "/dev/")
}

// logThrough calls run with a regular file for the events of a child, and copies it to the file of -log if that is none.
func logThrough(file string, run func(file string)) error {
	if regular(file) {
		run(file)
		return trimZeros(file)
	}
	between, err := os.CreateTemp("", "stele-simulation-*.log")
	if err != nil {
		return err
	}
	defer os.Remove(between.Name())
	defer between.Close()
	run(between.Name())
	if err := trimZeros(between.Name()); err != nil {
		return err
	}
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, between)
	return errors.Join(err, out.Close())
}

// trimZeros removes the zeros at the end of a file: a child that has crashed leaves them.
func trimZeros(file string) error {
	if file == "" || file == os.DevNull {
		return nil
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	size := end
	for b := make([]byte, 1<<20); end > 0; {
		part := b[:min(end, int64(len(b)))]
		if _, err := f.ReadAt(part, end-int64(len(part))); err != nil {
			return err
		}
		left := bytes.TrimRight(part, "\x00")
		if end -= int64(len(part) - len(left)); len(left) > 0 {
			break
		}
	}
	if end == size {
		return nil
	}
	return f.Truncate(end)
}
