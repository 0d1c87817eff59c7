package fsm

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/steledb/stele/raftmeta/api"
)

// Limits of a path. They bound the cost of one command: the path is copied into the log, and
// creating a file may create every directory above it.
const (
	// PathBytesMax bounds the length of a path in bytes.
	PathBytesMax = 1024
	// NameBytesMax bounds the length of one name in bytes, as file systems do.
	NameBytesMax = 255
	// PathDepthMax bounds the number of names in a path. Paths in use have two to four.
	PathDepthMax = 16
)

// root is the directory that always exists.
const root = "/"

// CheckFile returns a *api.PathError unless p can name a file: as CheckDir, but not the root.
func CheckFile(p string) error {
	if p == root {
		return &api.PathError{Path: p, Reason: "is the root directory"}
	}
	return CheckDir(p)
}

// CheckRename returns a *api.PathError unless from can name a file in the directory of path, other than path.
func CheckRename(path, from string) error {
	if err := CheckFile(from); err != nil {
		return err
	}
	dir, _ := split(path)
	if other, _ := split(from); other != dir || from == path {
		return &api.PathError{Path: from, Reason: "is not another file of the same directory"}
	}
	return nil
}

// CheckDir returns a *api.PathError unless p can name a directory: absolute, names separated by one
// slash, no trailing slash, within the limits above, valid UTF-8 without control characters, and no
// name "." or "..".
//
// The state machine applies the same rules to commands in the log. They may be relaxed, never
// tightened: an old log must replay to the same state.
func CheckDir(p string) error {
	switch {
	case p == root:
		return nil
	case p == "":
		return &api.PathError{Path: p, Reason: "is empty"}
	case p[0] != '/':
		return &api.PathError{Path: p, Reason: "does not begin with a slash"}
	case len(p) > PathBytesMax:
		return &api.PathError{Path: p, Reason: fmt.Sprintf("is longer than %d bytes", PathBytesMax)}
	case !utf8.ValidString(p):
		return &api.PathError{Path: p, Reason: "is not UTF-8"}
	}
	depth := 0
	for name := range strings.SplitSeq(p[1:], "/") {
		if reason := badName(name); reason != "" {
			return &api.PathError{Path: p, Reason: reason}
		}
		depth++
	}
	if depth > PathDepthMax {
		return &api.PathError{Path: p, Reason: fmt.Sprintf("is deeper than %d names", PathDepthMax)}
	}
	return nil
}

// badName returns why name is not allowed in a path, or an empty string.
func badName(name string) string {
	switch {
	case name == "":
		return "has an empty name, or a slash at its end"
	case name == "." || name == "..":
		return fmt.Sprintf("has the name %q", name)
	case len(name) > NameBytesMax:
		return fmt.Sprintf("has a name longer than %d bytes", NameBytesMax)
	}
	for i := range len(name) {
		if name[i] < 0x20 || name[i] == 0x7f {
			return "has a control character"
		}
	}
	return ""
}

// split returns the directory of p, and p's name in it. Both are empty for the root.
func split(p string) (dir, name string) {
	if p == root {
		return "", ""
	}
	i := strings.LastIndexByte(p, '/')
	if i == 0 {
		return root, p[1:]
	}
	return p[:i], p[i+1:]
}
