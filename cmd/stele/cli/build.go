package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/steledb/stele/node"
)

// VersionLine returns what "stele version" prints.
func VersionLine() string {
	from := ""
	if c := Commit(); c != "" {
		from = ", commit " + c
	}
	return fmt.Sprintf("stele %s%s, %s, %s/%s\n", node.Version(), from, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// Commit returns the commit that the program was built from, with a note on local changes; empty if
// unknown.
func Commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	revision, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = " with changes"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + changed
}
