package serve

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/steledb/stele/cmd/stele/cli"
)

// TestMain makes "stele" a program of the tests, with the commands of this package.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"stele": func() { os.Exit(cli.Main(groups)) }})
}

func groups(a *cli.App) []cli.Group {
	return []cli.Group{{ID: cli.GroupTools, Title: "Tools:", Commands: Commands(a)}}
}
