package identity

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/steledb/stele/internal/crc"
)

// format is the version of the file. Version 1 had no fresh nodes, and all nodes were voters. Versions
// 1 and 2 had no checksum; their fields mean the same in version 3.
const format = 3

// CorruptError means that the content of an identity file is damaged. No other node has a copy.
type CorruptError struct {
	File   string // its path
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is corrupt: %s: restore it from a copy, or empty all data folders of the node to join it to the cluster as a new node",
		e.File, e.Reason)
}

// The checksum is the last field of the file: crcBefore, crcDigits lower-case digits, crcAfter. It covers
// all bytes before crcBefore.
const (
	crcBefore = ",\n  \"crc\": \""
	crcAfter  = "\"\n}\n"
	crcDigits = 8
)

// encode returns the content of the file.
func (i *Identity) encode() ([]byte, error) {
	b, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return nil, err
	}
	body := bytes.TrimSuffix(b, []byte("\n}"))
	return append(body, checksum(body)...), nil
}

// checksum returns what follows body in the file.
func checksum(body []byte) string {
	return fmt.Sprintf("%s%0*x%s", crcBefore, crcDigits, crc.Sum(body), crcAfter)
}

// decode decodes the content of the file at path. The error is a *CorruptError, or that of a file that
// this program does not support.
func decode(b []byte, path string) (*Identity, error) {
	corrupt := func(format string, args ...any) error {
		return &CorruptError{File: path, Reason: fmt.Sprintf(format, args...)}
	}
	n := len(b) - len(crcBefore) - crcDigits - len(crcAfter)
	summed := n >= 0 && bytes.HasPrefix(b[n:], []byte(crcBefore))
	if summed {
		if got, want := string(b[n:]), checksum(b[:n]); got != want {
			return nil, corrupt("its checksum is wrong")
		}
	}
	i := &Identity{}
	if err := json.Unmarshal(b, i); err != nil {
		return nil, corrupt("%v", err)
	}
	if i.Format == format && !summed {
		return nil, corrupt("it has no checksum")
	}
	return i, i.check()
}
