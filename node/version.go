package node

import "runtime/debug"

// version is set by the linker: -X github.com/steledb/stele/node.version=v1.2.3.
var version string

// Version returns the program's version.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}
